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
            .initializer = spec->initializer,
    };
}

void
rps_first_value_fill(
        const struct rps_first_value *first, uint64_t key, float *row, size_t n)
{
    const uint64_t start = rps_draw_row(first->stream, key);

    assert(first->initializer <= RPS_INITIALIZER_UNIFORM);
    for (size_t j = 0; j < n; j++) {
        switch (first->initializer) {
        case RPS_INITIALIZER_CONSTANT:
            row[j] = (float)first->uniform.low;
            break;
        case RPS_INITIALIZER_UNIFORM:
            row[j] = rps_uniform_value(
                    &first->uniform, rps_draw_column(start, j));
            break;
        default:
            row[j] = 0.0f;
            break;
        }
    }
}
