/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/net/rows.h"

#include "base/hash.h"
#include "bench/memory.h"
#include "bench/table/gather.h"

#include <stdlib.h>
#include <string.h>

#define DISTANCE 16u /* rows prefetched ahead; 8 and 32 are no better */

bool
bench_rows_init(struct bench_rows *rows)
{
    const size_t bytes = rows->count * rows->row_bytes;

    if (rows->count == 0) {
        return true;
    }
    rows->rows = bench_huge_alloc(bytes);
    if (rows->rows == NULL) {
        return false;
    }
    memset(rows->rows, 1, bytes);
    return true;
}

void
bench_rows_finish(struct bench_rows *rows)
{
    if (rows->rows != NULL) {
        bench_huge_free(rows->rows, rows->count * rows->row_bytes);
    }
    *rows = (struct bench_rows){0};
}

bool
bench_rows_reader_init(struct bench_rows_reader *reader,
        const struct bench_rows *rows, uint64_t seed)
{
    *reader = (struct bench_rows_reader){.rows = rows};
    if (rows->count == 0) {
        return true;
    }
    reader->pool = calloc(BENCH_ROWS_POOL, sizeof(*reader->pool));
    for (uint64_t i = 0; reader->pool != NULL && i < BENCH_ROWS_POOL; i++) {
        const uint64_t row = rps_mix64(rps_mix64(seed) + i) % rows->count;

        reader->pool[i] = rows->rows + row * rows->row_bytes;
    }
    return reader->pool != NULL;
}

void
bench_rows_reader_finish(struct bench_rows_reader *reader)
{
    free(reader->pool);
    *reader = (struct bench_rows_reader){0};
}

void
bench_rows_gather(struct bench_rows_reader *reader, char *bytes, size_t n)
{
    const size_t row_bytes = reader->rows->row_bytes;
    size_t left = reader->rows->count > 0 ? n / row_bytes : 0;

    while (left > 0) {
        const size_t there = BENCH_ROWS_POOL - reader->at;
        const size_t some = left < there ? left : there;

        bench_gather_rows(reader->pool + reader->at, some, row_bytes, DISTANCE,
                bytes + (n - left * row_bytes));
        reader->at = (reader->at + some) % BENCH_ROWS_POOL;
        left -= some;
    }
}
