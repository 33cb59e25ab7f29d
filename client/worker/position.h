/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a run stands in its data, as a checkpoint keeps it: JSON text, so
 * that people and other programs can read it.
 */
#ifndef RPS_WORKER_POSITION_H
#define RPS_WORKER_POSITION_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct rps_position {
    uint64_t epoch; /* counted from 0 */
    uint64_t batch; /* global batches of this epoch that are done */
    /* what it was counted in */
    const char *data; /* spec; borrowed when written, owned when read */
    uint64_t train_rows;
    uint64_t global_batch; /* rows */
    uint64_t shuffle;
    uint64_t seed;
};

/** New JSON text; free(). NULL: no memory. */
char *rps_position_text(const struct rps_position *position);

/** Errors: CORRUPT. Frees nothing; *data_out is the caller's. */
rps_status rps_position_read(const char *text, struct rps_position *position,
        char **data_out, struct rps_error *error);

/**
 * Recount `saved` for the run `now`: the same row of the same epoch, rounded
 * down to a global batch. True if the two differ in what they count in, and
 * `what` then names it.
 */
bool rps_position_recount(const struct rps_position *saved,
        struct rps_position *now, const char **what_out);

#endif /* RPS_WORKER_POSITION_H */
