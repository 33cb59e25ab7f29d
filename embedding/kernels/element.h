/* SPDX-License-Identifier: Apache-2.0 */
/* What is done one element at a time, in every set. */
#ifndef RPS_EMBEDDING_KERNELS_ELEMENT_H
#define RPS_EMBEDDING_KERNELS_ELEMENT_H

#include "base/half.h"
#include "embedding/kernels/kernels.h"

#include <math.h>

#define RPS_SQUARE_SUMS 16u

/*
 * Stochastic: the draw's top bits, as many as are cut off, are added below
 * the last bit that stays, so that x is right in the mean.
 */
static inline uint16_t
element_to_bf16_drawn(float x, uint32_t draw)
{
    if (!isfinite(x)) {
        return rps_float_to_bf16(x);
    }
    return (uint16_t)((rps_float_bits(x) + (draw >> 16)) >> 16);
}

static inline uint16_t
element_to_f16_drawn(float x, uint32_t draw)
{
    const uint32_t bits = rps_float_bits(x);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t rest = bits & 0x7fffffffu;
    const uint32_t exponent = rest >> 23;
    uint64_t mantissa = (rest & 0x7fffffu) | 0x800000u;
    uint32_t cut = 0;

    if (exponent >= 143) { /* 2^16 and beyond, infinity, NaN */
        return rest > 0x7f800000u ? rps_float_to_f16(x)
                                  : (uint16_t)(sign | 0x7c00u);
    }
    if (exponent >= 113) {
        const uint32_t up = (rest - (112u << 23) + (draw >> 19)) >> 13;
        return (uint16_t)(sign | (up < 0x7c00u ? up : 0x7c00u));
    }
    /* in units of 2^-24 mantissa / 2^cut, of which 32 bits are drawn for */
    cut = exponent >= 70 ? 126 - exponent : 56;
    if (cut > 32) {
        mantissa = exponent >= 70 ? mantissa >> (cut - 32) : 0;
        cut = 32;
    }
    return (uint16_t)(sign | (mantissa + (draw >> (32 - cut))) >> cut);
}

/* Add what is left of g from `start` on, then fold the 16 sums into one. */
static inline double
element_square_sum(
        double sums[RPS_SQUARE_SUMS], const float *g, size_t start, size_t n)
{
    for (size_t j = start; j < n; j++) {
        sums[j % RPS_SQUARE_SUMS] += (double)g[j] * (double)g[j];
    }
    for (size_t half = RPS_SQUARE_SUMS / 2; half > 0; half /= 2) {
        for (size_t i = 0; i < half; i++) {
            sums[i] += sums[i + half];
        }
    }
    return sums[0];
}

#endif /* RPS_EMBEDDING_KERNELS_ELEMENT_H */
