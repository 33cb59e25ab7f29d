/* SPDX-License-Identifier: Apache-2.0 */
/* Owns nothing. No libm whose bits could differ: nextafterf is exact. */
#include "embedding/first_value.h"

#include "base/hash.h"

#include <assert.h>
#include <math.h>

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15) /* splitmix64's increment */

uint64_t
rps_draw_stream(uint64_t seed, const char *name)
{
    return rps_mix64(rps_mix64(seed) ^ rps_table_id(name));
}

void
rps_first_value_init(struct rps_first_value *first, const rps_table_spec *spec)
{
    const float low = spec->initializer_low;
    const float high = spec->initializer_high;

    *first = (struct rps_first_value){
            .stream = rps_draw_stream(spec->seed, spec->name),
            .low = (double)low,
            .width = (double)high - (double)low,
            .high = high,
            .below = low < high ? nextafterf(high, low) : low,
            .initializer = spec->initializer,
    };
}

/* 24 bits of a draw as a number in [0, 1) that a float holds exactly. */
static float
uniform(const struct rps_first_value *first, uint64_t draw)
{
    const double u = (double)(draw >> 40) * 0x1.0p-24;
    const float value = (float)(first->low + first->width * u);

    /* rounding to float may reach the end that is not part of the range */
    return value < first->high ? value : first->below;
}

void
rps_first_value_fill(
        const struct rps_first_value *first, uint64_t key, float *row, size_t n)
{
    const uint64_t start = rps_mix64(first->stream ^ rps_mix64(key));

    assert(first->initializer <= RPS_INITIALIZER_UNIFORM);
    for (size_t j = 0; j < n; j++) {
        switch (first->initializer) {
        case RPS_INITIALIZER_CONSTANT:
            row[j] = (float)first->low;
            break;
        case RPS_INITIALIZER_UNIFORM:
            row[j] = uniform(first, rps_mix64(start + j * GOLDEN));
            break;
        default:
            row[j] = 0.0f;
            break;
        }
    }
}
