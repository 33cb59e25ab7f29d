/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the chunks of one shard's rows; what stands in them is the table's. */
#include "embedding/rows.h"

#include <assert.h>
#include <stdlib.h>

#define LINE_BYTES        64u
#define CHUNK_BYTES_FIRST 4096u
#define CHUNK_BYTES_MAX   ((size_t)2 << 20)

/* Padded to whole cache lines where that costs at most an eighth. */
static size_t
stride_of(size_t floats)
{
    const size_t line = LINE_BYTES / sizeof(float);
    const size_t padded = (floats + line - 1) / line * line;

    return (padded - floats) * 8 <= floats ? padded : floats;
}

/* log2 of the rows that fit into `bytes`; at least one row does. */
static uint32_t
rows_log2(size_t bytes, size_t row_bytes)
{
    uint32_t log2 = 0;

    while ((row_bytes << (log2 + 1)) <= bytes) {
        log2++;
    }
    return log2;
}

void
rps_rows_init(struct rps_rows *rows, size_t floats)
{
    const size_t stride = stride_of(floats);

    *rows = (struct rps_rows){
            .stride = stride,
            .first_log2 = rows_log2(CHUNK_BYTES_FIRST, stride * sizeof(float)),
            .largest_log2 = rows_log2(CHUNK_BYTES_MAX, stride * sizeof(float)),
    };
}

void
rps_rows_finish(struct rps_rows *rows)
{
    for (size_t i = 0; i < rows->chunk_count; i++) {
        free(rows->chunks[i]);
    }
    free(rows->chunks);
    rows->chunks = NULL;
    rows->chunk_count = 0;
}

static uint64_t
chunk_rows(const struct rps_rows *rows, size_t chunk)
{
    const uint64_t log2 = rows->first_log2 + chunk;

    return (uint64_t)1 << (log2 < rows->largest_log2 ? log2
                                                     : rows->largest_log2);
}

size_t
rps_rows_bytes(const struct rps_rows *rows)
{
    return rows->capacity * rows->stride * sizeof(float) +
           rows->chunk_room * sizeof(*rows->chunks);
}

static rps_status
add_chunk(struct rps_rows *rows)
{
    const uint64_t count = chunk_rows(rows, rows->chunk_count);
    const size_t bytes = count * rows->stride * sizeof(float);
    void *chunk = NULL;

    if (rows->chunk_count == rows->chunk_room) {
        const size_t room = rows->chunk_room == 0 ? 4 : rows->chunk_room * 2;
        float **chunks = realloc(rows->chunks, room * sizeof(*chunks));
        if (chunks == NULL) {
            return RPS_E_NOMEM;
        }
        rows->chunks = chunks;
        rows->chunk_room = room;
    }
    if (posix_memalign(&chunk, LINE_BYTES, bytes) != 0) {
        return RPS_E_NOMEM;
    }
    rows->chunks[rows->chunk_count] = chunk;
    rows->chunk_count++;
    rows->capacity += count;
    return RPS_OK;
}

rps_status
rps_rows_reserve(struct rps_rows *rows, uint64_t count)
{
    rps_status status = RPS_OK;

    while (status == RPS_OK && rows->capacity < count) {
        status = add_chunk(rows);
    }
    return status;
}

/*
 * With f = first_log2 and L = largest_log2, the doubling chunks 0..L-f hold
 * the rows up to 2^(L+1) - 2^f; chunk k among them starts at 2^(f+k) - 2^f,
 * so adding 2^f makes the chunk visible as the number's highest bit.
 */
float *
rps_rows_at(const struct rps_rows *rows, uint64_t number)
{
    const uint64_t shifted = number + ((uint64_t)1 << rows->first_log2);
    const uint32_t top = 63u - (uint32_t)__builtin_clzll(shifted);
    uint64_t chunk = top - rows->first_log2;
    uint64_t offset = shifted - ((uint64_t)1 << top);

    assert(number < rows->capacity);
    if (top > rows->largest_log2) {
        const uint64_t past = shifted - ((uint64_t)2 << rows->largest_log2);
        chunk = rows->largest_log2 - rows->first_log2 + 1 +
                (past >> rows->largest_log2);
        offset = past & (((uint64_t)1 << rows->largest_log2) - 1);
    }
    return rows->chunks[chunk] + offset * rows->stride;
}
