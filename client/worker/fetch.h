/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stages between reading and computing: rows of later batches looked up
 * ahead, and at the head of a step one lookup of what is left. That one goes
 * first of all requests behind the end of the step before, so it carries the
 * decision to each PS that it asks, and its rows are those of that step: the
 * dense variables, and the late keys' rows. No further round trip is needed
 * for every replica to begin with the same bits.
 */
#ifndef RPS_WORKER_FETCH_H
#define RPS_WORKER_FETCH_H

#include "client/worker/device_rows.h"
#include "client/worker/reader.h"
#include "client/worker/spent.h"
#include "client/worker/tables.h"

struct rps_fetch {
    struct rps_tables *tables;    /* borrowed */
    struct rps_reader *reader;    /* borrowed */
    struct rps_spent *spent;      /* borrowed */
    struct rps_device_rows *rows; /* borrowed; NULL: none stay there */
    bool looks_ahead;             /* false: embedded, nothing would overlap */
};

/**
 * Rows and dense variables of the turn that was taken, as the last step left
 * them: a row a key in its bags, values in the model. Of rows that the device
 * has (held) the bags get nothing. Lookups of the turns
 * behind it are begun, and go on while the model computes.
 */
rps_status rps_fetch(struct rps_fetch *fetch, struct rps_turn *turn,
        struct rps_error *error);

/** Forget what is on its way for a turn that is not computed. */
void rps_fetch_drop(struct rps_fetch *fetch, struct rps_turn *turn);

/** Forget what is on its way for the turns behind the one taken, and for it:
 * before the reader is destroyed. */
void rps_fetch_cancel(struct rps_fetch *fetch);

#endif /* RPS_WORKER_FETCH_H */
