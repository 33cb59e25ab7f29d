/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a row must hold, derived from its key, and the comparison that every
 * answer goes through.
 */
#ifndef RPS_BENCH_CHECK_H
#define RPS_BENCH_CHECK_H

#include "base/error.h"

#include <recps/types.h>

#include <stddef.h>
#include <stdint.h>

/** Bytes of a value in memory: 4, or 2. */
size_t bench_value_bytes(enum rps_value value);

/**
 * row[dim], in [0, 1), of the row of `key` before any push. Multiples of
 * 2^-24, or of 2^-7 so that f16 and bf16 hold them exactly.
 */
void bench_pattern(
        enum rps_value value, uint64_t key, uint32_t dim, float *row);

/** The same as it is stored: out has dim values of value_bytes. */
void bench_pattern_stored(
        enum rps_value value, uint64_t key, uint32_t dim, void *out);

/** What stands in line i of the index-sized array: its words' sum. */
uint64_t bench_line_sum(uint64_t i);

/** CORRUPT naming key, column and both values at the first difference. */
rps_status bench_check_rows(const uint64_t *keys, size_t n, uint32_t dim,
        const float *got, const float *wanted, struct rps_error *error);

/** bench_check_rows() against the pattern. row[dim] is scratch. */
rps_status bench_check_pattern(enum rps_value value, const uint64_t *keys,
        size_t n, uint32_t dim, const float *got, float *row,
        struct rps_error *error);

/** The same for rows as stored; `name` says whose answer it is. */
rps_status bench_check_stored(enum rps_value value, const uint64_t *keys,
        size_t n, uint32_t dim, const void *got, void *row, const char *name,
        struct rps_error *error);

#endif /* RPS_BENCH_CHECK_H */
