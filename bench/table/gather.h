/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two things that no table can do without, and nothing else: read one
 * random 64-byte line of an array of the index's size, and copy the row.
 * Addresses are made beforehand; `distance` keys ahead are prefetched, 0: the
 * CPU's own look-ahead alone.
 */
#ifndef RPS_BENCH_TABLE_GATHER_H
#define RPS_BENCH_TABLE_GATHER_H

#include <recps/types.h>

#include <stddef.h>
#include <stdint.h>

#define BENCH_LINE_BYTES 64u
#define BENCH_DISTANCES  4u

extern const unsigned bench_distances[BENCH_DISTANCES]; /* 0, 8, 16, 32 */

/** sums[n]: the words of each line, all of which are read. */
void bench_gather_lines(
        const void *const *lines, size_t n, unsigned distance, uint64_t *sums);

/** out: n rows of row_bytes, packed. */
void bench_gather_rows(const void *const *rows, size_t n, size_t row_bytes,
        unsigned distance, void *out);

/** The arrays, in huge pages, with what check.h expects of them. */
struct bench_arrays {
    char *lines; /* [line_count][64] */
    uint64_t line_count;
    char *rows; /* [row_count][row_bytes] row i: the pattern of key i */
    uint64_t row_count;
    size_t row_bytes;
};

void bench_arrays_finish(struct bench_arrays *arrays);

/** Errors: NOMEM. */
rps_status bench_arrays_make_lines(
        struct bench_arrays *arrays, uint64_t index_bytes);

#endif /* RPS_BENCH_TABLE_GATHER_H */
