/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a shard knows for checkpoints: which rows changed and which keys were
 * erased since the last one, and which rows a cut still wants as they are.
 *
 *   changed  two generations of a bit a row. Changes go to the one of `now`;
 *            a cut makes the other one `now`, so that what is changed while
 *            it is written is told from what was changed before it. COMMIT
 *            drops the older one, ABORT merges it back.
 *   erased   keys, likewise. Up to a quarter of the rows: beyond that a whole
 *            table is not much more to write than a delta, and a generation
 *            that is not `based` makes it whole.
 *   wanted   rows that the cut at hand has not written yet. Before its next
 *            change such a row is copied (save_buffer.h), and it is wanted no
 *            more.
 *
 *   cut_rows = wanted rows + kept + rows written from the table itself
 *
 * Threads: the owner's lock (shard->lock).
 */
#ifndef RPS_EMBEDDING_TRACK_H
#define RPS_EMBEDDING_TRACK_H

#include "embedding/table_impl.h"

/** A row is about to be changed: its value, slots or meta. */
void rps_track_keep_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_index_place place);

static inline void
rps_track_change_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_index_place place)
{
    struct rps_track *track = &shard->track;

    if (__builtin_expect(track->cutting, 0)) {
        rps_track_keep_locked(table, shard, place);
    }
    rps_shard_set_bit(shard, track->now, place.row, true);
}

/** Ask for the bits that rps_track_change_locked() reads. Always inlined: see
 * prefetch.h. */
static inline __attribute__((always_inline)) void
rps_track_ask_locked(const struct rps_shard *shard, uint32_t row)
{
    const struct rps_rows *rows = rps_shard_rows_of(shard, row);
    const size_t word = rps_row_number(row) / 64;

    __builtin_prefetch(&rows->bits[shard->track.now][word], 1);
    if (__builtin_expect(shard->track.cutting, 0)) {
        __builtin_prefetch(&rows->bits[shard->track.now ^ 1u][word]);
        __builtin_prefetch(&rows->bits[RPS_ROW_WANTED][word], 1);
    }
}

/** rps_track_change_locked() of several rows; where row is 0 there is none. */
static inline void
rps_track_changes_locked(struct rps_table *table, struct rps_shard *shard,
        const struct rps_index_place *places, size_t n)
{
    uint64_t *bits = shard->rows.bits[shard->track.now];

    if (__builtin_expect(shard->track.cutting || table->tiered, 0)) {
        for (size_t i = 0; i < n; i++) {
            if (places[i].row != 0) {
                rps_track_change_locked(table, shard, places[i]);
            }
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (places[i].row != 0) {
            const uint32_t number = rps_row_number(places[i].row);
            bits[number / 64] |= (uint64_t)1 << (number % 64);
        }
    }
}

/** A row was made: no cut wants it. */
void rps_track_new_locked(struct rps_shard *shard, uint32_t row);

/** A row is about to be erased. */
void rps_track_erase_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_index_place place);

/** Every row may have changed: no delta can tell how. */
void rps_track_change_all_locked(struct rps_shard *shard);

/** All is as it was saved: of a shard that was restored. */
void rps_track_clean_locked(struct rps_table *table, struct rps_shard *shard);

/** The cut begins, or ends as `saved` says. */
void rps_track_cut_locked(struct rps_shard *shard);
void rps_track_end_locked(
        struct rps_table *table, struct rps_shard *shard, bool saved);

/**
 * Which rows the cut wants from now on: all, or only those that had changed
 * before it. Returns how many there are, kept ones too.
 */
uint64_t rps_track_choose_locked(struct rps_shard *shard, bool changed_only);

/** Of a row of the table: is it to be written? It is not wanted any more. */
static inline bool
rps_track_take_locked(struct rps_shard *shard, uint32_t row)
{
    if (!rps_shard_bit(shard, RPS_ROW_WANTED, row)) {
        return false;
    }
    rps_shard_set_bit(shard, RPS_ROW_WANTED, row, false);
    return !shard->track.changed_only ||
           rps_shard_bit(shard, shard->track.now ^ 1u, row);
}

void rps_track_finish(struct rps_table *table, struct rps_shard *shard);

#endif /* RPS_EMBEDDING_TRACK_H */
