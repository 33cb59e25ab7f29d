/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One operator of a step, found by its name, and its tensors in figures.
 *
 * Threads: one at a time.
 */
#ifndef RPS_PRECISION_NI_H
#define RPS_PRECISION_NI_H

#include "client/precision/read.h"

#define RPS_NI_FIRST 6u /* numbers that are shown */

/** Operators that a name may mean. */
struct rps_ni_found {
    uint32_t *operators; /* indices, in order of execution */
    uint32_t count;
    uint32_t kinds; /* of types and names among them */
};

/**
 * "top.0/linear", as files have it ("top_0_linear"), or with its type
 * ("linear.top_0_linear", the beginning of a file's name). Where no operator is
 * called so, those whose type and name have it in them, whatever its case.
 *
 * Owns: rps_ni_found_finish() releases it. Errors: NOMEM.
 */
rps_status rps_ni_find(const struct rps_dumped *dumped, const char *name,
        struct rps_ni_found *found_out, struct rps_error *error);
void rps_ni_found_finish(struct rps_ni_found *found);

struct rps_ni_figures {
    uint64_t count; /* elements */
    uint64_t nan, infinite;
    uint64_t finite; /* min, max and mean are of these; 0: they are NaN */
    double min, max, mean;
    /* of u64 and i64 (then as its bits), where f64 would round: */
    bool is_key;
    uint64_t key_min, key_max;
    uint32_t first_count;
    double first[RPS_NI_FIRST]; /* C order */
    uint64_t first_keys[RPS_NI_FIRST];
};

/** Errors: those of rps_dumped_load(). */
rps_status rps_ni_figures(const struct rps_dumped_tensor *tensor,
        struct rps_ni_figures *figures_out, struct rps_error *error);

#endif /* RPS_PRECISION_NI_H */
