/* SPDX-License-Identifier: Apache-2.0 */
/* Owns nothing: sums of float32 in a fixed order. */
#include "embedding/combine.h"

#include <math.h>
#include <string.h>

/* Add the entries after the first to sum[live]. Returns their uses. */
static uint64_t
add_rest(const struct rps_table *table, const struct rps_grouping *grouping,
        uint32_t next, float *sum, size_t live)
{
    uint64_t uses = 0;

    while (next != RPS_ENTRY_NONE) {
        const struct rps_entry *entry = &grouping->entries[next];
        table->kernels.add(sum, entry->gradient, live);
        uses += entry->uses;
        next = entry->next;
    }
    return uses;
}

static void
clip_norm(const struct rps_kernels *kernels, float limit, float *g, size_t n)
{
    const double norm = sqrt(kernels->square_sum(g, n));

    if (norm > (double)limit) {
        kernels->scale(g, (float)((double)limit / norm), n);
    }
}

const float *
rps_combine(const struct rps_table *table, const struct rps_grouping *grouping,
        size_t group, float scale, float *sum, uint64_t *uses_out)
{
    const struct rps_kernels *kernels = &table->kernels;
    const rps_table_spec *spec = &table->spec;
    const struct rps_entry *first = &grouping->entries[grouping->firsts[group]];
    const size_t live = rps_table_live_floats(table, grouping->keys[group]);
    const bool clips = spec->clip_value > 0.0f || spec->clip_norm > 0.0f;

    *uses_out = first->uses;
    if (first->next == RPS_ENTRY_NONE && scale == 1.0f && !clips) {
        return first->gradient;
    }
    memcpy(sum, first->gradient, live * sizeof(*sum));
    *uses_out += add_rest(table, grouping, first->next, sum, live);
    if (!kernels->finite(sum, live)) {
        return NULL;
    }
    if (scale != 1.0f) {
        kernels->scale(sum, scale, live);
    }
    if (spec->clip_value > 0.0f) {
        kernels->clip(sum, spec->clip_value, live);
    }
    if (spec->clip_norm > 0.0f) {
        clip_norm(kernels, spec->clip_norm, sum, live);
    }
    return sum;
}
