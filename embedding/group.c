/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the arrays of a grouping; knows nothing of sums and steps. */
#include "embedding/group.h"

#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define HASHED 64u /* keys hashed at once */

/* Scratch of one build, shared by its passes. */
struct build {
    const struct rps_table *table;
    struct rps_grouping *grouping;
    uint32_t *order;  /* [entry_count], entries by shard, else as given */
    size_t *starts;   /* [shard_count + 1], into order */
    uint32_t *places; /* [place_mask + 1], group + 1 by hash; 0 = free */
    size_t place_mask;
};

static void
refuse(struct rps_grouping *grouping, uint64_t key)
{
    if (grouping->nonfinite == 0) {
        grouping->nonfinite_key = key;
    }
    grouping->nonfinite++;
}

/* Entries in the order of the law; a gradient that is not finite is left
 * out here, so that nothing later has to think of it. */
static void
collect(struct build *build, const struct rps_contribution *contribution)
{
    const struct rps_table *table = build->table;
    struct rps_grouping *grouping = build->grouping;
    uint64_t hashes[HASHED];

    for (size_t i = 0; i < contribution->count; i++) {
        const uint64_t key = contribution->keys[i];
        const float *gradient = contribution->gradients + i * table->spec.dim;
        const size_t live = table->spec.dense_elements == 0
                                    ? table->spec.dim
                                    : rps_table_live_floats(table, key);
        if (i % HASHED == 0) {
            const size_t left = contribution->count - i;
            rps_key_hashes(left < HASHED ? left : HASHED,
                    contribution->keys + i, table->job_seed, hashes);
        }
        assert(live > 0); /* rps_table_check_keys() was asked */
        if (!table->kernels.finite(gradient, live)) {
            refuse(grouping, key);
            continue;
        }
        grouping->entries[grouping->entry_count] = (struct rps_entry){
                .key = key,
                .hash = hashes[i % HASHED],
                .gradient = gradient,
                .uses = contribution->counts == NULL ? 1
                                                     : contribution->counts[i],
                .next = RPS_ENTRY_NONE,
        };
        build->starts[rps_table_shard_of(table, hashes[i % HASHED]) + 1]++;
        grouping->entry_count++;
    }
}

static void
sort_by_shard(struct build *build)
{
    const struct rps_table *table = build->table;
    const struct rps_grouping *grouping = build->grouping;
    size_t *starts = build->starts;

    for (size_t s = 0; s < table->shard_count; s++) {
        starts[s + 1] += starts[s];
    }
    for (size_t e = 0; e < grouping->entry_count; e++) {
        const size_t shard =
                rps_table_shard_of(table, grouping->entries[e].hash);
        build->order[starts[shard]++] = (uint32_t)e;
    }
    /* each start has moved to the next shard's: move them back */
    memmove(starts + 1, starts, table->shard_count * sizeof(*starts));
    starts[0] = 0;
}

/* The place of the key's group, or the free one where it belongs. */
static uint32_t *
place_of(const struct build *build, const struct rps_entry *entry)
{
    const struct rps_grouping *grouping = build->grouping;
    size_t at = entry->hash & build->place_mask;

    while (build->places[at] != 0 &&
            grouping->keys[build->places[at] - 1] != entry->key) {
        at = (at + 1) & build->place_mask;
    }
    return &build->places[at];
}

static void
join(struct build *build, uint32_t e)
{
    struct rps_grouping *grouping = build->grouping;
    const struct rps_entry *entry = &grouping->entries[e];
    uint32_t *place = place_of(build, entry);

    if (*place == 0) {
        const size_t group = grouping->group_count;
        grouping->keys[group] = entry->key;
        grouping->hashes[group] = entry->hash;
        grouping->firsts[group] = e;
        grouping->lasts[group] = e;
        grouping->group_count++;
        *place = (uint32_t)grouping->group_count;
    } else {
        const size_t group = *place - 1;
        grouping->entries[grouping->lasts[group]].next = e;
        grouping->lasts[group] = e;
    }
}

static rps_status
allocate(struct build *build, size_t total)
{
    struct rps_grouping *grouping = build->grouping;
    const size_t shards = build->table->shard_count;
    const size_t room = total == 0 ? 1 : total;
    size_t places = 16;

    while (places < room * 2) {
        places *= 2;
    }
    build->place_mask = places - 1;
    grouping->entries = malloc(room * sizeof(*grouping->entries));
    grouping->keys = malloc(room * sizeof(*grouping->keys));
    grouping->hashes = malloc(room * sizeof(*grouping->hashes));
    grouping->firsts = malloc(room * sizeof(*grouping->firsts));
    grouping->lasts = malloc(room * sizeof(*grouping->lasts));
    grouping->starts = calloc(shards + 1, sizeof(*grouping->starts));
    build->order = malloc(room * sizeof(*build->order));
    build->starts = calloc(shards + 1, sizeof(*build->starts));
    build->places = calloc(places, sizeof(*build->places));
    return grouping->entries == NULL || grouping->keys == NULL ||
                           grouping->hashes == NULL ||
                           grouping->firsts == NULL ||
                           grouping->lasts == NULL ||
                           grouping->starts == NULL || build->order == NULL ||
                           build->starts == NULL || build->places == NULL
                   ? RPS_E_NOMEM
                   : RPS_OK;
}

static void
group_shards(struct build *build)
{
    struct rps_grouping *grouping = build->grouping;

    for (size_t s = 0; s < build->table->shard_count; s++) {
        grouping->starts[s] = grouping->group_count;
        for (size_t i = build->starts[s]; i < build->starts[s + 1]; i++) {
            join(build, build->order[i]);
        }
    }
    grouping->starts[build->table->shard_count] = grouping->group_count;
}

rps_status
rps_grouping_init(struct rps_grouping *grouping, const struct rps_table *table,
        const struct rps_contribution *contributions, size_t n)
{
    struct build build = {.table = table, .grouping = grouping};
    rps_status status = RPS_OK;
    size_t total = 0;

    *grouping = (struct rps_grouping){.entries = NULL};
    for (size_t i = 0; i < n; i++) {
        if (contributions[i].count >= RPS_ENTRY_NONE - total) {
            return RPS_E_LIMIT;
        }
        total += contributions[i].count;
    }
    status = allocate(&build, total);
    if (status == RPS_OK) {
        for (size_t i = 0; i < n; i++) {
            collect(&build, &contributions[i]);
        }
        sort_by_shard(&build);
        group_shards(&build);
    }
    free(build.order);
    free(build.starts);
    free(build.places);
    return status;
}

void
rps_grouping_finish(struct rps_grouping *grouping)
{
    free(grouping->entries);
    free(grouping->keys);
    free(grouping->hashes);
    free(grouping->firsts);
    free(grouping->lasts);
    free(grouping->starts);
    *grouping = (struct rps_grouping){.entries = NULL};
}
