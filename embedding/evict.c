/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the choice of the row that goes. Slices of it: upkeep.c. */
#include "embedding/evict.h"

#include "base/hash.h"
#include "embedding/index_grow.h"
#include "embedding/track.h"

#include <assert.h>
#include <stdlib.h>

#define GUARD_BITS 16u /* a guarded key: 6 % of the others look guarded */

bool
rps_guard_init(struct rps_guard *guard, size_t count, const uint64_t *hashes)
{
    uint64_t bits = 1024;

    while (bits < (uint64_t)count * GUARD_BITS) {
        bits *= 2;
    }
    guard->mask = bits - 1;
    guard->bits = calloc(bits / 64, sizeof(*guard->bits));
    if (guard->bits == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        const uint64_t bit = hashes[i] & guard->mask;
        guard->bits[bit / 64] |= (uint64_t)1 << (bit % 64);
    }
    return true;
}

void
rps_guard_finish(struct rps_guard *guard)
{
    free(guard->bits);
    guard->bits = NULL;
}

static bool
is_guarded(const struct rps_guard *guard, uint64_t hash)
{
    const uint64_t bit = hash & guard->mask;

    return guard->bits != NULL &&
           (guard->bits[bit / 64] >> (bit % 64) & 1) != 0;
}

uint64_t
rps_evict_score(enum rps_on_full policy, uint32_t meta, uint64_t newest)
{
    const uint64_t age = rps_age_of(meta, newest);
    const uint64_t unused = RPS_USES_MAX - RPS_META_USES(meta);

    return policy == RPS_ON_FULL_EVICT_LFU ? unused << 24 | age
                                           : age << 8 | unused;
}

bool
rps_may_evict(const struct rps_table *table)
{
    return table->spec.dense_elements == 0 &&
           rps_counted(&table->rows) > table->spec.keep_min_rows;
}

static void
evict_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_index_place place)
{
    rps_table_erase_row_locked(table, shard, place);
    rps_table_note_erased(table);
}

struct choice {
    struct rps_index_place place; /* row 0: none yet */
    uint64_t score;
    unsigned looked; /* rows that may go */
};

static void
choose_of_line_locked(const struct rps_table *table,
        const struct rps_shard *shard, struct rps_index_line *line,
        const struct rps_guard *guard, struct choice *choice)
{
    const uint64_t newest = rps_newest_locked(table, 0);

    for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
        uint64_t score = 0;
        if (line->rows[lane] == 0) {
            continue;
        }
        if (is_guarded(guard,
                    rps_key_hash(line->keys[lane], shard->index.job_seed))) {
            continue;
        }
        choice->looked++;
        score = rps_evict_score(table->spec.on_full, line->meta[lane], newest);
        if (choice->place.row == 0 || score > choice->score) {
            choice->score = score;
            choice->place = (struct rps_index_place){
                    .line = line, .lane = lane, .row = line->rows[lane]};
        }
    }
}

bool
rps_evict_one_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_segment *segment, uint64_t hash,
        const struct rps_guard *guard)
{
    struct choice choice = {.score = 0};
    uint32_t at = (uint32_t)rps_index_home_line(hash, segment->line_count);

    if (!rps_may_evict(table)) {
        return false;
    }
    for (uint32_t lines = 0;
            lines < segment->line_count && choice.looked < RPS_EVICT_ROWS;
            lines++) {
        choose_of_line_locked(
                table, shard, &segment->lines[at], guard, &choice);
        at = at + 1 == segment->line_count ? 0 : at + 1;
    }
    if (choice.place.row == 0) {
        return false;
    }
    evict_locked(table, shard, choice.place);
    rps_count(&table->evicted_full, 1);
    return true;
}

bool
rps_evict_for_locked(struct rps_table *table, struct rps_shard *shard,
        uint64_t hash, const struct rps_guard *guard)
{
    struct rps_index *index = &shard->index;
    struct rps_segment *own = rps_index_segment(index, hash);

    if (rps_evict_one_locked(table, shard, own, hash, guard)) {
        return true;
    }
    if (rps_segment_free(own) <= rps_shard_kept_locked(shard, own)) {
        return false;
    }
    for (uint32_t i = 0; i < index->segment_count; i++) {
        struct rps_segment *other =
                &index->segments[(hash + i) % index->segment_count];
        if (rps_evict_one_locked(table, shard, other, hash, guard)) {
            return true;
        }
    }
    return false;
}

/* What a look at one line found. */
struct looked {
    uint64_t kept;
    uint64_t evicted;
};

static void
evict_cold_in_line_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_index_line *line, uint64_t newest, struct looked *looked)
{
    const uint64_t cold = rps_cold_ticks(&table->spec);

    for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
        const uint32_t age = rps_age_of(line->meta[lane], newest);
        if (line->rows[lane] == 0) {
            continue;
        }
        if (cold != 0 && age > cold && rps_may_evict(table)) {
            evict_locked(table, shard,
                    (struct rps_index_place){.line = line,
                            .lane = lane,
                            .row = line->rows[lane]});
            looked->evicted++;
            continue;
        }
        looked->kept++;
        if (age > RPS_AGE_MAX) {
            rps_track_change_locked(table, shard,
                    (struct rps_index_place){.line = line,
                            .lane = lane,
                            .row = line->rows[lane]});
            line->meta[lane] = rps_meta_make(
                    newest - RPS_AGE_MAX, RPS_META_USES(line->meta[lane]));
        }
    }
}

/* Erasing moves other keys of the segment from this pair and later ones into
 * this pair: it is looked at until all that it holds stays. */
void
rps_evict_cold_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_index_line *pair, uint64_t tick,
        struct rps_evict_report *report)
{
    const uint64_t newest = rps_newest_locked(table, tick);
    struct looked looked;

    do {
        looked = (struct looked){.kept = 0};
        for (unsigned i = 0; i < 2; i++) {
            evict_cold_in_line_locked(table, shard, &pair[i], newest, &looked);
        }
        rps_count(&table->evicted_cold, looked.evicted);
        report->cold += looked.evicted;
        report->examined += looked.evicted;
    } while (looked.evicted > 0);
    report->examined += looked.kept;
}
