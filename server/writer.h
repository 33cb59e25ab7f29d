/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread that carries out what must not hold a loop: SAVE, RESTORE,
 * EVICT and digests. Tasks run in the order in which they came.
 */
#ifndef RPS_SERVER_WRITER_H
#define RPS_SERVER_WRITER_H

#include "server/state.h"

#define RPS_TASKS_MAX 64u /* that wait */

struct rps_task {
    struct rps_task *next;
    struct rps_parked *parked; /* NULL: nobody is answered */
    /** Runs on the writer thread with no lock held. *text_out: owned. */
    rps_status (*run)(struct rps_service *service, struct rps_task *task,
            char **text_out, struct rps_error *error);
    /* what run needs */
    uint64_t step;
    uint32_t epoch;
    uint64_t client;
    uint32_t keep;
    char *manifest; /* owned */
    char *why;      /* of an ABORT; owned */
    uint64_t cut;   /* number of the save's; 0: whichever it is */
    bool delta;
    bool now;    /* take a cut, though there is one of this step */
    bool urgent; /* before those that wait */
    bool begins; /* a RESTORE of a newer epoch: no save before it counts */
    rps_terms terms;
    struct rps_warm *warm;         /* owned; of a RESTORE, or NULL */
    char reason[RPS_REASON_BYTES]; /* of a RESTORE; "": none */
    uint64_t table_id;             /* EVICT of one table */
    bool one_table;
    struct rps_answers answers; /* of others, sent before its own */
};

struct rps_writer *rps_writer_create(struct rps_service *service);
/** Finishes the tasks that wait, then stops. */
void rps_writer_destroy(struct rps_writer *writer);

/**
 * Park the request and queue a copy of *task (its texts change hands).
 * RETRY_LATER: too many wait.
 */
rps_status rps_writer_submit(
        struct rps_request *request, const struct rps_task *task);

/** Queue a copy of *task, of the service's own. false: no memory. */
bool rps_writer_post(struct rps_writer *writer, const struct rps_task *task);

/**
 * Drop the task of this request before it begins: the caller answers. False:
 * there is none, or it is in hand.
 */
bool rps_writer_withdraw_locked(
        struct rps_writer *writer, const struct rps_parked *parked);

/** None waits, and none is in hand. */
bool rps_writer_is_idle_locked(const struct rps_writer *writer);

/** Tasks that wait; the one in hand is not among them. */
size_t rps_writer_waiting_locked(const struct rps_writer *writer);

#endif /* RPS_SERVER_WRITER_H */
