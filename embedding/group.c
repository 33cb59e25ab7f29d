/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the arrays of a grouping; knows nothing of sums and steps.
 *
 *   collect   entries as they come, their keys and hashes    (sequential)
 *   sort      keys, hashes and numbers of entries, by shard  (a counting sort)
 *   join      equal keys of a shard become one group, in place
 */
#include "embedding/group.h"

#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 64u /* keys hashed, and gradients looked at, at once */

/* Scratch of one build, shared by its passes. */
struct build {
    const struct rps_table *table;
    struct rps_grouping *grouping;
    uint64_t *keys;   /* [entry_count], as the entries */
    uint64_t *hashes; /* [entry_count] */
    size_t *starts;   /* [shard_count + 1], of each shard's sorted entries */
};

static void
refuse(struct rps_grouping *grouping, uint64_t key)
{
    if (grouping->nonfinite == 0) {
        grouping->nonfinite_key = key;
    }
    grouping->nonfinite++;
}

static inline void
add_entry(struct build *build, const struct rps_contribution *contribution,
        size_t i, uint64_t hash)
{
    struct rps_grouping *grouping = build->grouping;
    const size_t e = grouping->entry_count;

    grouping->entries[e] = (struct rps_entry){
            .gradient = contribution->gradients + i * build->table->spec.dim,
            .uses = contribution->counts == NULL ? 1 : contribution->counts[i],
            .next = RPS_ENTRY_NONE,
    };
    build->keys[e] = contribution->keys[i];
    build->hashes[e] = hash;
    build->starts[rps_table_shard_of(build->table, hash) + 1]++;
    grouping->entry_count++;
}

static bool
is_finite(const struct rps_table *table,
        const struct rps_contribution *contribution, size_t i)
{
    const size_t live = rps_table_live_floats(table, contribution->keys[i]);

    assert(live > 0); /* rps_table_check_keys() was asked */
    return table->kernels.finite(
            contribution->gradients + i * table->spec.dim, live);
}

/* Gradients i .. i + n - 1. That all are finite is the rule, and seen at
 * once; but what lies behind the live floats of a row does not count. */
static void
collect_block(struct build *build, const struct rps_contribution *contribution,
        size_t i, size_t n)
{
    const struct rps_table *table = build->table;
    const size_t dim = table->spec.dim;
    const bool finite =
            table->kernels.finite(contribution->gradients + i * dim, n * dim);
    uint64_t hashes[BLOCK];

    table->kernels.hash(contribution->keys + i, n, table->job_seed, hashes);
    for (size_t k = 0; k < n; k++) {
        if (finite || is_finite(table, contribution, i + k)) {
            add_entry(build, contribution, i + k, hashes[k]);
        } else {
            refuse(build->grouping, contribution->keys[i + k]);
        }
    }
}

/* Entries in the order of the law; a gradient that is not finite is left
 * out here, so that nothing later has to think of it. */
static void
collect(struct build *build, const struct rps_contribution *contribution)
{
    for (size_t i = 0; i < contribution->count; i += BLOCK) {
        const size_t left = contribution->count - i;
        collect_block(build, contribution, i, left < BLOCK ? left : BLOCK);
    }
}

/* Into the groups' arrays: as if all keys were distinct. */
static void
sort_by_shard(struct build *build)
{
    const struct rps_table *table = build->table;
    struct rps_grouping *grouping = build->grouping;
    size_t *starts = build->starts;

    for (size_t s = 0; s < table->shard_count; s++) {
        starts[s + 1] += starts[s];
    }
    for (size_t e = 0; e < grouping->entry_count; e++) {
        const uint64_t hash = build->hashes[e];
        const size_t at = starts[rps_table_shard_of(table, hash)]++;
        grouping->keys[at] = build->keys[e];
        grouping->hashes[at] = hash;
        grouping->firsts[at] = (uint32_t)e;
    }
    /* each start has moved to the next shard's: move them back */
    memmove(starts + 1, starts, table->shard_count * sizeof(*starts));
    starts[0] = 0;
}

/* Hash places of one shard's groups: group - first group + 1; 0 is free. */
struct places {
    uint32_t *at;
    size_t mask;
    size_t first;
};

/* Sorted entry i, whose key begins a group or has one. */
static inline void
join(struct rps_grouping *grouping, const struct places *places, size_t i)
{
    const uint64_t key = grouping->keys[i];
    const uint64_t hash = grouping->hashes[i];
    const uint32_t e = grouping->firsts[i];
    const size_t fresh = grouping->group_count; /* <= i */
    size_t at = hash & places->mask;
    size_t group = 0;

    while (places->at[at] != 0) {
        group = places->first + places->at[at] - 1;
        if (grouping->keys[group] == key) {
            grouping->entries[grouping->lasts[group]].next = e;
            grouping->lasts[group] = e;
            return;
        }
        at = (at + 1) & places->mask;
    }
    grouping->keys[fresh] = key;
    grouping->hashes[fresh] = hash;
    grouping->firsts[fresh] = e;
    grouping->lasts[fresh] = e;
    grouping->group_count++;
    places->at[at] = (uint32_t)(grouping->group_count - places->first);
}

/* Places for so many keys: at most half of them are taken. */
static size_t
places_for(size_t keys)
{
    size_t places = 2;

    while (places < keys * 2) {
        places *= 2;
    }
    return places;
}

static rps_status
group_shards(struct build *build)
{
    struct rps_grouping *grouping = build->grouping;
    const size_t shards = build->table->shard_count;
    struct places places = {.at = NULL};
    size_t most = 0;

    for (size_t s = 0; s < shards; s++) {
        const size_t keys = build->starts[s + 1] - build->starts[s];
        most = keys > most ? keys : most;
    }
    places.at = malloc(places_for(most) * sizeof(*places.at));
    if (places.at == NULL) {
        return RPS_E_NOMEM;
    }
    for (size_t s = 0; s < shards; s++) {
        const size_t keys = build->starts[s + 1] - build->starts[s];
        places.mask = places_for(keys) - 1;
        places.first = grouping->group_count;
        memset(places.at, 0, (places.mask + 1) * sizeof(*places.at));
        grouping->starts[s] = grouping->group_count;
        for (size_t i = build->starts[s]; i < build->starts[s + 1]; i++) {
            join(grouping, &places, i);
        }
    }
    grouping->starts[shards] = grouping->group_count;
    free(places.at);
    return RPS_OK;
}

/* Arrays of `total` elements, the widest first, out of one allocation. */
static rps_status
allocate(struct build *build, size_t total)
{
    struct rps_grouping *grouping = build->grouping;
    const size_t shards = build->table->shard_count;
    const size_t bytes =
            sizeof(*grouping->entries) + 2 * sizeof(*grouping->keys) +
            2 * sizeof(*build->keys) + 2 * sizeof(*grouping->firsts);

    grouping->entries = malloc(total == 0 ? 1 : total * bytes);
    grouping->starts = calloc(shards + 1, sizeof(*grouping->starts));
    build->starts = calloc(shards + 1, sizeof(*build->starts));
    if (grouping->entries == NULL || grouping->starts == NULL ||
            build->starts == NULL) {
        return RPS_E_NOMEM;
    }
    grouping->keys = (uint64_t *)(void *)(grouping->entries + total);
    grouping->hashes = grouping->keys + total;
    build->keys = grouping->hashes + total;
    build->hashes = build->keys + total;
    grouping->firsts = (uint32_t *)(void *)(build->hashes + total);
    grouping->lasts = grouping->firsts + total;
    return RPS_OK;
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
        status = group_shards(&build);
    }
    free(build.starts);
    return status;
}

void
rps_grouping_finish(struct rps_grouping *grouping)
{
    free(grouping->entries);
    free(grouping->starts);
    *grouping = (struct rps_grouping){.entries = NULL};
}
