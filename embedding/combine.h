/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient of one key: the sum of its entries in order, scaled, clipped
 * by value, then by norm (docs/TABLE.md, "The gradient law").
 */
#ifndef RPS_EMBEDDING_COMBINE_H
#define RPS_EMBEDDING_COMBINE_H

#include "embedding/group.h"

/**
 * Combine a group. sum[dim] is scratch that the result may be in; a gradient
 * that nothing changes is borrowed where it lies.
 *
 * Returns: the gradient, of the key's live floats; NULL: refused, the sum
 *          overflowed. *uses_out: the multiplicities, summed.
 */
const float *rps_combine(const struct rps_table *table,
        const struct rps_grouping *grouping, size_t group, float scale,
        float *sum, uint64_t *uses_out);

#endif /* RPS_EMBEDDING_COMBINE_H */
