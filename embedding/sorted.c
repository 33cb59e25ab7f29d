/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the sorted copies of a call's keys. */
#include "embedding/sorted.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

static void
sort_by_shard(struct rps_sorted *sorted, const struct rps_table *table,
        const uint64_t *keys)
{
    size_t *starts = sorted->starts;

    for (size_t i = 0; i < sorted->count; i++) {
        starts[rps_table_shard_of(
                       table, rps_key_hash(keys[i], table->job_seed)) +
                1]++;
    }
    for (size_t s = 0; s < table->shard_count; s++) {
        starts[s + 1] += starts[s];
    }
    for (size_t i = 0; i < sorted->count; i++) {
        const uint64_t hash = rps_key_hash(keys[i], table->job_seed);
        const size_t at = starts[rps_table_shard_of(table, hash)]++;
        sorted->keys[at] = keys[i];
        sorted->hashes[at] = hash;
        sorted->order[at] = i;
    }
    /* each start has moved to the next shard's: move them back */
    memmove(starts + 1, starts, table->shard_count * sizeof(*starts));
    starts[0] = 0;
}

rps_status
rps_sorted_init(struct rps_sorted *sorted, const struct rps_table *table,
        size_t count, const uint64_t *keys)
{
    const size_t room = count == 0 ? 1 : count;

    *sorted = (struct rps_sorted){
            .count = count,
            .keys = malloc(room * sizeof(*sorted->keys)),
            .hashes = malloc(room * sizeof(*sorted->hashes)),
            .order = malloc(room * sizeof(*sorted->order)),
            .starts = calloc(table->shard_count + 1, sizeof(*sorted->starts)),
    };
    if (sorted->keys == NULL || sorted->hashes == NULL ||
            sorted->order == NULL || sorted->starts == NULL) {
        return RPS_E_NOMEM;
    }
    sort_by_shard(sorted, table, keys);
    return RPS_OK;
}

void
rps_sorted_finish(struct rps_sorted *sorted)
{
    free(sorted->keys);
    free(sorted->hashes);
    free(sorted->order);
    free(sorted->starts);
    *sorted = (struct rps_sorted){.count = 0};
}
