/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operator again: from its dumped inputs and attributes, in f64, by the law
 * that recps/npu_ops.h gives for it and by none of the device's kernels.
 *
 * An output's element y agrees with the law's value r if both are NaN, both the
 * same infinity, or |y - r| <= tolerance, which is what any order of adding in
 * the operator's own precision may make of it:
 *
 *   sum of n terms t:  g sum of |t| + 2^-24 |r| + (n + 1) 2^-149,
 *                      g = (n + 1) u / (1 - (n + 1) u)
 *     u = 2^-24 where sums are f32, 2^-53 where they are f64; the last term is
 *     of numbers that underflow
 *   function:          8 ulps (2 in f64) of r, times what a rounded argument
 *                      moves it by, + 2^-126; gelu + 2^-23 |x|
 *   the loss:          g of n + 16 terms, u = 2^-53
 *   moved, counted:    0
 *
 * In mixed precision factors are rounded to bf16 as the device's are; one that
 * is a result itself (dz) may round to either neighbour, and adds what this
 * moves. Where the sum of |t| is beyond f32's largest number, partial sums may
 * or may not overflow, and any result agrees.
 */
#ifndef RPS_PRECISION_REPLAY_H
#define RPS_PRECISION_REPLAY_H

#include "client/precision/read.h"

enum rps_replay_verdict {
    RPS_REPLAY_AGREES = 0,
    RPS_REPLAY_DIFFERS,
    RPS_REPLAY_NO_LAW,    /* no reference for its type, or an attribute or input
                           * that it needs is not in the dump */
    RPS_REPLAY_UNREADABLE /* a file of it is damaged or missing */
};

/** One of its outputs. */
struct rps_replayed_output {
    bool checked;         /* else the law says nothing of it */
    uint64_t elements;    /* that differ */
    uint64_t first;       /* the first one of them, C order */
    double got, expected; /* there */
    double tolerance;     /* there */
    double worst;         /* the largest |y - r| / tolerance of those that are
                           * finite; below 1 where all agree */
    double error;         /* the largest |y - r| of them */
};

struct rps_replayed {
    enum rps_replay_verdict verdict;
    struct rps_replayed_output outputs[RPS_DUMP_TENSORS_MAX];
    uint32_t output_count;
    char *words; /* why, in a sentence without a full stop; NULL: it agrees */
};

/** Errors: NOMEM alone; what else is wrong is in the verdict. */
rps_status rps_replay(const struct rps_dumped *dumped, uint32_t index,
        struct rps_replayed *replayed, struct rps_error *error);
/** A zeroed one, or one that was freed, is fine. */
void rps_replayed_free(struct rps_replayed *replayed);

#endif /* RPS_PRECISION_REPLAY_H */
