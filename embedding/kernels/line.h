/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line of the index: one cache line, so that a probe that ends in its
 * first line (nine of ten do) costs one miss.
 *
 *   0  u64 keys[4]     32  u32 rows[4]     48  u32 meta[4]
 *
 * Rows count from 1; a place with row 0 is free, whatever its key says, so
 * that every one of the 2^64 keys can be stored.
 */
#ifndef RPS_EMBEDDING_KERNELS_LINE_H
#define RPS_EMBEDDING_KERNELS_LINE_H

#include <stdint.h>

#define RPS_LINE_KEYS 4u

struct rps_index_line {
    uint64_t keys[RPS_LINE_KEYS];
    uint32_t rows[RPS_LINE_KEYS];
    uint32_t meta[RPS_LINE_KEYS]; /* RPS_META_* */
};

_Static_assert(sizeof(struct rps_index_line) == 64, "a line is a cache line");

/**
 * Lines of a search that are read at once where it did not end in the first:
 * the other one of its pair and the next pair. Nine of ten end there, and a
 * line in the same page is cheap.
 */
#define RPS_LINES_NEXT 3u

/** What a probe of one line says where it does not say 0..3: a place. */
#define RPS_LANE_ABSENT 4u /* not here, and a free place ends the probe */
#define RPS_LANE_BEYOND 5u /* not here; the line is full: look further */

#endif /* RPS_EMBEDDING_KERNELS_LINE_H */
