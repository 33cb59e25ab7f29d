/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of one shard, by number from 0: the embedding and its optimizer
 * slots side by side, in chunks that never move.
 *
 *   row:    value[dim] | slot 0 [dim] | slot 1 [dim] | padding
 *   chunks: the first holds `first` rows, each next one twice as many, up to
 *           `largest` (about 2 MiB); from then on all are of that size
 *
 * So a small table takes little and a large one takes few, large blocks.
 *
 * Threads: the owner's lock (shard->lock).
 */
#ifndef RPS_EMBEDDING_ROWS_H
#define RPS_EMBEDDING_ROWS_H

#include <recps/status.h>

#include <stddef.h>
#include <stdint.h>

struct rps_rows {
    float **chunks; /* [chunk_count], room for chunk_room */
    size_t chunk_count;
    size_t chunk_room;
    size_t stride;         /* floats from row to row */
    uint32_t first_log2;   /* rows of chunk 0 */
    uint32_t largest_log2; /* rows of the largest chunks */
    uint64_t capacity;     /* rows in all chunks */
};

/** `floats`: value and slots of a row. */
void rps_rows_init(struct rps_rows *rows, size_t floats);
void rps_rows_finish(struct rps_rows *rows);

/** Make room for `count` rows in all. Errors: NOMEM, all rows stand. */
RPS_NODISCARD rps_status rps_rows_reserve(
        struct rps_rows *rows, uint64_t count);

/** Row `number` < capacity. The pointer stays valid until finish. */
float *rps_rows_at(const struct rps_rows *rows, uint64_t number);

size_t rps_rows_bytes(const struct rps_rows *rows);

#endif /* RPS_EMBEDDING_ROWS_H */
