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
    const size_t most = shard->rows.live / 4 + ERASED_SMALL;
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

/* At the first change behind the cut, not in it: it may be long. */
static void
fill_wanted_locked(struct rps_shard *shard)
{
    if (!shard->track.filled) {
        rps_rows_fill_bit(&shard->rows, RPS_ROW_WANTED, true);
        shard->track.filled = true;
    }
}

void
rps_track_keep_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_index_place place)
{
    struct rps_track *track = &shard->track;
    const uint32_t number = place.row - 1;
    struct rps_kept_row kept;

    fill_wanted_locked(shard);
    kept = (struct rps_kept_row){.key = place.line->keys[place.lane],
            .meta = place.line->meta[place.lane],
            .changed = rps_rows_bit(&shard->rows, track->now ^ 1u, number)};
    if (rps_track_take_locked(shard, number)) {
        track->kept += 1;
        track->kept_changed += kept.changed;
        rps_save_buffer_add(table->buffer, table->cut_list, &kept,
                rps_rows_at(&shard->rows, number));
    }
}

void
rps_track_new_locked(struct rps_shard *shard, uint32_t number)
{
    if (shard->track.cutting) {
        fill_wanted_locked(shard);
        rps_rows_clear_bit(&shard->rows, RPS_ROW_WANTED, number);
    }
    rps_rows_set_bit(&shard->rows, shard->track.now, number);
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

    rps_rows_fill_bit(&shard->rows, track->now, false);
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
    track->cut_rows = shard->rows.live;
    track->kept = 0;
    track->kept_changed = 0;
}

/* What was changed before the cut is changed still. */
static void
merge_back_locked(struct rps_table *table, struct rps_shard *shard)
{
    struct rps_track *track = &shard->track;
    struct rps_generation *now = &track->generations[track->now];
    struct rps_generation *before = &track->generations[track->now ^ 1u];
    struct rps_rows *rows = &shard->rows;

    for (size_t i = 0; i < rows->bit_words; i++) {
        rows->bits[track->now][i] |= rows->bits[track->now ^ 1u][i];
    }
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
    rps_rows_fill_bit(&shard->rows, track->now ^ 1u, false);
    rps_rows_fill_bit(&shard->rows, RPS_ROW_WANTED, false);
    forget_erased(table, &track->generations[track->now ^ 1u]);
    track->cutting = false;
}

uint64_t
rps_track_choose_locked(struct rps_shard *shard, bool changed_only)
{
    struct rps_track *track = &shard->track;
    const struct rps_rows *rows = &shard->rows;
    const uint64_t *changed = rows->bits[track->now ^ 1u];
    const uint64_t *wanted = rows->bits[RPS_ROW_WANTED];
    uint64_t count = track->kept_changed;

    fill_wanted_locked(shard);
    track->changed_only = changed_only;
    if (!changed_only) {
        return track->cut_rows;
    }
    for (size_t i = 0; i < rows->bit_words; i++) {
        count += (uint64_t)__builtin_popcountll(changed[i] & wanted[i]);
    }
    return count;
}

void
rps_track_finish(struct rps_table *table, struct rps_shard *shard)
{
    forget_erased(table, &shard->track.generations[0]);
    forget_erased(table, &shard->track.generations[1]);
}
