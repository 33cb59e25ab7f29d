/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A service and peers that talk to it in frames, as a loop or the embedded
 * channel would: each peer is one session with room for its answers.
 */
#ifndef RPS_TESTS_UNIT_SERVER_FIXTURE_H
#define RPS_TESTS_UNIT_SERVER_FIXTURE_H

#include "base/hash.h"
#include "proto/message.h"
#include "server/service.h"
#include "tests/unit/suite.h"

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define ANSWERS_MAX 256u

/** An answer, opened. */
struct answer {
    uint8_t *frame;
    size_t bytes;
    struct rps_header header;
    struct rps_message message;
};

struct peer {
    struct rps_service *service;
    struct rps_session *session;
    uint32_t epoch;        /* of the requests that are built */
    uint64_t next_request; /* id */
    uint64_t came_ns;      /* when its requests came; 0: now */
    pthread_mutex_t lock;
    pthread_cond_t came;
    struct answer answers[ANSWERS_MAX]; /* lock */
    size_t answer_count;                /* lock */
};

/** What the service said in events. */
struct events {
    pthread_mutex_t lock;
    char last_event[64];
    char last_text[1024];
    unsigned int count;
    unsigned int shutdowns;
};
extern struct events rps_events;

/** A service of PS index of count; dir may be NULL; step timeout in ms. */
struct rps_service *service_of(
        uint32_t index, uint32_t count, const char *dir, uint32_t timeout_ms);

/** PS 0 of 1 with a thread of upkeep, and a memory limit (0: none). */
struct rps_service *service_with_upkeep(const char *dir, uint64_t memory_limit);

struct peer *peer_open(struct rps_service *service);
void peer_close(struct peer *peer);
/** Open and say HELLO; role as on the wire. Asserts that it is taken. */
struct peer *peer_greet(struct rps_service *service, const char *role,
        uint32_t rank, uint32_t replicas, const char *client);

/** A header of this peer's epoch. */
struct rps_header request_of(struct peer *peer, uint16_t opcode);

/** Send and do not wait: returns the request's id. */
uint64_t send_builder(struct peer *peer, struct rps_builder *builder);
uint64_t send_text(
        struct peer *peer, const struct rps_header *header, const char *text);

/** The answer to a request; waits at most 20 s. answer_finish() it. */
struct answer wait_answer(struct peer *peer, uint64_t id);
/** Has it come within so many milliseconds? */
bool is_answered(struct peer *peer, uint64_t id, unsigned int ms);
void answer_finish(struct answer *answer);

/** send_text, wait, check the status. *text_out (may be NULL): free(). */
void ask(struct peer *peer, const struct rps_header *header, const char *text,
        rps_status expected, char **text_out);
/** Assert an answer's status and that its words hold this text. */
void check_refused(struct answer *answer, rps_status status, const char *part);

/** Open table `name`: sgd, zeros, learning rate 1, dim. */
uint64_t open_table(struct peer *peer, const char *name, uint32_t dim);

/** RESTORE step 0 (or another) with these terms; sets the peer's epoch. */
void begin_job(struct peer *peer, uint32_t epoch, uint64_t step,
        const char *mode, uint32_t replicas);
void begin_job_with(struct peer *peer, uint32_t epoch, uint64_t step,
        const char *mode, const char *combine, uint32_t replicas);
/** STEP_END(0) of all peers, in rank order; sets their epochs. */
void join_all(struct peer **peers, uint32_t count);

/** Frames with one table. */
void build_push(struct rps_builder *builder, const struct rps_header *header,
        uint64_t table_id, size_t n, const uint64_t *keys,
        const float *gradients, uint32_t dim);
uint64_t send_push(struct peer *peer, uint64_t step, uint64_t number,
        uint64_t table_id, size_t n, const uint64_t *keys,
        const float *gradients, uint32_t dim);
void push(struct peer *peer, uint64_t step, uint64_t table_id, size_t n,
        const uint64_t *keys, const float *gradients, uint32_t dim);
/** rows[n][dim]; returns c. `decision` may be NULL. */
uint64_t lookup(struct peer *peer, uint64_t table_id, size_t n,
        const uint64_t *keys, uint32_t dim, float *rows);

/** STEP_END: send; and what came. */
uint64_t send_step_end(struct peer *peer, uint64_t step, uint32_t rank,
        const char *loss, const char *wishes);
struct rps_wire_decision wait_decision(struct peer *peer, uint64_t id);
/** APPLY this decision; asserts the status. */
void apply(struct peer *peer, const struct rps_wire_decision *decision,
        rps_status expected);
/** The JSON of STAT. */
json_t *stat_of(struct peer *peer);

#endif /* RPS_TESTS_UNIT_SERVER_FIXTURE_H */
