/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One update of a table. Three passes, so that running out of memory finds
 * nothing changed and no lock is held for long:
 *
 *   1  group the contributions by shard and distinct key   (no lock)
 *   2  each shard: count absent keys, reserve their rows    (its lock)
 *   3  each shard, a slice of keys at a time: combine       (no lock)
 *      then create, step and stamp their rows               (its lock)
 *
 * Updates may run side by side: what one reserves no other takes, and a key
 * that another created meanwhile is found in pass 3.
 */
#include "base/hash.h"
#include "embedding/combine.h"
#include "embedding/group.h"
#include "embedding/meta.h"
#include "embedding/optimizer.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SLICE_FLOATS ((size_t)65536) /* 256 KiB of sums stay in the L2 */
#define SLICE_KEYS   256u            /* one lock's worth of steps */

struct apply {
    struct rps_table *table;
    const struct rps_update *update;
    struct rps_apply_report *report;
    struct rps_grouping grouping;
    struct rps_step step;
    uint64_t *promised; /* [shard_count] rows reserved and not yet made */
    float *sums;        /* [slice_keys][dim] */
    float *scratch;     /* of rps_step_row() */
    size_t slice_keys;
    struct rps_combined slice[SLICE_KEYS];
};

static uint64_t
count_absent_locked(const struct apply *apply, size_t shard_index)
{
    const struct rps_grouping *grouping = &apply->grouping;
    const struct rps_index *index = &apply->table->shards[shard_index].index;
    uint64_t absent = 0;

    for (size_t g = grouping->group_starts[shard_index];
            g < grouping->group_starts[shard_index + 1]; g++) {
        const struct rps_entry *entry =
                &grouping->entries[grouping->groups[g].first];
        absent += rps_index_find(index, entry->hash, entry->key).row == 0;
    }
    return absent;
}

static rps_status
reserve(struct apply *apply)
{
    const struct rps_grouping *grouping = &apply->grouping;
    rps_status status = RPS_OK;

    for (size_t s = 0; s < apply->table->shard_count; s++) {
        struct rps_shard *shard = &apply->table->shards[s];
        uint64_t absent = 0;
        if (grouping->group_starts[s] == grouping->group_starts[s + 1]) {
            continue;
        }
        pthread_mutex_lock(&shard->lock);
        absent = count_absent_locked(apply, s);
        status = rps_shard_reserve_locked(shard, absent);
        pthread_mutex_unlock(&shard->lock);
        if (status != RPS_OK) {
            return status;
        }
        apply->promised[s] = absent;
    }
    return RPS_OK;
}

static void
release(struct apply *apply)
{
    for (size_t s = 0; s < apply->table->shard_count; s++) {
        if (apply->promised[s] > 0) {
            struct rps_shard *shard = &apply->table->shards[s];
            pthread_mutex_lock(&shard->lock);
            rps_shard_release_locked(shard, apply->promised[s]);
            pthread_mutex_unlock(&shard->lock);
            apply->promised[s] = 0;
        }
    }
}

/* False: the step was refused. */
static bool
step_key_locked(struct apply *apply, size_t shard_index,
        const struct rps_combined *combined)
{
    struct rps_table *table = apply->table;
    struct rps_shard *shard = &table->shards[shard_index];
    const uint64_t draw = rps_mix64(
            rps_mix64(table->draws ^ combined->key) ^ apply->update->step);
    struct rps_index_place place =
            rps_index_find(&shard->index, combined->hash, combined->key);
    uint32_t *meta = NULL;
    uint32_t skipped = 0;

    if (place.row == 0) {
        assert(apply->promised[shard_index] > 0);
        apply->promised[shard_index]--;
        place = rps_table_new_row_locked(
                table, shard, combined->hash, combined->key);
    }
    meta = &place.line->meta[place.lane];
    skipped = rps_meta_skipped(*meta, apply->update->step);
    if (!rps_step_row(&apply->step, rps_shard_row_locked(shard, place),
                combined->gradient, combined->live, skipped, draw,
                apply->scratch)) {
        return false;
    }
    *meta = rps_meta_make(apply->update->step,
            rps_uses_add(RPS_META_USES(*meta), combined->uses, draw));
    apply->report->applied++;
    return true;
}

/* What overflowed is refused like a gradient that was not finite. */
static void
refuse_sum(struct apply *apply, const struct rps_group *group)
{
    struct rps_grouping *grouping = &apply->grouping;
    const struct rps_entry *entry = &grouping->entries[group->first];

    if (grouping->nonfinite == 0) {
        grouping->nonfinite_key = entry->key;
    }
    grouping->nonfinite++;
    while (entry->next != RPS_ENTRY_NONE) {
        entry = &grouping->entries[entry->next];
        grouping->nonfinite++;
    }
}

static void
step_slice(struct apply *apply, size_t shard_index, size_t start, size_t count)
{
    struct rps_shard *shard = &apply->table->shards[shard_index];
    const size_t dim = apply->table->spec.dim;

    for (size_t i = 0; i < count; i++) {
        const struct rps_group *group = &apply->grouping.groups[start + i];
        rps_combine(apply->table, &apply->grouping, group, apply->update->scale,
                apply->sums + i * dim, &apply->slice[i]);
        if (apply->slice[i].gradient == NULL) {
            refuse_sum(apply, group);
        }
    }
    pthread_mutex_lock(&shard->lock);
    for (size_t i = 0; i < count; i++) {
        if (apply->slice[i].gradient != NULL &&
                !step_key_locked(apply, shard_index, &apply->slice[i])) {
            refuse_sum(apply, &apply->grouping.groups[start + i]);
        }
    }
    pthread_mutex_unlock(&shard->lock);
}

static void
step_shards(struct apply *apply)
{
    const size_t *starts = apply->grouping.group_starts;

    for (size_t s = 0; s < apply->table->shard_count; s++) {
        for (size_t at = starts[s]; at < starts[s + 1];) {
            const size_t left = starts[s + 1] - at;
            const size_t count =
                    left < apply->slice_keys ? left : apply->slice_keys;
            step_slice(apply, s, at, count);
            at += count;
        }
    }
}

static rps_status
prepare(struct apply *apply, const struct rps_contribution *contributions,
        size_t n)
{
    const size_t dim = apply->table->spec.dim;
    const size_t fits = SLICE_FLOATS / dim;
    rps_status status = RPS_OK;

    apply->slice_keys = fits < SLICE_KEYS ? fits : SLICE_KEYS;
    apply->promised =
            calloc(apply->table->shard_count, sizeof(*apply->promised));
    apply->sums = malloc(apply->slice_keys * dim * sizeof(*apply->sums));
    apply->scratch = malloc(rps_step_scratch_floats(&apply->table->spec) *
                            sizeof(*apply->scratch));
    if (apply->promised == NULL || apply->sums == NULL ||
            apply->scratch == NULL) {
        return RPS_E_NOMEM;
    }
    status =
            rps_grouping_init(&apply->grouping, apply->table, contributions, n);
    return status == RPS_OK ? reserve(apply) : status;
}

/* From here on nothing can fail. */
static void
carry_out(struct apply *apply)
{
    struct rps_table *table = apply->table;
    const struct rps_update *update = apply->update;
    const uint64_t pushes =
            atomic_fetch_add_explicit(&table->pushes, 1, memory_order_relaxed) +
            1;

    rps_step_init(&apply->step, &table->kernels, &table->spec,
            isnan(update->learning_rate) ? table->spec.learning_rate
                                         : update->learning_rate,
            update->t == 0 ? pushes : update->t);
    rps_table_note_step(table, update->step);
    step_shards(apply);
    apply->report->nonfinite = apply->grouping.nonfinite;
    apply->report->nonfinite_key = apply->grouping.nonfinite_key;
    rps_count(&table->nonfinite, apply->grouping.nonfinite);
}

rps_status
rps_table_apply(struct rps_table *table, const struct rps_update *update,
        const struct rps_contribution *contributions, size_t n,
        struct rps_apply_report *report)
{
    struct apply apply = {.table = table, .update = update, .report = report};
    rps_status status = RPS_OK;

    *report = (struct rps_apply_report){.applied = 0};
    status = prepare(&apply, contributions, n);
    if (status == RPS_OK) {
        carry_out(&apply);
    }
    if (apply.promised != NULL) {
        release(&apply);
    }
    rps_grouping_finish(&apply.grouping);
    free(apply.promised);
    free(apply.sums);
    free(apply.scratch);
    return status;
}
