/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the types that rows have on the wire. Each loop stands once, in plain
 * C (CONVERT), and is compiled twice: for any CPU and for one with AVX2, for
 * which the compiler makes vectors of it; f16 alone has an instruction of its
 * own there. Both give the same bits: every step is one IEEE operation or
 * integer arithmetic.
 */
#include "proto/value.h"

#include "base/half.h"

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define WIDE __attribute__((target("avx2,f16c")))
#endif

#define CONVERT static inline __attribute__((always_inline)) void

#define I8_MAX      127
#define I8_HEAD     sizeof(float) /* the scale */
#define INFINITE    0x7f800000    /* bits of an infinity; above: NaN */
#define SIZE_BITS   0x7fffffff    /* all but the sign */
#define ROUND_MAGIC 0x1.8p23f     /* x + this has no bits below 1 */

uint64_t
rps_value_row_bytes(uint16_t value, uint32_t dim)
{
    switch (value) {
    case RPS_VALUE_F32:
        return 4 * (uint64_t)dim;
    case RPS_VALUE_F16:
    case RPS_VALUE_BF16:
        return 2 * (uint64_t)dim;
    case RPS_VALUE_I8:
        return I8_HEAD + (((uint64_t)dim + 3) & ~(uint64_t)3);
    default:
        return 0;
    }
}

const char *
rps_value_str(uint16_t value)
{
    static const char *const names[] = {"f32", "f16", "bf16", "i8"};

    return value <= RPS_VALUE_I8 ? names[value] : "?";
}

/* --- bf16 ---------------------------------------------------------------- */

CONVERT
bf16_encode(uint16_t *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to[i] = rps_float_to_bf16(from[i]);
    }
}

CONVERT
bf16_decode(float *restrict to, const uint16_t *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to[i] = rps_float_of_bf16(from[i]);
    }
}

/* --- f16 ----------------------------------------------------------------- */

static void
f16_encode(uint16_t *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to[i] = rps_float_to_f16(from[i]);
    }
}

static void
f16_decode(float *restrict to, const uint16_t *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to[i] = rps_float_of_f16(from[i]);
    }
}

/* --- i8 ------------------------------------------------------------------ */

/* The largest size's bits: sizes order as their bits do, infinities and NaNs
 * above all of them. */
static inline __attribute__((always_inline)) int32_t
largest(const float *from, uint32_t dim)
{
    int32_t most = 0;

    for (uint32_t i = 0; i < dim; i++) {
        const int32_t size = (int32_t)(rps_float_bits(from[i]) & SIZE_BITS);

        most = size > most ? size : most;
    }
    return most;
}

static inline float
scale_of(int32_t most)
{
    const float scale = rps_float_of_bits((uint32_t)most) / (float)I8_MAX;

    if (most >= INFINITE) {
        return NAN;
    }
    return isfinite(scale * (float)I8_MAX) ? scale : nextafterf(scale, 0.0f);
}

/* To nearest, ties to even: |x| <= 2^22. */
static inline int32_t
round_near(float x)
{
    return (int32_t)(rps_float_bits(x + ROUND_MAGIC) -
                     rps_float_bits(ROUND_MAGIC));
}

/* A scale below the normal floats is coarse: then x / scale may exceed 127. */
CONVERT
i8_quantize(int8_t *restrict to, const float *restrict from, uint32_t dim,
        float scale)
{
    for (uint32_t i = 0; i < dim; i++) {
        int32_t q = round_near(from[i] / scale);

        q = q > I8_MAX ? I8_MAX : q;
        to[i] = (int8_t)(q < -I8_MAX ? -I8_MAX : q);
    }
}

CONVERT
i8_encode(uint8_t *restrict to, const float *restrict from, size_t n,
        uint32_t dim)
{
    const size_t bytes = rps_value_row_bytes(RPS_VALUE_I8, dim);

    for (size_t i = 0; i < n; i++, to += bytes, from += dim) {
        const float scale = scale_of(largest(from, dim));
        int8_t *q = (int8_t *)to + I8_HEAD;

        memcpy(to, &scale, I8_HEAD);
        if (scale > 0.0f) {
            i8_quantize(q, from, dim, scale);
            memset(q + dim, 0, bytes - I8_HEAD - dim);
        } else { /* zeros, or NaN */
            memset(q, 0, bytes - I8_HEAD);
        }
    }
}

CONVERT
i8_decode(float *restrict to, const uint8_t *restrict from, size_t n,
        uint32_t dim)
{
    const size_t bytes = rps_value_row_bytes(RPS_VALUE_I8, dim);

    for (size_t i = 0; i < n; i++, from += bytes, to += dim) {
        const int8_t *q = (const int8_t *)from + I8_HEAD;
        float scale = 0.0f;

        memcpy(&scale, from, I8_HEAD);
        for (uint32_t j = 0; j < dim; j++) {
            to[j] = (float)q[j] * scale;
        }
    }
}

/* --- by the CPU ---------------------------------------------------------- */

static void
encode_any(uint16_t value, uint32_t dim, size_t n, const float *rows, void *to)
{
    if (value == RPS_VALUE_BF16) {
        bf16_encode(to, rows, n * dim);
    } else if (value == RPS_VALUE_F16) {
        f16_encode(to, rows, n * dim);
    } else {
        i8_encode(to, rows, n, dim);
    }
}

static void
decode_any(
        uint16_t value, uint32_t dim, size_t n, const void *from, float *rows)
{
    if (value == RPS_VALUE_BF16) {
        bf16_decode(rows, from, n * dim);
    } else if (value == RPS_VALUE_F16) {
        f16_decode(rows, from, n * dim);
    } else {
        i8_decode(rows, from, n, dim);
    }
}

#ifdef WIDE

#define LANES 8u

WIDE static void
f16_encode_wide(uint16_t *restrict to, const float *restrict from, size_t n)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        const __m128i halves = _mm256_cvtps_ph(
                _mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);

        _mm_storeu_si128((__m128i *)(void *)(to + i), halves);
    }
    f16_encode(to + i, from + i, n - i);
}

WIDE static void
f16_decode_wide(float *restrict to, const uint16_t *restrict from, size_t n)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        const __m128i halves =
                _mm_loadu_si128((const __m128i *)(const void *)(from + i));

        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
    }
    f16_decode(to + i, from + i, n - i);
}

WIDE static void
encode_wide(uint16_t value, uint32_t dim, size_t n, const float *rows, void *to)
{
    if (value == RPS_VALUE_BF16) {
        bf16_encode(to, rows, n * dim);
    } else if (value == RPS_VALUE_F16) {
        f16_encode_wide(to, rows, n * dim);
    } else {
        i8_encode(to, rows, n, dim);
    }
}

WIDE static void
decode_wide(
        uint16_t value, uint32_t dim, size_t n, const void *from, float *rows)
{
    if (value == RPS_VALUE_BF16) {
        bf16_decode(rows, from, n * dim);
    } else if (value == RPS_VALUE_F16) {
        f16_decode_wide(rows, from, n * dim);
    } else {
        i8_decode(rows, from, n, dim);
    }
}

/* F16C has a bit of its own, which a hypervisor may hide. */
static bool
cpu_is_wide(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    const char *cap = getenv("RPS_ISA"); /* as for embedding/kernels */

    return (cap == NULL || strcmp(cap, "scalar") != 0) &&
           __builtin_cpu_supports("avx2") &&
           __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

static bool
is_wide(void)
{
    static _Atomic int known; /* relaxed: each thread finds the same */
    int seen = atomic_load_explicit(&known, memory_order_relaxed);

    if (seen == 0) {
        seen = cpu_is_wide() ? 2 : 1;
        atomic_store_explicit(&known, seen, memory_order_relaxed);
    }
    return seen == 2;
}

#else

#define encode_wide encode_any
#define decode_wide decode_any

static bool
is_wide(void)
{
    return false;
}

#endif

void
rps_value_encode(
        uint16_t value, uint32_t dim, size_t n, const float *rows, void *to)
{
    if (value == RPS_VALUE_F32) {
        memcpy(to, rows, n * dim * sizeof(float));
    } else if (is_wide()) {
        encode_wide(value, dim, n, rows, to);
    } else {
        encode_any(value, dim, n, rows, to);
    }
}

void
rps_value_decode(
        uint16_t value, uint32_t dim, size_t n, const void *from, float *rows)
{
    if (value == RPS_VALUE_F32) {
        memcpy(rows, from, n * dim * sizeof(float));
    } else if (is_wide()) {
        decode_wide(value, dim, n, from, rows);
    } else {
        decode_any(value, dim, n, from, rows);
    }
}

rps_status
rps_value_check(uint16_t value, uint32_t dim, uint64_t n, const void *from,
        struct rps_error *error)
{
    const size_t bytes = (size_t)rps_value_row_bytes(value, dim);
    const uint8_t *row = from;

    if (value != RPS_VALUE_I8) {
        return RPS_OK;
    }
    for (uint64_t i = 0; i < n; i++, row += bytes) {
        float scale = 0.0f;

        memcpy(&scale, row, I8_HEAD);
        if (isinf(scale) || scale < 0.0f) {
            return rps_fail(error, RPS_E_INVAL,
                    "the scale of i8 row %llu is %g: it is 0 or more and "
                    "finite, or NaN for a row that is not finite",
                    (unsigned long long)i, (double)scale);
        }
    }
    return RPS_OK;
}
