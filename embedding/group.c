/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the arrays of a grouping; knows nothing of sums and steps.
 *
 *   collect   entries as they come, their keys and hashes    (sequential)
 *   sort      keys, hashes and numbers of entries, by shard  (a counting sort)
 *   join      equal keys of a shard become one group, in place
 */
#include "embedding/group.h"

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

/* Entry e, of gradient i. */
static inline void
set_entry(const struct build *build, size_t e,
        const struct rps_contribution *contribution, size_t i)
{
    build->grouping->entries[e] = (struct rps_entry){
            .gradient = contribution->gradients + i * build->table->spec.dim,
            .uses = contribution->counts == NULL ? 1 : contribution->counts[i],
            .next = RPS_ENTRY_NONE,
    };
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

/* Gradients i .. i + n - 1, of which some may not be finite; the hashes of
 * all stand where the first one's goes. Returns how many entries they are. */
static size_t
collect_finite(struct build *build, const struct rps_contribution *contribution,
        size_t i, size_t n)
{
    size_t e = build->grouping->entry_count;
    const uint64_t *hashes = build->hashes + e;

    for (size_t k = 0; k < n; k++) {
        const uint64_t key = contribution->keys[i + k];
        if (is_finite(build->table, contribution, i + k)) {
            set_entry(build, e, contribution, i + k);
            build->keys[e] = key;
            build->hashes[e] = hashes[k]; /* e has not overtaken k */
            e++;
        } else {
            refuse(build->grouping, key);
        }
    }
    return e - build->grouping->entry_count;
}

/* The same of gradients that are. */
static size_t
collect_all(struct build *build, const struct rps_contribution *contribution,
        size_t i, size_t n)
{
    const size_t e = build->grouping->entry_count;

    memcpy(build->keys + e, contribution->keys + i, n * sizeof(*build->keys));
    for (size_t k = 0; k < n; k++) {
        set_entry(build, e + k, contribution, i + k);
    }
    return n;
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

    table->kernels.hash(contribution->keys + i, n, table->job_seed,
            build->hashes + build->grouping->entry_count);
    build->grouping->entry_count +=
            (finite ? collect_all : collect_finite)(build, contribution, i, n);
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

/* starts[s + 1] = end of shard s. */
static void
count_shards(const struct rps_table *restrict table,
        const uint64_t *restrict hashes, size_t n, size_t *restrict starts)
{
    for (size_t e = 0; e < n; e++) {
        starts[rps_table_shard_of(table, hashes[e]) + 1]++;
    }
    for (size_t s = 0; s < table->shard_count; s++) {
        starts[s + 1] += starts[s];
    }
}

/* Into the groups' arrays: as if all keys were distinct. */
static void
sort_by_shard(const struct rps_table *restrict table,
        const struct build *restrict build,
        struct rps_grouping *restrict grouping)
{
    const size_t count = grouping->entry_count;
    const uint64_t *restrict hashes = build->hashes;
    size_t *restrict starts = build->starts;

    count_shards(table, hashes, count, starts);
    for (size_t e = 0; e < count; e++) {
        const size_t at = starts[rps_table_shard_of(table, hashes[e])]++;
        grouping->keys[at] = build->keys[e];
        grouping->hashes[at] = hashes[e];
        grouping->firsts[at] = (uint32_t)e;
    }
    /* each start has moved to the next shard's: move them back */
    memmove(starts + 1, starts, table->shard_count * sizeof(*starts));
    starts[0] = 0;
}

/* Hash places of one shard's groups: group + 1; 0 is free. */
struct places {
    uint32_t *at;
    size_t mask;
};

/* Entry e is one more of a group's. */
static void
append(struct rps_grouping *grouping, size_t group, uint32_t e)
{
    struct rps_entry *first = &grouping->entries[grouping->firsts[group]];

    if (first->next == RPS_ENTRY_NONE) {
        first->next = e;
    } else {
        grouping->entries[grouping->lasts[group]].next = e;
    }
    grouping->lasts[group] = e;
}

/* Sorted entry i, whose key begins the group `fresh` <= i or has one. True:
 * it begins it. */
static inline bool
join(struct rps_grouping *grouping, const struct places *places, size_t fresh,
        size_t i)
{
    const uint64_t key = grouping->keys[i];
    const uint64_t hash = grouping->hashes[i];
    size_t at = hash & places->mask;

    while (places->at[at] != 0) {
        const size_t group = places->at[at] - 1;
        if (grouping->keys[group] == key) {
            append(grouping, group, grouping->firsts[i]);
            return false;
        }
        at = (at + 1) & places->mask;
    }
    if (fresh != i) {
        grouping->keys[fresh] = key;
        grouping->hashes[fresh] = hash;
        grouping->firsts[fresh] = grouping->firsts[i];
    }
    places->at[at] = (uint32_t)fresh + 1;
    return true;
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

/* Of so many sorted keys the groups from grouping->group_count on. */
static void
join_shard(struct rps_grouping *grouping, struct places *places, size_t start,
        size_t keys)
{
    size_t fresh = grouping->group_count;

    places->mask = places_for(keys) - 1;
    memset(places->at, 0, (places->mask + 1) * sizeof(*places->at));
    for (size_t i = start; i < start + keys; i++) {
        fresh += join(grouping, places, fresh, i);
    }
    grouping->group_count = fresh;
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
        grouping->starts[s] = grouping->group_count;
        if (keys > 0) {
            join_shard(grouping, &places, build->starts[s], keys);
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
        sort_by_shard(table, &build, grouping);
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
