/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bags of keys: sums of rows for lookups, gradients of bags spread over keys
 * for pushes. What a bag's mean or root divides by is the client's: it alone
 * knows the whole bag, of which a PS sees the keys that it owns.
 */
#ifndef RPS_SERVER_BAGS_H
#define RPS_SERVER_BAGS_H

#include "base/error.h"
#include "proto/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rps_parts;
struct rps_table_part;

/**
 * Bag b holds the occurrences offsets[b] .. offsets[b + 1] - 1; occurrence o
 * is of key index[o], or of key o where there is no index.
 * 0 = offsets[0] <= ... <= offsets[count] = occurrences
 */
struct rps_wire_bags {
    uint64_t count;
    const uint32_t *offsets; /* [count + 1]; in the frame */
    const uint32_t *index;   /* in the frame, or NULL */
};

/**
 * Check a part's OFFSETS and INDEX and fill part->bags. INVAL: not ascending,
 * not over all occurrences, an index beyond the keys, one without the other.
 */
rps_status rps_wire_bags_open(const struct rps_message *message,
        struct rps_table_part *part, struct rps_error *error);

/**
 * What a frame's bags take as floats, a row a key, must fit a frame itself:
 * no frame makes the server hold more than as much again. What they add up is
 * at most RPS_BAG_FLOATS_MAX. LIMIT.
 */
rps_status rps_wire_bags_check_size(
        const struct rps_parts *parts, struct rps_error *error);

/**
 * Sum of each bag from `first` on, in the order of its occurrences, in
 * float32; then encoded. An empty bag is zeros.
 *
 * Shapes:  rows[keys][dim]; to: n rows of type `value`.
 */
void rps_wire_bags_pool(const struct rps_wire_bags *bags, uint64_t first,
        uint64_t n, uint32_t dim, const float *rows, uint16_t value, void *to);

/**
 * Add the gradients of bags first .. first + n - 1 to their keys' sums, in
 * the order of their occurrences, in float32. A key's first one is copied.
 *
 * Shapes:  rows: encoded rows of bags 0 and on; sums[keys][dim];
 *          seen[keys], zeroed before the first call.
 */
void rps_wire_bags_spread(const struct rps_wire_bags *bags, uint64_t first,
        uint64_t n, uint32_t dim, uint16_t value, const void *rows, float *sums,
        bool *seen);

#endif /* RPS_SERVER_BAGS_H */
