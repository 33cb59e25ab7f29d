/* SPDX-License-Identifier: Apache-2.0 */
/* No libm whose bits could differ: nextafterf is exact. */
#include "base/draw.h"

#include "base/real.h"

#include <math.h>

uint64_t
rps_draw_stream(uint64_t seed, const char *name)
{
    return rps_mix64(rps_mix64(seed) ^ rps_table_id(name));
}

struct rps_uniform
rps_uniform_init(float low, float high)
{
    return (struct rps_uniform){
            .low = (double)low,
            .width = (double)high - (double)low,
            .high = high,
            .below = low < high ? nextafterf(high, low) : low,
    };
}

float
rps_uniform_value(const struct rps_uniform *uniform, uint64_t draw)
{
    /* 24 bits: a number in [0, 1) that a float holds exactly */
    const double u = (double)(draw >> 40) * 0x1.0p-24;
    const float value = (float)(uniform->low + uniform->width * u);

    /* rounding to float may reach the end that is not part of the range */
    return value < uniform->high ? value : uniform->below;
}

/* 52 bits and a half: between 2^-53 and 1 - 2^-53, exact in a double. */
static double
odds(uint64_t draw)
{
    return ((double)(draw >> 12) + 0.5) * 0x1.0p-52;
}

double
rps_normal_value(uint64_t draw)
{
    return rps_normal_quantile(odds(draw));
}

/* One draw, no rejection: the odds themselves are from [P(-2), P(2)]. */
double
rps_truncated_normal_value(uint64_t draw)
{
    const double below = 0.022750131948179207; /* P(z < -2) */
    const double within = 0.95449973610364159; /* P(-2 < z < 2) */
    const double z = rps_normal_quantile(below + within * odds(draw));

    return z < -2.0 ? -2.0 : (z > 2.0 ? 2.0 : z);
}
