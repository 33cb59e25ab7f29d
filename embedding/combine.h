/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient of one key: the sum of its entries in order, scaled, clipped
 * by value, then by norm (docs/TABLE.md, "The gradient law").
 */
#ifndef RPS_EMBEDDING_COMBINE_H
#define RPS_EMBEDDING_COMBINE_H

#include "embedding/group.h"

/** What a key's step needs. */
struct rps_combined {
    uint64_t key;
    uint64_t hash;
    const float *gradient; /* [live]; NULL: refused, the sum overflowed */
    size_t live;
    uint64_t uses; /* multiplicities, summed */
};

/**
 * Combine a group. sum[dim] is scratch that *out may point into; a gradient
 * that nothing changes is borrowed where it lies.
 */
void rps_combine(const struct rps_table *table,
        const struct rps_grouping *grouping, size_t group, float scale,
        float *sum, struct rps_combined *out);

#endif /* RPS_EMBEDDING_COMBINE_H */
