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

_Static_assert(BURST <= RPS_STEP_ROWS_MAX, "a burst is stepped by one call");

/* Groups of one shard that are stepped under one lock. */
struct slice {
    size_t shard;
    size_t start;
    size_t count;                                 /* 0: no further one */
    uint64_t version;                             /* of the index, for lines */
    bool refuses;                                 /* some sums */
    struct rps_index_line *lines[RPS_SLICE_KEYS]; /* where searches begin */
};

/* Keys of a slice that are stepped together. */
struct burst {
    size_t start; /* in the slice */
    size_t n;
    struct rps_index_place places[BURST]; /* row 0: not to be stepped */
    float *rows[BURST];                   /* of the places; or NULL */
    uint64_t draws[BURST];                /* of this key and step */
};

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
    const size_t group = slice->start + i;

    switch (rps_room_create_locked(
            &apply->room, slice->shard, group, place_out)) {
    case RPS_ROOM_CREATED:
        return true;
    case RPS_ROOM_UNADMITTED:
        rps_admit_count_locked(apply->table,
                &apply->table->shards[slice->shard],
                apply->grouping.hashes[group], apply->grouping.keys[group],
                apply->key_uses[i]);
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
        size_t group, struct rps_index_place place)
{
    struct rps_table *table = apply->table;
    const uint64_t key = apply->grouping.keys[group];
    uint32_t counted = 0;

    if (rps_admits_all(table) && !rps_ages_matter(&table->spec)) {
        return;
    }
    counted = rps_admit_take_locked(
            table, shard, apply->grouping.hashes[group], key);
    if (place.line->meta[place.lane] == 0) { /* no other call stepped it yet */
        place.line->meta[place.lane] = rps_meta_make(apply->tick,
                rps_uses_add(0, counted, rps_mix64(table->draws ^ key)));
    }
}

static inline float *
row_at(const struct rps_shard *shard, struct rps_index_place place)
{
    return place.row == 0 ? NULL
                          : (float *)(void *)rps_shard_row_locked(shard, place);
}

/* Always inlined: see prefetch.h. */
static inline __attribute__((always_inline)) void
ask_row_locked(const struct rps_shard *shard, const struct burst *burst,
        size_t i, size_t row_bytes)
{
    rps_prefetch((const char *)burst->rows[i], row_bytes);
    rps_track_ask_locked(shard, burst->places[i].row);
}

/* The walks of the keys numbers[n] of the burst, which are not in their home
 * lines. Returns how many of them are nowhere. */
static size_t
probe_beyond_locked(const struct rps_apply *apply, const struct slice *slice,
        struct rps_index_line *const *lines, struct burst *burst,
        const uint8_t *numbers, size_t n)
{
    const struct rps_shard *shard = &apply->table->shards[slice->shard];
    const size_t first = slice->start + burst->start;
    size_t absent = 0;

    for (size_t k = 0; k < n; k++) {
        const size_t i = numbers[k];
        burst->places[i] = rps_index_find_beyond(&shard->index,
                apply->grouping.hashes[first + i],
                apply->grouping.keys[first + i], lines[i]);
        burst->rows[i] = row_at(shard, burst->places[i]);
        if (burst->rows[i] != NULL) {
            ask_row_locked(shard, burst, i, apply->row_bytes);
        } else {
            absent++;
        }
    }
    return absent;
}

/* Numbers of a burst's keys, by what the probe of their home lines said. */
struct probed {
    size_t found;
    size_t beyond;
    uint8_t found_keys[BURST];
    uint8_t beyond_keys[BURST];
};

/* Places and rows of keys with lanes[n]. */
static void
sort_out_locked(const struct rps_shard *restrict shard,
        struct rps_index_line *const *restrict lines,
        const uint8_t *restrict lanes, struct burst *restrict burst,
        struct probed *restrict probed)
{
    size_t found = 0;
    size_t beyond = 0;

    for (size_t i = 0; i < burst->n; i++) {
        const unsigned lane = lanes[i];
        if (lane < RPS_LINE_KEYS) {
            const uint32_t row = lines[i]->rows[lane];
            burst->places[i] = (struct rps_index_place){
                    .line = lines[i], .lane = lane, .row = row};
            burst->rows[i] = (float *)(void *)rps_shard_row_at(shard, row);
            probed->found_keys[found++] = (uint8_t)i;
        } else {
            burst->places[i] = (struct rps_index_place){.line = lines[i]};
            burst->rows[i] = NULL;
            probed->beyond_keys[beyond] = (uint8_t)i;
            beyond += lane == RPS_LANE_BEYOND;
        }
    }
    probed->found = found;
    probed->beyond = beyond;
}

/*
 * Where the keys of a burst lie. Rows are asked for in one go: addresses
 * first, as in rps_index_homes(). Returns how many keys are absent.
 */
static size_t
probe_burst_locked(const struct rps_apply *apply, const struct slice *slice,
        struct rps_index_line *const *lines, struct burst *burst)
{
    const struct rps_shard *shard = &apply->table->shards[slice->shard];
    const size_t first = slice->start + burst->start;
    const size_t row_bytes = apply->row_bytes;
    uint8_t lanes[BURST];
    struct probed probed;

    apply->table->kernels.probe((const struct rps_index_line *const *)lines,
            apply->grouping.keys + first, burst->n, lanes);
    sort_out_locked(shard, lines, lanes, burst, &probed);
    for (size_t k = 0; k < probed.found; k++) {
        ask_row_locked(shard, burst, probed.found_keys[k], row_bytes);
    }
    for (size_t k = 0; k < probed.beyond; k++) {
        const size_t i = probed.beyond_keys[k];
        rps_index_ask_next(lines[i]);
    }
    return burst->n - probed.found - probed.beyond +
           probe_beyond_locked(apply, slice, lines, burst, probed.beyond_keys,
                   probed.beyond);
}

/* Rows for the keys of a burst that have none. created[n]: which. */
static void
create_burst_locked(struct rps_apply *apply, const struct slice *slice,
        struct burst *burst, bool *created)
{
    for (size_t i = 0; i < burst->n; i++) {
        created[i] = false;
        if (apply->gradients[burst->start + i] == NULL) {
            burst->places[i].row = 0;
            rps_room_refuse_locked(&apply->room, slice->shard,
                    slice->start + burst->start + i);
        } else if (burst->places[i].row == 0) {
            created[i] = create_locked(
                    apply, slice, burst->start + i, &burst->places[i]);
        }
    }
}

/*
 * Where not every key has a row that this push found. Creating one may move
 * other keys of the index, and rows: all rows of the burst are there before
 * the place of any is relied on.
 */
static void
settle_burst_locked(
        struct rps_apply *apply, const struct slice *slice, struct burst *burst)
{
    struct rps_shard *shard = &apply->table->shards[slice->shard];
    const size_t first = slice->start + burst->start;
    const uint64_t version = rps_index_version(&shard->index);
    bool created[BURST];

    create_burst_locked(apply, slice, burst, created);
    for (size_t i = 0; i < burst->n; i++) {
        struct rps_index_place *place = &burst->places[i];
        if (place->row != 0 && version != rps_index_version(&shard->index)) {
            *place = rps_index_find(&shard->index,
                    apply->grouping.hashes[first + i],
                    apply->grouping.keys[first + i]);
        }
        burst->rows[i] = row_at(shard, *place);
        if (created[i] || (apply->room.making && place->row != 0 &&
                                  rps_room_made(&apply->room, first + i))) {
            start_meta_locked(apply, shard, first + i, *place);
        }
    }
}

static void
find_burst_locked(
        struct rps_apply *apply, const struct slice *slice, struct burst *burst)
{
    const struct rps_index *index = &apply->table->shards[slice->shard].index;
    struct rps_index_line *const *lines = slice->lines + burst->start;
    struct rps_index_line *fresh[BURST];
    size_t absent = 0;

    if (slice->version != rps_index_version(index)) {
        rps_index_homes(index, burst->n,
                apply->grouping.hashes + slice->start + burst->start, fresh);
        lines = fresh;
    }
    absent = probe_burst_locked(apply, slice, lines, burst);
    if (absent > 0 || slice->refuses || apply->room.making) {
        settle_burst_locked(apply, slice, burst);
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

/* False: the step was refused. */
static bool
step_row_locked(struct rps_apply *apply, const struct slice *slice,
        struct burst *burst, size_t i)
{
    struct rps_table *table = apply->table;
    struct rps_shard *shard = &table->shards[slice->shard];
    struct rps_index_place *place = &burst->places[i];
    const size_t at = burst->start + i;

    if (table->tiered) {
        *place = raised_locked(apply, shard, *place);
    }
    rps_track_change_locked(table, shard, *place);
    return rps_step_row(&apply->step, rps_shard_row_locked(shard, *place),
            apply->gradients[at],
            rps_table_live_floats(
                    table, apply->grouping.keys[slice->start + at]),
            rps_meta_skipped(
                    place->line->meta[place->lane], apply->update->step),
            burst->draws[i], apply->scratch);
}

/* Returns bit i: the step of key i was refused. */
static uint64_t
step_rows_locked(
        struct rps_apply *apply, const struct slice *slice, struct burst *burst)
{
    uint64_t refused = 0;

    for (size_t i = 0; i < burst->n; i++) {
        if (burst->rows[i] != NULL &&
                !step_row_locked(apply, slice, burst, i)) {
            refused |= (uint64_t)1 << i;
        }
    }
    return refused;
}

/* The same where all of it is one call. */
static uint64_t
step_together_locked(
        struct rps_apply *apply, const struct slice *slice, struct burst *burst)
{
    rps_track_changes_locked(apply->table, &apply->table->shards[slice->shard],
            burst->places, burst->n);
    return apply->step.kernel.rows(burst->rows, apply->gradients + burst->start,
            burst->n, &apply->step.numbers, apply->scratch);
}

static inline uint32_t
uses_after(uint32_t meta, uint64_t key_uses, uint64_t draw)
{
    uint32_t uses = RPS_META_USES(meta);

    if (key_uses == 1) {
        return rps_uses_add_one(uses, draw);
    }
    uses = rps_uses_add(uses, key_uses, draw);
    return uses > 0 ? uses : 1; /* 0: a row which was only made (room.c) */
}

/* Who was stepped, when and how often. Returns how many they are. */
static size_t
stamp_burst_locked(const struct burst *restrict burst,
        const uint64_t *restrict key_uses, uint64_t refused, uint64_t tick)
{
    size_t applied = 0;

    for (size_t i = 0; i < burst->n; i++) {
        const struct rps_index_place *place = &burst->places[i];
        if (burst->rows[i] != NULL && (refused >> i & 1) == 0) {
            uint32_t *meta = &place->line->meta[place->lane];
            *meta = rps_meta_make(
                    tick, uses_after(*meta, key_uses[i], burst->draws[i]));
            applied++;
        }
    }
    return applied;
}

static void
step_burst_locked(
        struct rps_apply *apply, const struct slice *slice, size_t start)
{
    const size_t left = slice->count - start;
    struct burst burst;
    uint64_t refused = 0;

    burst.start = start;
    burst.n = left < BURST ? left : BURST;
    find_burst_locked(apply, slice, &burst);
    apply->table->kernels.draw(burst.draws,
            apply->grouping.keys + slice->start + start, burst.n,
            apply->table->draws, apply->update->step);
    refused = (apply->together ? step_together_locked : step_rows_locked)(
            apply, slice, &burst);
    /* the newest tick under this lock: another push may have raised it since
     * ours, and its step may be known to who has read one of these rows */
    apply->report->applied +=
            stamp_burst_locked(&burst, apply->key_uses + start, refused,
                    rps_newest_locked(apply->table, apply->tick));
    for (size_t i = 0; refused != 0; i++, refused >>= 1) {
        if ((refused & 1) != 0) {
            refuse_sum(apply, slice->start + start + i);
        }
    }
}

/* The gradient and uses of key i of the slice, where more than its only entry
 * has a say. */
static void
combine_key(struct rps_apply *apply, struct slice *slice, size_t i)
{
    const size_t group = slice->start + i;

    apply->gradients[i] = rps_combine(apply->table, &apply->grouping, group,
            apply->update->scale, apply->sums + i * apply->table->spec.dim,
            &apply->key_uses[i]);
    if (apply->gradients[i] == NULL) {
        slice->refuses = true;
        refuse_sum(apply, group);
    }
}

static void
combine(struct rps_apply *apply, struct slice *slice)
{
    const struct rps_entry *entries = apply->grouping.entries;
    const uint32_t *firsts = apply->grouping.firsts + slice->start;
    const bool borrows = apply->borrows;

    slice->refuses = false;
    for (size_t i = 0; i < slice->count; i++) {
        const struct rps_entry *first = &entries[firsts[i]];
        if (borrows && first->next == RPS_ENTRY_NONE) {
            apply->gradients[i] = first->gradient;
            apply->key_uses[i] = first->uses;
        } else {
            combine_key(apply, slice, i);
        }
    }
}

static void
step_slice(struct rps_apply *apply, struct slice *slice)
{
    struct rps_table *table = apply->table;
    struct rps_shard *shard = &table->shards[slice->shard];
    const size_t end = slice->start + slice->count;
    uint64_t kept_bytes = 0;

    combine(apply, slice);
    rps_save_buffer_reserve(
            table->buffer, table->cut_list, slice->count, &kept_bytes);
    rps_shard_lock(shard);
    for (size_t i = 0; i < slice->count; i += BURST) {
        step_burst_locked(apply, slice, i);
    }
    if (end == apply->grouping.starts[slice->shard + 1]) {
        rps_room_done_locked(&apply->room, slice->shard);
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
        struct slice *now = &slices[turn];
        ask_slice(
                apply, now->shard, now->start + now->count, &slices[turn ^ 1]);
        step_slice(apply, now);
        turn ^= 1;
    }
}
