/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From an input that differs row by row to the operator that made it so.
 *
 * A push is judged row by row, who wrote its gradients by one cosine: that may
 * agree while some rows do not. So writers are judged row by row, too, each
 * where its bytes are just those that were read.
 */
#ifndef RPS_PRECISION_COMPARE_FOLLOW_H
#define RPS_PRECISION_COMPARE_FOLLOW_H

#include "client/precision/compare.h"

enum rps_compare_followed_end {
    RPS_FOLLOWED_LOST = 0, /* what was read is not what was written, or that is
                            * not known */
    RPS_FOLLOWED_OPERATOR, /* its inputs agree row by row, its output not */
    RPS_FOLLOWED_OUTSIDE,  /* nobody in this step wrote an input of it */
    RPS_FOLLOWED_PARTED    /* the two sides' writers are not one operator */
};

struct rps_compare_followed {
    enum rps_compare_followed_end end;
    uint32_t writers; /* that were passed: 0 where the first one is lost */
    /* the first writer, and the last one: borrowed; NULL without any */
    const struct rps_compared *first, *last;
    const struct rps_compared_tensor *tensor; /* of the last one: its output,
                                               * or the input from outside */
    uint64_t rows, rows_differ;               /* of the tensor */
    double cosine;                            /* the least of a row */
};

/** Begin with an input of `reader` that does not agree. */
void rps_compare_follow(const struct rps_comparison *comparison,
        const struct rps_dumped *left, const struct rps_dumped *right,
        const struct rps_compared *reader,
        const struct rps_compared_tensor *tensor,
        const struct rps_compare_options *options,
        struct rps_compare_followed *followed);

#endif /* RPS_PRECISION_COMPARE_FOLLOW_H */
