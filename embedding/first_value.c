/* SPDX-License-Identifier: Apache-2.0 */
/* Owns nothing. */
#include "embedding/first_value.h"

#include <assert.h>

void
rps_first_value_init(struct rps_first_value *first, const rps_table_spec *spec)
{
    *first = (struct rps_first_value){
            .stream = rps_draw_stream(spec->seed, spec->name),
            .uniform = rps_uniform_init(
                    spec->initializer_low, spec->initializer_high),
            .mean = (double)spec->initializer_low,
            .deviation = (double)spec->initializer_high,
            .initializer = spec->initializer,
    };
}

static float
column_value(const struct rps_first_value *first, uint64_t draw)
{
    switch (first->initializer) {
    case RPS_INITIALIZER_CONSTANT:
        return (float)first->uniform.low;
    case RPS_INITIALIZER_UNIFORM:
        return rps_uniform_value(&first->uniform, draw);
    case RPS_INITIALIZER_NORMAL:
        return (float)(first->mean + first->deviation * rps_normal_value(draw));
    case RPS_INITIALIZER_TRUNCATED_NORMAL:
        return (float)(first->mean +
                       first->deviation * rps_truncated_normal_value(draw));
    default:
        return 0.0f;
    }
}

void
rps_first_value_fill(
        const struct rps_first_value *first, uint64_t key, float *row, size_t n)
{
    const uint64_t start = rps_draw_row(first->stream, key);

    assert(first->initializer != RPS_INITIALIZER_VARIANCE_SCALING);
    for (size_t j = 0; j < n; j++) {
        row[j] = column_value(first, rps_draw_column(start, j));
    }
}
