/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/table/gather.h"

#include "bench/check.h"
#include "bench/memory.h"

#include <string.h>

const unsigned bench_distances[BENCH_DISTANCES] = {0, 8, 16, 32};

static inline uint64_t
line_sum(const void *line)
{
    uint64_t words[BENCH_LINE_BYTES / 8];
    uint64_t sum = 0;

    memcpy(words, line, sizeof(words));
    for (size_t i = 0; i < BENCH_LINE_BYTES / 8; i++) {
        sum += words[i];
    }
    return sum;
}

void
bench_gather_lines(
        const void *const *lines, size_t n, unsigned distance, uint64_t *sums)
{
    const size_t ahead = distance < n ? n - distance : 0;
    size_t i = 0;

    if (distance > 0) {
        for (; i < ahead; i++) {
            __builtin_prefetch(lines[i + distance]);
            sums[i] = line_sum(lines[i]);
        }
    }
    for (; i < n; i++) {
        sums[i] = line_sum(lines[i]);
    }
}

/* Inlined with a constant row_bytes, so that the copy is a few moves. */
static inline __attribute__((always_inline)) void
gather(const void *const *rows, size_t n, size_t row_bytes, unsigned distance,
        char *out)
{
    const size_t ahead = distance < n ? n - distance : 0;
    size_t i = 0;

    if (distance > 0) {
        for (; i < ahead; i++) {
            const char *next = rows[i + distance];
            for (size_t at = 0; at < row_bytes; at += BENCH_LINE_BYTES) {
                __builtin_prefetch(next + at);
            }
            memcpy(out + i * row_bytes, rows[i], row_bytes);
        }
    }
    for (; i < n; i++) {
        memcpy(out + i * row_bytes, rows[i], row_bytes);
    }
}

void
bench_gather_rows(const void *const *rows, size_t n, size_t row_bytes,
        unsigned distance, void *out)
{
    switch (row_bytes) {
    case 4:
        gather(rows, n, 4, distance, out);
        break;
    case 16:
        gather(rows, n, 16, distance, out);
        break;
    case 32:
        gather(rows, n, 32, distance, out);
        break;
    case 64:
        gather(rows, n, 64, distance, out);
        break;
    case 128:
        gather(rows, n, 128, distance, out);
        break;
    case 256:
        gather(rows, n, 256, distance, out);
        break;
    default:
        gather(rows, n, row_bytes, distance, out);
        break;
    }
}

/* Seven arbitrary words, and one that makes the sum. */
static void
fill_line(uint64_t i, char *line)
{
    uint64_t words[BENCH_LINE_BYTES / 8];
    uint64_t rest = bench_line_sum(i);

    for (size_t j = 1; j < BENCH_LINE_BYTES / 8; j++) {
        words[j] = i * 8 + j;
        rest -= words[j];
    }
    words[0] = rest;
    memcpy(line, words, sizeof(words));
}

rps_status
bench_arrays_make_lines(struct bench_arrays *arrays, uint64_t index_bytes)
{
    arrays->line_count = index_bytes / BENCH_LINE_BYTES;
    if (arrays->line_count == 0) {
        arrays->line_count = 1;
    }
    arrays->lines = bench_huge_alloc(arrays->line_count * BENCH_LINE_BYTES);
    if (arrays->lines == NULL) {
        return RPS_E_NOMEM;
    }
    for (uint64_t i = 0; i < arrays->line_count; i++) {
        fill_line(i, arrays->lines + i * BENCH_LINE_BYTES);
    }
    return RPS_OK;
}

void
bench_arrays_finish(struct bench_arrays *arrays)
{
    bench_huge_free(arrays->lines, arrays->line_count * BENCH_LINE_BYTES);
    bench_huge_free(arrays->rows, arrays->row_count * arrays->row_bytes);
    *arrays = (struct bench_arrays){0};
}
