/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One float to and from 16 bits: what both the rows in memory and those on
 * the wire are rounded by. To nearest, ties to even.
 */
#ifndef RPS_BASE_HALF_H
#define RPS_BASE_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define RPS_BF16_HALF  0x7fffu /* just below half of a bfloat16's last bit */
#define RPS_BF16_QUIET 0x40    /* the bit that makes its NaN a quiet one */

static inline uint32_t
rps_float_bits(float x)
{
    uint32_t bits = 0;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float
rps_float_of_bits(uint32_t bits)
{
    float x = 0.0f;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline float
rps_float_of_bf16(uint16_t h)
{
    return rps_float_of_bits((uint32_t)h << 16);
}

/* To nearest, ties to even: a carry into the exponent is as it should be. */
static inline uint16_t
rps_float_to_bf16(float x)
{
    const uint32_t bits = rps_float_bits(x);

    if (isnan(x)) {
        return (uint16_t)(bits >> 16 | RPS_BF16_QUIET);
    }
    return (uint16_t)((bits + RPS_BF16_HALF + (bits >> 16 & 1)) >> 16);
}

/*
 * sign | exponent, bias 15 | 10 bits. A subnormal half is a whole number of
 * 2^-24, which a float holds exactly.
 */
static inline float
rps_float_of_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t rest = h & 0x7fffu;

    if (rest >= 0x7c00u) {
        /* infinity, or a NaN, quiet as the CPU's conversion makes it */
        return rps_float_of_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13 |
                                 (rest > 0x7c00u ? 0x400000u : 0));
    }
    if (rest < 0x400u) {
        return rps_float_of_bits(
                sign | rps_float_bits((float)rest * 0x1.0p-24f));
    }
    return rps_float_of_bits(sign | ((rest << 13) + (112u << 23)));
}

/* bits of |x| and the half's own, rounded by `up` of what is cut off. */
static inline uint16_t
rps_float_to_f16(float x)
{
    const uint32_t bits = rps_float_bits(x);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t rest = bits & 0x7fffffffu;

    if (rest > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
    }
    if (rest >= 0x477ff000u) { /* 65520, halfway between 65504 and 2^16 */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (rest < 0x38800000u) { /* 2^-14: adding 1/2 rounds to 2^-24 */
        const float shifted = rps_float_of_bits(rest) + 0.5f;
        return (uint16_t)(sign | (rps_float_bits(shifted) - 0x3f000000u));
    }
    return (uint16_t)(sign |
                      ((rest - (112u << 23) + 0xfffu + (rest >> 13 & 1)) >>
                              13));
}

#endif /* RPS_BASE_HALF_H */
