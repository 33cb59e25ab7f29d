/* SPDX-License-Identifier: Apache-2.0 */
/* Who wrote an input that differs. */
#ifndef RPS_PRECISION_COMPARE_TRACE_H
#define RPS_PRECISION_COMPARE_TRACE_H

#include "client/precision/compare.h"

struct rps_compare_writer {
    const struct rps_dumped_operator *op; /* NULL: nobody in this step */
    bool is_left;     /* op is of the left dump, else of the right */
    bool by_contents; /* what it gave is what was read, on its own side */
};

/** The operator that a tensor is an input of, and which one. */
bool rps_compare_find_input(const struct rps_dumped *dumped,
        const struct rps_dumped_tensor *tensor, uint32_t *op_out,
        uint32_t *input_out);

/**
 * Of the left and of the right side: by place; where that finds nobody on
 * either, by equal contents: what goes from the device to the host lies
 * elsewhere there.
 */
void rps_compare_trace(const struct rps_dumped *left,
        const struct rps_dumped *right,
        const struct rps_compared_tensor *tensor,
        struct rps_compare_writer writers[2]);

#endif /* RPS_PRECISION_COMPARE_TRACE_H */
