/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the step authority share: job.c (members and the start),
 * job_step.c (STEP_END), job_timer.c (lost and missing replicas), job_back.c
 * (those that come back).
 *
 * Everything here is guarded by service->lock.
 */
#ifndef RPS_SERVER_JOB_STATE_H
#define RPS_SERVER_JOB_STATE_H

#include "server/job.h"

#define RPS_OBSERVERS_MAX 16u

/** Why the others go on without a replica (on_lost leave). */
enum rps_given_up {
    RPS_NOT_GIVEN_UP,
    RPS_GIVEN_UP_GONE,  /* its connections were */
    RPS_GIVEN_UP_SILENT /* it ended no step */
};

/** One replica, by rank. */
struct rps_replica {
    bool known;   /* a process said HELLO with this rank */
    bool started; /* its STEP_END(0) was answered in this epoch */
    bool left;    /* it is not waited for */
    enum rps_given_up given_up;
    bool restarting; /* another process of this rank waits to join */
    enum rps_peer_role role;
    uint64_t client;      /* the process that has the rank */
    uint32_t connections; /* of that client */
    uint64_t lost_ms;     /* clock when the last one closed; 0: not lost */
    char peer[64];
    uint64_t ended; /* last step it ended */
    double loss;    /* of that step; NaN: none */
    json_t *alike;  /* of STEP_END(0), owned; NULL: it said nothing */
    uint32_t wishes;
    struct rps_parked *joining; /* its STEP_END(0) */
    struct rps_parked *waiting; /* its STEP_END(ended) */
    uint64_t waiting_ms;        /* clock when that came */
    uint64_t answered_ms;       /* clock when one was last answered */
};

struct rps_job {
    struct rps_service *service; /* set before start */
    pthread_t timer;             /* set before start */
    pthread_cond_t timer_cond;
    bool stop;

    struct rps_replica *members; /* [member_count]; ranks beyond are unknown */
    uint32_t member_count;

    bool begun;   /* a RESTORE came */
    bool started; /* all members' STEP_END(0) were answered */
    rps_terms terms;
    uint64_t begin_step;
    uint64_t decided;              /* sync: last step with a decision */
    struct rps_wire_decision last; /* that decision; owns its ranks */
    bool stopping;                 /* the chief wished to stop */
    bool stopped;                  /* no step ends in this epoch any more */
    rps_status stopped_with;       /* what every end of a step gets then */
    char *why;                     /* of that, owned; NULL: no memory */
    char reason[RPS_REASON_BYTES]; /* why the job began again; "": not so */
    uint64_t save_step;            /* not sync: the barrier m; 0: none */
    bool save_ready;               /* the chief was told to save m */
    /* evaluators that wait for the job's end; NULL: none */
    struct rps_parked *observers[RPS_OBSERVERS_MAX];
    uint64_t held_ns;   /* clock since when a replica is held for m; 0: none */
    uint64_t report_ms; /* clock of the next "waiting" line; 0: none */
    uint64_t saved_ms;  /* clock of the last PREPARE, COMMIT, ABORT; 0: none */
    uint64_t timer_due; /* clock until which the timer sleeps */
};

/** Members 0..count-1 exist; false: no memory. */
bool rps_job_grow_locked(struct rps_job *job, uint32_t count);
/** Ranks that this epoch waits for. */
uint32_t rps_job_replicas(const struct rps_job *job);
/** The timer looks again. */
void rps_job_wake_locked(struct rps_job *job);
/** The wait of `waiter` at a step's end, or for the end, is for this one. */
bool rps_job_holds_up(const struct rps_job *job,
        const struct rps_replica *member, const struct rps_replica *waiter);
/** The others go on without this rank from here on. */
void rps_job_give_up_locked(struct rps_job *job, uint32_t rank,
        enum rps_given_up why, struct rps_answers *answers);
/** No step ends in this epoch any more: all are told, now and later. */
void rps_job_stop_locked(struct rps_job *job, struct rps_answers *answers,
        rps_status status, const char *why);
/** Has another process come for this rank, whose own is gone? Then the job
 * goes back: no step ends in this epoch any more. */
void rps_job_look_back_locked(
        struct rps_job *job, uint32_t rank, struct rps_answers *answers);
/** Largest step that anybody ended. */
uint64_t rps_job_largest_ended(const struct rps_job *job);
/** Answer everybody who waits for a step. */
void rps_job_fail_waiting_locked(struct rps_job *job,
        struct rps_answers *answers, rps_status status, const char *why);
/** Answer everybody who waits for the start. */
void rps_job_fail_joining_locked(struct rps_job *job,
        struct rps_answers *answers, rps_status status, const char *why);
/** STEP_END(0): park until all are here. `alike` is kept (a new reference):
 * what all replicas must say alike, an object of strings; NULL: nothing. */
rps_status rps_job_join_locked(
        struct rps_request *request, struct rps_job *job, json_t *alike);
/** STEP_END(0) of an evaluator: park until the job ends. */
rps_status rps_job_observe_locked(
        struct rps_request *request, struct rps_job *job);
void *rps_job_timer_main(void *context);

#endif /* RPS_SERVER_JOB_STATE_H */
