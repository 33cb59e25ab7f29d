/* SPDX-License-Identifier: Apache-2.0 */
/* What is done one element at a time, in every set. */
#ifndef RPS_EMBEDDING_KERNELS_ELEMENT_H
#define RPS_EMBEDDING_KERNELS_ELEMENT_H

#include "embedding/kernels/kernels.h"

#include <math.h>
#include <string.h>

#define RPS_SQUARE_SUMS 16u

#define BF16_HALF  0x7fffu /* just below half of a bfloat16's last bit */
#define BF16_QUIET 0x40    /* the bit that makes its NaN a quiet one */

static inline uint32_t
element_bits(float x)
{
    uint32_t bits = 0;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float
element_of_bits(uint32_t bits)
{
    float x = 0.0f;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline float
element_of_bf16(uint16_t h)
{
    return element_of_bits((uint32_t)h << 16);
}

/* To nearest, ties to even: a carry into the exponent is as it should be. */
static inline uint16_t
element_to_bf16(float x)
{
    const uint32_t bits = element_bits(x);

    if (isnan(x)) {
        return (uint16_t)(bits >> 16 | BF16_QUIET);
    }
    return (uint16_t)((bits + BF16_HALF + (bits >> 16 & 1)) >> 16);
}

/*
 * sign | exponent, bias 15 | 10 bits. A subnormal half is a whole number of
 * 2^-24, which a float holds exactly.
 */
static inline float
element_of_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t rest = h & 0x7fffu;

    if (rest >= 0x7c00u) {
        /* infinity, or a NaN, quiet as the CPU's conversion makes it */
        return element_of_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13 |
                               (rest > 0x7c00u ? 0x400000u : 0));
    }
    if (rest < 0x400u) {
        return element_of_bits(sign | element_bits((float)rest * 0x1.0p-24f));
    }
    return element_of_bits(sign | ((rest << 13) + (112u << 23)));
}

/* bits of |x| and the half's own, rounded by `up` of what is cut off. */
static inline uint16_t
element_to_f16(float x)
{
    const uint32_t bits = element_bits(x);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t rest = bits & 0x7fffffffu;

    if (rest > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
    }
    if (rest >= 0x477ff000u) { /* 65520, halfway between 65504 and 2^16 */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (rest < 0x38800000u) { /* 2^-14: adding 1/2 rounds to 2^-24 */
        const float shifted = element_of_bits(rest) + 0.5f;
        return (uint16_t)(sign | (element_bits(shifted) - 0x3f000000u));
    }
    return (uint16_t)(sign |
                      ((rest - (112u << 23) + 0xfffu + (rest >> 13 & 1)) >>
                              13));
}

/*
 * Stochastic: the draw's top bits, as many as are cut off, are added below
 * the last bit that stays, so that x is right in the mean.
 */
static inline uint16_t
element_to_bf16_drawn(float x, uint32_t draw)
{
    if (!isfinite(x)) {
        return element_to_bf16(x);
    }
    return (uint16_t)((element_bits(x) + (draw >> 16)) >> 16);
}

static inline uint16_t
element_to_f16_drawn(float x, uint32_t draw)
{
    const uint32_t bits = element_bits(x);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t rest = bits & 0x7fffffffu;
    const uint32_t exponent = rest >> 23;
    uint64_t mantissa = (rest & 0x7fffffu) | 0x800000u;
    uint32_t cut = 0;

    if (exponent >= 143) { /* 2^16 and beyond, infinity, NaN */
        return rest > 0x7f800000u ? element_to_f16(x)
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
