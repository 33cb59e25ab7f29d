/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the keys that were erased, and what the bits of rows mean. */
#include "embedding/track.h"

#include "embedding/save_buffer.h"

#include <stdlib.h>
#include <string.h>

#define ERASED_FIRST 64u
#define ERASED_SMALL 1024u /* so many may be, however few rows there are */

static void
forget_erased(struct rps_table *table, struct rps_generation *generation)
{
    rps_budget_give(
            &table->budget, generation->room * sizeof(*generation->erased));
    free(generation->erased);
    generation->erased = NULL;
    generation->count = 0;
    generation->room = 0;
}

static void
lose_base(struct rps_table *table, struct rps_generation *generation)
{
    generation->based = false;
    forget_erased(table, generation);
}

/* Without memory the next checkpoint has the whole table instead. */
static void
add_erased(struct rps_table *table, const struct rps_shard *shard,
        struct rps_generation *generation, uint64_t key)
{
    const size_t most =
            (shard->rows.live + shard->disk.live) / 4 + ERASED_SMALL;
    const size_t room =
            generation->room == 0 ? ERASED_FIRST : generation->room * 2;
    const size_t more = (room - generation->room) * sizeof(*generation->erased);
    uint64_t *keys = NULL;

    if (generation->count == most) {
        lose_base(table, generation);
        return;
    }
    if (generation->count == generation->room) {
        if (!rps_budget_take(&table->budget, more)) {
            lose_base(table, generation);
            return;
        }
        keys = realloc(generation->erased, room * sizeof(*keys));
        if (keys == NULL) {
            rps_budget_give(&table->budget, more);
            lose_base(table, generation);
            return;
        }
        generation->erased = keys;
        generation->room = room;
    }
    generation->erased[generation->count++] = key;
}

/* In memory and on the disk. */
static void
fill_bit_locked(struct rps_shard *shard, enum rps_row_bit bit, bool value)
{
    rps_rows_fill_bit(&shard->rows, bit, value);
    rps_rows_fill_bit(&shard->disk, bit, value);
}

/* At the first change behind the cut, not in it: it may be long. */
static void
fill_wanted_locked(struct rps_shard *shard)
{
    if (!shard->track.filled) {
        fill_bit_locked(shard, RPS_ROW_WANTED, true);
        shard->track.filled = true;
    }
}

void
rps_track_keep_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_index_place place)
{
    struct rps_track *track = &shard->track;
    struct rps_kept_row kept;

    fill_wanted_locked(shard);
    kept = (struct rps_kept_row){.key = place.line->keys[place.lane],
            .meta = place.line->meta[place.lane],
            .changed = rps_shard_bit(shard, track->now ^ 1u, place.row)};
    if (rps_track_take_locked(shard, place.row)) {
        track->kept_changed += kept.changed;
        rps_save_buffer_add(table->buffer, table->cut_list, &kept,
                rps_shard_row_locked(shard, place));
    }
}

void
rps_track_new_locked(struct rps_shard *shard, uint32_t row)
{
    if (shard->track.cutting) {
        fill_wanted_locked(shard);
        rps_shard_set_bit(shard, RPS_ROW_WANTED, row, false);
    }
    rps_shard_set_bit(shard, shard->track.now, row, true);
}

void
rps_track_erase_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_index_place place)
{
    struct rps_track *track = &shard->track;
    struct rps_generation *generation = &track->generations[track->now];

    if (track->cutting) {
        rps_track_keep_locked(table, shard, place);
    }
    if (generation->based) {
        add_erased(table, shard, generation, place.line->keys[place.lane]);
    }
}

void
rps_track_change_all_locked(struct rps_shard *shard)
{
    shard->track.generations[shard->track.now].based = false;
}

void
rps_track_clean_locked(struct rps_table *table, struct rps_shard *shard)
{
    struct rps_track *track = &shard->track;

    fill_bit_locked(shard, track->now, false);
    forget_erased(table, &track->generations[track->now]);
    track->generations[track->now].based = true;
}

void
rps_track_cut_locked(struct rps_shard *shard)
{
    struct rps_track *track = &shard->track;

    track->now ^= 1;
    track->generations[track->now].based = true;
    track->cutting = true;
    track->filled = false;
    track->changed_only = false;
    track->cut_rows = shard->rows.live + shard->disk.live;
    track->kept_changed = 0;
}

static void
merge_bits(const struct rps_rows *rows, unsigned now)
{
    for (size_t i = 0; i < rows->bit_words; i++) {
        rows->bits[now][i] |= rows->bits[now ^ 1u][i];
    }
}

/* What was changed before the cut is changed still. */
static void
merge_back_locked(struct rps_table *table, struct rps_shard *shard)
{
    struct rps_track *track = &shard->track;
    struct rps_generation *now = &track->generations[track->now];
    struct rps_generation *before = &track->generations[track->now ^ 1u];

    merge_bits(&shard->rows, track->now);
    merge_bits(&shard->disk, track->now);
    if (!before->based) {
        lose_base(table, now);
    }
    for (size_t i = 0; i < before->count && now->based; i++) {
        add_erased(table, shard, now, before->erased[i]);
    }
}

void
rps_track_end_locked(
        struct rps_table *table, struct rps_shard *shard, bool saved)
{
    struct rps_track *track = &shard->track;

    if (!saved) {
        merge_back_locked(table, shard);
    }
    fill_bit_locked(shard, track->now ^ 1u, false);
    fill_bit_locked(shard, RPS_ROW_WANTED, false);
    forget_erased(table, &track->generations[track->now ^ 1u]);
    track->cutting = false;
}

/* Numbers without a row are not changed. */
static uint64_t
changed_wanted(const struct rps_rows *rows, unsigned now)
{
    const uint64_t *changed = rows->bits[now ^ 1u];
    const uint64_t *wanted = rows->bits[RPS_ROW_WANTED];
    uint64_t count = 0;

    for (size_t i = 0; i < rows->bit_words; i++) {
        count += (uint64_t)__builtin_popcountll(changed[i] & wanted[i]);
    }
    return count;
}

uint64_t
rps_track_choose_locked(struct rps_shard *shard, bool changed_only)
{
    struct rps_track *track = &shard->track;

    fill_wanted_locked(shard);
    track->changed_only = changed_only;
    if (!changed_only) {
        return track->cut_rows;
    }
    return track->kept_changed + changed_wanted(&shard->rows, track->now) +
           changed_wanted(&shard->disk, track->now);
}

void
rps_track_finish(struct rps_table *table, struct rps_shard *shard)
{
    forget_erased(table, &shard->track.generations[0]);
    forget_erased(table, &shard->track.generations[1]);
}
