/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch on its way through the stages of a step: read, split into early
 * and late keys, looked up ahead, fetched, computed, pushed. One stage has it
 * at a time.
 */
#ifndef RPS_WORKER_TURN_H
#define RPS_WORKER_TURN_H

#include "client/worker/held.h"
#include "client/worker/late.h"
#include "client/worker/slots.h"

#include <recps/client.h>

struct rps_turn {
    uint64_t step;     /* that it is the batch of */
    rps_status status; /* of reading it, with the error's words */
    struct rps_error error;
    struct rps_batch batch;
    uint64_t epoch;      /* of the data, where it goes on after this batch */
    uint64_t next_batch; /* of that epoch */
    struct rps_bags bags[RPS_MODEL_TABLES_MAX];
    bool split; /* `late` says what may be fetched early */
    struct rps_late late[RPS_MODEL_TABLES_MAX];
    struct rps_slots slots[RPS_MODEL_TABLES_MAX]; /* if they are asked for */
    rps_ticket ahead;     /* of the early keys' lookup; id 0: none */
    uint64_t ahead_since; /* the servers' step, at least, that answers it */
    /* what the device has of its rows, as it was taken (device_rows.h) */
    struct rps_held held[RPS_MODEL_TABLES_MAX];
    uint64_t held_generation, held_step; /* 0: never */
};

void rps_turn_init(struct rps_turn *turn, const struct rps_model *model,
        struct rps_bags_work *work);
/** No lookup may be on its way any more. A zeroed one is fine. */
void rps_turn_finish(struct rps_turn *turn);

#endif /* RPS_WORKER_TURN_H */
