/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/check.h"

#include "base/hash.h"

#include <string.h>

size_t
bench_value_bytes(enum rps_value value)
{
    return value == RPS_VALUE_F32 ? 4 : 2;
}

void
bench_pattern(enum rps_value value, uint64_t key, uint32_t dim, float *row)
{
    const uint64_t mixed = rps_mix64(key ^ 0x5eed);
    const unsigned bits = value == RPS_VALUE_F32 ? 24 : 7;
    const float unit = value == RPS_VALUE_F32 ? 0x1p-24f : 0x1p-7f;

    for (uint32_t j = 0; j < dim; j++) {
        const uint64_t drawn = (mixed ^ j) * 0x9e3779b97f4a7c15u;
        row[j] = (float)(drawn >> (64 - bits)) * unit;
    }
}

/* Exact for multiples of 2^-7 in [0, 1): nothing is rounded or subnormal. */
static uint16_t
to_half(enum rps_value value, float x)
{
    uint32_t bits = 0;

    memcpy(&bits, &x, sizeof(bits));
    if (value == RPS_VALUE_BF16) {
        return (uint16_t)(bits >> 16);
    }
    if (bits == 0) {
        return 0;
    }
    return (uint16_t)(((bits >> 23) - 127 + 15) << 10 | (bits >> 13 & 0x3ffu));
}

void
bench_pattern_stored(
        enum rps_value value, uint64_t key, uint32_t dim, void *out)
{
    char *at = out;

    if (value == RPS_VALUE_F32) {
        bench_pattern(value, key, dim, out);
        return;
    }
    for (uint32_t j = 0; j < dim; j++, at += 2) {
        const uint64_t mixed = rps_mix64(key ^ 0x5eed);
        const uint64_t drawn = (mixed ^ j) * 0x9e3779b97f4a7c15u;
        const uint16_t half = to_half(value, (float)(drawn >> 57) * 0x1p-7f);
        memcpy(at, &half, sizeof(half));
    }
}

uint64_t
bench_line_sum(uint64_t i)
{
    return rps_mix64(~i);
}

rps_status
bench_check_rows(const uint64_t *keys, size_t n, uint32_t dim, const float *got,
        const float *wanted, struct rps_error *error)
{
    if (memcmp(got, wanted, n * dim * sizeof(*got)) == 0) {
        return RPS_OK;
    }
    for (size_t i = 0; i < n * dim; i++) {
        if (memcmp(&got[i], &wanted[i], sizeof(*got)) != 0) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "wrong answer: key %llu column %zu is %.9g, not %.9g",
                    (unsigned long long)keys[i / dim], i % dim, (double)got[i],
                    (double)wanted[i]);
        }
    }
    return RPS_OK;
}

rps_status
bench_check_pattern(enum rps_value value, const uint64_t *keys, size_t n,
        uint32_t dim, const float *got, float *row, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (size_t i = 0; i < n && status == RPS_OK; i++) {
        bench_pattern(value, keys[i], dim, row);
        status = bench_check_rows(&keys[i], 1, dim, got + i * dim, row, error);
    }
    return status;
}

rps_status
bench_check_stored(enum rps_value value, const uint64_t *keys, size_t n,
        uint32_t dim, const void *got, void *row, const char *name,
        struct rps_error *error)
{
    const size_t row_bytes = dim * bench_value_bytes(value);
    const char *at = got;

    for (size_t i = 0; i < n; i++, at += row_bytes) {
        bench_pattern_stored(value, keys[i], dim, row);
        if (memcmp(at, row, row_bytes) != 0) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "wrong answer of %s: the row of key %llu is not what was "
                    "stored",
                    name, (unsigned long long)keys[i]);
        }
    }
    return RPS_OK;
}
