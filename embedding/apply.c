/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One update of a table. Three passes, so that running out of memory finds
 * nothing changed and no lock is held for long:
 *
 *   1  group the contributions by shard and distinct key    (group.h)
 *   2  make sure that new rows have room                    (room.h)
 *   3  each shard, a slice of keys at a time: combine       (no lock)
 *      then find or create, step and stamp their rows       (its lock)
 *
 * A slice goes through in bursts: the rows of a burst are asked for before
 * the first one is stepped, so that many cache misses are in flight.
 */
#include "base/hash.h"
#include "embedding/admit.h"
#include "embedding/combine.h"
#include "embedding/group.h"
#include "embedding/meta.h"
#include "embedding/optimizer.h"
#include "embedding/prefetch.h"
#include "embedding/room.h"
#include "embedding/tick.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SLICE_FLOATS ((size_t)65536) /* 256 KiB of sums stay in the L2 */
#define SLICE_KEYS   256u            /* one lock's worth of steps */
#define BURST        32u             /* rows asked for at once */

/* Groups of one shard that are stepped under one lock. */
struct slice {
    size_t shard;
    size_t start;
    size_t count;                             /* 0: there is no further one */
    uint64_t version;                         /* of the index, for the lines */
    struct rps_index_line *lines[SLICE_KEYS]; /* where searches begin */
};

struct apply {
    struct rps_table *table;
    const struct rps_update *update;
    struct rps_apply_report *report;
    struct rps_grouping grouping;
    struct rps_room room;
    uint64_t *uses; /* [groups] multiplicities, or NULL: all are admitted */
    uint64_t tick;  /* to stamp with */
    struct rps_step step;
    float *sums;      /* [slice_keys][dim] */
    float *scratch;   /* of rps_step_row() */
    size_t row_bytes; /* that a step reads and writes */
    size_t slice_keys;
    size_t slice_start; /* its first group */
    bool borrows;       /* a key's only gradient is its step's as it lies */
    struct rps_combined combined[SLICE_KEYS];
};

/* False: the step was refused. */
static bool
step_key_locked(struct apply *apply, struct rps_shard *shard,
        const struct rps_combined *combined, struct rps_index_place place)
{
    const uint64_t draw =
            rps_mix64(rps_mix64(apply->table->draws ^ combined->key) ^
                      apply->update->step);
    char *row = rps_shard_row_locked(shard, place);
    uint32_t *meta = NULL;
    uint32_t skipped = 0;
    uint32_t uses = 0;

    meta = &place.line->meta[place.lane];
    skipped = rps_meta_skipped(*meta, apply->update->step);
    if (!rps_step_row(&apply->step, row, combined->gradient, combined->live,
                skipped, draw, apply->scratch)) {
        return false;
    }
    uses = combined->uses == 1
                   ? rps_uses_add_one(RPS_META_USES(*meta), draw)
                   : rps_uses_add(RPS_META_USES(*meta), combined->uses, draw);
    /* the newest tick now: another push may have raised it since ours, and
     * its step may be known to a reader of this row. Uses are never 0: that
     * is a row which was only made (room.c) */
    *meta = rps_meta_make(
            rps_newest_locked(apply->table, apply->tick), uses > 0 ? uses : 1);
    apply->report->applied++;
    return true;
}

/* What overflowed is refused like a gradient that was not finite. */
static void
refuse_sum(struct apply *apply, size_t group)
{
    struct rps_grouping *grouping = &apply->grouping;
    const struct rps_entry *entry = &grouping->entries[grouping->firsts[group]];

    if (grouping->nonfinite == 0) {
        grouping->nonfinite_key = grouping->keys[group];
    }
    grouping->nonfinite++;
    while (entry->next != RPS_ENTRY_NONE) {
        entry = &grouping->entries[entry->next];
        grouping->nonfinite++;
    }
}

/* A key without a row. True: it has one now. */
static bool
create_locked(struct apply *apply, size_t shard_index, size_t i,
        struct rps_index_place *place_out)
{
    const struct rps_combined *combined = &apply->combined[i];

    switch (rps_room_create_locked(
            &apply->room, shard_index, apply->slice_start + i, place_out)) {
    case RPS_ROOM_CREATED:
        return true;
    case RPS_ROOM_UNADMITTED:
        rps_admit_count_locked(apply->table, &apply->table->shards[shard_index],
                combined->hash, combined->key, combined->uses);
        apply->report->unadmitted++;
        return false;
    default:
        apply->report->dropped++;
        return false;
    }
}

/*
 * A new row is as old as this push, also if its step is refused, and was
 * used as often as was counted of its key.
 */
static void
start_meta_locked(struct apply *apply, struct rps_shard *shard,
        const struct rps_combined *combined, struct rps_index_place place)
{
    struct rps_table *table = apply->table;
    uint32_t counted = 0;

    if (rps_admits_all(table) && !rps_ages_matter(&table->spec)) {
        return;
    }
    counted =
            rps_admit_take_locked(table, shard, combined->hash, combined->key);
    if (place.line->meta[place.lane] == 0) { /* no other call stepped it yet */
        place.line->meta[place.lane] = rps_meta_make(
                apply->tick, rps_uses_add(0, counted,
                                     rps_mix64(table->draws ^ combined->key)));
    }
}

/* Where the keys of a burst lie; row 0: absent. Rows are asked for. */
static void
probe_burst_locked(const struct apply *apply, const struct rps_shard *shard,
        struct rps_index_line *const *lines, size_t first, size_t n,
        struct rps_index_place *places)
{
    const uint64_t *keys = apply->grouping.keys + first;
    const uint64_t *hashes = apply->grouping.hashes + first;
    uint8_t lanes[BURST];

    apply->table->kernels.probe(
            (const struct rps_index_line *const *)lines, keys, n, lanes);
    for (size_t i = 0; i < n; i++) {
        places[i] = (struct rps_index_place){.line = lines[i]};
        if (lanes[i] < RPS_LINE_KEYS) {
            places[i].lane = lanes[i];
            places[i].row = lines[i]->rows[lanes[i]];
        } else if (lanes[i] == RPS_LANE_BEYOND) {
            __builtin_prefetch(
                    rps_index_next(&shard->index, hashes[i], lines[i], 0));
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (places[i].row != 0) {
            rps_prefetch(
                    rps_shard_row_locked(shard, places[i]), apply->row_bytes);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (lanes[i] == RPS_LANE_BEYOND) {
            places[i] = rps_index_find(&shard->index, hashes[i], keys[i]);
            if (places[i].row != 0) {
                rps_prefetch(rps_shard_row_locked(shard, places[i]),
                        apply->row_bytes);
            }
        }
    }
}

/* Rows for the keys of a burst that have none. created[n]: which. */
static void
create_burst_locked(struct apply *apply, size_t shard_index, size_t start,
        size_t n, struct rps_index_place *places, bool *created)
{
    const struct rps_combined *combined = apply->combined + start;

    for (size_t i = 0; i < n; i++) {
        created[i] = false;
        if (combined[i].gradient == NULL) {
            places[i].row = 0;
            rps_room_refuse_locked(
                    &apply->room, shard_index, apply->slice_start + start + i);
        } else if (places[i].row == 0) {
            created[i] =
                    create_locked(apply, shard_index, start + i, &places[i]);
        }
    }
}

/*
 * Creating a row may move other keys of the index: all rows of the burst are
 * there before the place of any is relied on.
 */
static void
find_burst_locked(struct apply *apply, const struct slice *slice, size_t start,
        size_t n, struct rps_index_place *places)
{
    struct rps_shard *shard = &apply->table->shards[slice->shard];
    const struct rps_combined *combined = apply->combined + start;
    struct rps_index_line *const *lines = slice->lines + start;
    struct rps_index_line *fresh[BURST];
    uint64_t version = rps_index_version(&shard->index);
    bool created[BURST];

    if (slice->version != version) {
        rps_index_homes(&shard->index, n,
                apply->grouping.hashes + slice->start + start, fresh);
        lines = fresh;
    }
    probe_burst_locked(apply, shard, lines, slice->start + start, n, places);
    create_burst_locked(apply, slice->shard, start, n, places, created);
    for (size_t i = 0; i < n && version != rps_index_version(&shard->index);
            i++) {
        if (places[i].row != 0) {
            places[i] = rps_index_find(
                    &shard->index, combined[i].hash, combined[i].key);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (created[i] || (apply->room.made != NULL && places[i].row != 0 &&
                                  rps_room_made(&apply->room,
                                          slice->start + start + i))) {
            start_meta_locked(apply, shard, &combined[i], places[i]);
        }
    }
}

static void
step_burst_locked(
        struct apply *apply, const struct slice *slice, size_t start, size_t n)
{
    struct rps_shard *shard = &apply->table->shards[slice->shard];
    const struct rps_combined *combined = apply->combined + start;
    struct rps_index_place places[BURST];

    find_burst_locked(apply, slice, start, n, places);
    for (size_t i = 0; i < n; i++) {
        if (places[i].row != 0 &&
                !step_key_locked(apply, shard, &combined[i], places[i])) {
            refuse_sum(apply, slice->start + start + i);
        }
    }
}

/* What a key's step needs; group `start` of the slice + i. */
static inline void
combine(struct apply *apply, size_t group, size_t i)
{
    const struct rps_grouping *grouping = &apply->grouping;
    const struct rps_entry *first = &grouping->entries[grouping->firsts[group]];
    struct rps_combined *combined = &apply->combined[i];
    const size_t dim = apply->table->spec.dim;

    if (apply->borrows && first->next == RPS_ENTRY_NONE) {
        *combined = (struct rps_combined){.key = grouping->keys[group],
                .hash = grouping->hashes[group],
                .gradient = first->gradient,
                .live = dim,
                .uses = first->uses};
        return;
    }
    rps_combine(apply->table, grouping, group, apply->update->scale,
            apply->sums + i * dim, combined);
    if (combined->gradient == NULL) {
        refuse_sum(apply, group);
    }
}

static void
step_slice(struct apply *apply, const struct slice *slice)
{
    struct rps_shard *shard = &apply->table->shards[slice->shard];

    apply->slice_start = slice->start;
    for (size_t i = 0; i < slice->count; i++) {
        combine(apply, slice->start + i, i);
    }
    pthread_mutex_lock(&shard->lock);
    for (size_t i = 0; i < slice->count; i += BURST) {
        const size_t left = slice->count - i;
        step_burst_locked(apply, slice, i, left < BURST ? left : BURST);
    }
    pthread_mutex_unlock(&shard->lock);
}

/* The slice that begins with group `start`, in this shard or a later one; its
 * lines of the index arrive while the one before is stepped. */
static void
ask_slice(const struct apply *apply, size_t shard, size_t start,
        struct slice *slice)
{
    const size_t *starts = apply->grouping.starts;
    const struct rps_index *index = NULL;

    slice->count = 0;
    if (start == apply->grouping.group_count) {
        return;
    }
    while (starts[shard + 1] == start) {
        shard++;
    }
    slice->shard = shard;
    slice->start = start;
    slice->count = starts[shard + 1] - start;
    if (slice->count > apply->slice_keys) {
        slice->count = apply->slice_keys;
    }
    index = &apply->table->shards[shard].index;
    slice->version = rps_index_version(index);
    rps_index_homes(
            index, slice->count, apply->grouping.hashes + start, slice->lines);
}

static void
step_shards(struct apply *apply)
{
    struct slice slices[2];
    unsigned turn = 0;

    ask_slice(apply, 0, 0, &slices[0]);
    while (slices[turn].count > 0) {
        const struct slice *now = &slices[turn];
        ask_slice(
                apply, now->shard, now->start + now->count, &slices[turn ^ 1]);
        step_slice(apply, now);
        turn ^= 1;
    }
}

static uint64_t
uses_of_group(const struct apply *apply, size_t group)
{
    const struct rps_grouping *grouping = &apply->grouping;
    uint64_t uses = 0;

    for (uint32_t e = grouping->firsts[group]; e != RPS_ENTRY_NONE;
            e = grouping->entries[e].next) {
        uses += grouping->entries[e].uses;
    }
    return uses;
}

/* Who is admitted has to be known before rows are made. */
static rps_status
sum_uses(struct apply *apply)
{
    const size_t groups = apply->grouping.group_count;

    if (rps_admits_all(apply->table) || groups == 0) {
        return RPS_OK;
    }
    apply->uses = malloc(groups * sizeof(*apply->uses));
    if (apply->uses == NULL) {
        return RPS_E_NOMEM;
    }
    for (size_t g = 0; g < groups; g++) {
        apply->uses[g] = uses_of_group(apply, g);
    }
    return RPS_OK;
}

static rps_status
begin_room(struct apply *apply)
{
    apply->room = (struct rps_room){.table = apply->table,
            .keys = apply->grouping.keys,
            .hashes = apply->grouping.hashes,
            .starts = apply->grouping.starts,
            .uses = apply->uses,
            .drop_new = apply->update->drop_new};
    return rps_room_begin(&apply->room);
}

static rps_status
prepare(struct apply *apply, const struct rps_contribution *contributions,
        size_t n)
{
    const rps_table_spec *spec = &apply->table->spec;
    const size_t dim = spec->dim;
    const size_t fits = SLICE_FLOATS / dim;
    rps_status status = RPS_OK;

    apply->slice_keys = fits < SLICE_KEYS ? fits : SLICE_KEYS;
    apply->sums = malloc(apply->slice_keys * dim * sizeof(*apply->sums));
    apply->scratch = malloc(rps_step_scratch_floats(&apply->table->spec) *
                            sizeof(*apply->scratch));
    apply->borrows = apply->update->scale == 1.0f && spec->clip_value <= 0.0f &&
                     spec->clip_norm <= 0.0f && spec->dense_elements == 0;
    apply->row_bytes = apply->table->value_bytes +
                       apply->table->slot_floats * sizeof(float);
    if (apply->sums == NULL || apply->scratch == NULL) {
        return RPS_E_NOMEM;
    }
    status =
            rps_grouping_init(&apply->grouping, apply->table, contributions, n);
    if (status == RPS_OK) {
        status = sum_uses(apply);
    }
    return status == RPS_OK ? begin_room(apply) : status;
}

static void
sample_hot(struct apply *apply, uint64_t push)
{
    const struct rps_grouping *grouping = &apply->grouping;

    for (size_t g = rps_hot_first(apply->table->draws, push);
            g < grouping->group_count; g += RPS_HOT_SAMPLE) {
        rps_hot_add(
                apply->table->hot, grouping->keys[g], uses_of_group(apply, g));
    }
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
    apply->tick = rps_table_note(table,
            (struct rps_now){.step = update->step, .unix_s = update->now_s});
    sample_hot(apply, pushes);
    step_shards(apply);
    apply->report->nonfinite = apply->grouping.nonfinite;
    apply->report->nonfinite_key = apply->grouping.nonfinite_key;
    rps_count(&table->applied, apply->report->applied);
    rps_count(&table->nonfinite, apply->grouping.nonfinite);
    rps_count(&table->unadmitted, apply->report->unadmitted);
    rps_count(&table->dropped, apply->report->dropped);
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
    rps_room_end(&apply.room);
    rps_grouping_finish(&apply.grouping);
    free(apply.uses);
    free(apply.sums);
    free(apply.scratch);
    return status;
}
