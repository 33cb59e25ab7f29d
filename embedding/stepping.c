/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns nothing. A slice goes through in bursts: the rows of a burst are asked
 * for before the first one is stepped, so that many cache misses are in
 * flight; the lines of the next slice arrive meanwhile.
 */
#include "embedding/stepping.h"

#include "base/hash.h"
#include "embedding/admit.h"
#include "embedding/meta.h"
#include "embedding/prefetch.h"
#include "embedding/save_buffer.h"
#include "embedding/tick.h"
#include "embedding/tier.h"
#include "embedding/track.h"

#include <stdbool.h>

#define BURST 32u /* rows asked for at once */

/* Groups of one shard that are stepped under one lock. */
struct slice {
    size_t shard;
    size_t start;
    size_t count;                                 /* 0: no further one */
    uint64_t version;                             /* of the index, for lines */
    struct rps_index_line *lines[RPS_SLICE_KEYS]; /* where searches begin */
};

/* False: the step was refused. */
static bool
step_key_locked(struct rps_apply *apply, struct rps_shard *shard,
        const struct rps_combined *combined, struct rps_index_place place)
{
    const uint64_t draw =
            rps_mix64(rps_mix64(apply->table->draws ^ combined->key) ^
                      apply->update->step);
    char *row = rps_shard_row_locked(shard, place);
    uint32_t *meta = NULL;
    uint32_t skipped = 0;
    uint32_t uses = 0;

    rps_track_change_locked(apply->table, shard, place);
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
refuse_sum(struct rps_apply *apply, size_t group)
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
create_locked(struct rps_apply *apply, const struct slice *slice, size_t i,
        struct rps_index_place *place_out)
{
    const struct rps_combined *combined = &apply->combined[i];

    switch (rps_room_create_locked(
            &apply->room, slice->shard, slice->start + i, place_out)) {
    case RPS_ROOM_CREATED:
        return true;
    case RPS_ROOM_UNADMITTED:
        rps_admit_count_locked(apply->table,
                &apply->table->shards[slice->shard], combined->hash,
                combined->key, combined->uses);
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
start_meta_locked(struct rps_apply *apply, struct rps_shard *shard,
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

/* Always inlined: see prefetch.h. */
static inline __attribute__((always_inline)) void
ask_row_locked(const struct rps_apply *apply, const struct rps_shard *shard,
        struct rps_index_place place)
{
    if (place.row != 0) {
        rps_prefetch(rps_shard_row_locked(shard, place), apply->row_bytes);
        rps_track_ask_locked(shard, place.row);
    }
}

/* Where the keys of a burst lie; row 0: absent. Rows are asked for. */
static void
probe_burst_locked(const struct rps_apply *apply, const struct rps_shard *shard,
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
            rps_index_ask_beyond(&shard->index, hashes[i], lines[i]);
        }
    }
    for (size_t i = 0; i < n; i++) {
        ask_row_locked(apply, shard, places[i]);
    }
    for (size_t i = 0; i < n; i++) {
        if (lanes[i] == RPS_LANE_BEYOND) {
            places[i] = rps_index_find_beyond(
                    &shard->index, hashes[i], keys[i], lines[i]);
            ask_row_locked(apply, shard, places[i]);
        }
    }
}

/* Rows for the keys of a burst that have none. created[n]: which. */
static void
create_burst_locked(struct rps_apply *apply, const struct slice *slice,
        size_t start, size_t n, struct rps_index_place *places, bool *created)
{
    const struct rps_combined *combined = apply->combined + start;

    for (size_t i = 0; i < n; i++) {
        created[i] = false;
        if (combined[i].gradient == NULL) {
            places[i].row = 0;
            rps_room_refuse_locked(
                    &apply->room, slice->shard, slice->start + start + i);
        } else if (places[i].row == 0) {
            created[i] = create_locked(apply, slice, start + i, &places[i]);
        }
    }
}

/*
 * Creating a row may move other keys of the index: all rows of the burst are
 * there before the place of any is relied on.
 */
static void
find_burst_locked(struct rps_apply *apply, const struct slice *slice,
        size_t start, size_t n, struct rps_index_place *places)
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
    create_burst_locked(apply, slice, start, n, places, created);
    for (size_t i = 0; i < n && version != rps_index_version(&shard->index);
            i++) {
        if (places[i].row != 0) {
            places[i] = rps_index_find(
                    &shard->index, combined[i].hash, combined[i].key);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (created[i] || (apply->room.making && places[i].row != 0 &&
                                  rps_room_made(&apply->room,
                                          slice->start + start + i))) {
            start_meta_locked(apply, shard, &combined[i], places[i]);
        }
    }
}

/* A row that came back may have sent another one of the burst to the disk. */
static struct rps_index_place
raised_locked(struct rps_apply *apply, struct rps_shard *shard,
        struct rps_index_place place)
{
    place.row = place.line->rows[place.lane];
    if ((place.row & RPS_ROW_ON_DISK) != 0) {
        place.row = rps_tier_raise_locked(apply->table, shard, place);
    }
    return place;
}

static void
step_burst_locked(struct rps_apply *apply, const struct slice *slice,
        size_t start, size_t n)
{
    struct rps_shard *shard = &apply->table->shards[slice->shard];
    const struct rps_combined *combined = apply->combined + start;
    struct rps_index_place places[BURST];

    find_burst_locked(apply, slice, start, n, places);
    for (size_t i = 0; i < n; i++) {
        if (apply->table->tiered && places[i].row != 0) {
            places[i] = raised_locked(apply, shard, places[i]);
        }
        if (places[i].row != 0 &&
                !step_key_locked(apply, shard, &combined[i], places[i])) {
            refuse_sum(apply, slice->start + start + i);
        }
    }
}

/* What a key's step needs; group `start` of the slice + i. */
static inline void
combine(struct rps_apply *apply, size_t group, size_t i)
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
step_slice(struct rps_apply *apply, const struct slice *slice)
{
    struct rps_table *table = apply->table;
    struct rps_shard *shard = &table->shards[slice->shard];
    uint64_t kept_bytes = 0;

    for (size_t i = 0; i < slice->count; i++) {
        combine(apply, slice->start + i, i);
    }
    rps_save_buffer_reserve(
            table->buffer, table->cut_list, slice->count, &kept_bytes);
    rps_shard_lock(shard);
    for (size_t i = 0; i < slice->count; i += BURST) {
        const size_t left = slice->count - i;
        step_burst_locked(apply, slice, i, left < BURST ? left : BURST);
    }
    pthread_mutex_unlock(&shard->lock);
    rps_save_buffer_release(table->buffer, kept_bytes);
}

/* The slice that begins with group `start`, in this shard or a later one; its
 * lines of the index arrive while the one before is stepped. */
static void
ask_slice(const struct rps_apply *apply, size_t shard, size_t start,
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

void
rps_step_groups(struct rps_apply *apply)
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
