/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which keys the table holds. Row number i (of the benchmark, not of the
 * engine) has key rps_mix64(i), or, with a trace, the i-th distinct key of
 * it; then come made-up keys up to the number of rows that was asked for.
 */
#ifndef RPS_BENCH_KEYSET_H
#define RPS_BENCH_KEYSET_H

#include "base/error.h"
#include "base/hash.h"

#include <stddef.h>
#include <stdint.h>

#define BENCH_ROWS_MAX (1u << 30)

struct bench_keyset {
    uint64_t rows;
    uint64_t *keys;  /* [rows], or NULL: rps_mix64(i) */
    uint32_t *trace; /* [trace_count] row numbers in the trace's order */
    size_t trace_count;
};

static inline uint64_t
bench_keyset_key(const struct bench_keyset *set, uint64_t row)
{
    return set->keys != NULL ? set->keys[row] : rps_mix64(row);
}

/**
 * trace: a path, or NULL. Text with a key a line, decimal (signed or not) or
 * 0x and hex digits, or a .npy of <u8 or <i8.
 * Errors: INVAL (naming file and line), NOMEM.
 */
rps_status bench_keyset_init(struct bench_keyset *set, uint64_t rows,
        const char *trace, struct rps_error *error);
void bench_keyset_finish(struct bench_keyset *set);

#endif /* RPS_BENCH_KEYSET_H */
