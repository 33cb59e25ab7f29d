/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The background's work on a table, in slices that each may take a bounded
 * number of lines of the index. A pass goes through these phases, and through
 * all shards in each:
 *
 *   cold     rows idle for too long leave
 *   counts   where max_cold_* is set, admission counts are halved once in so
 *            many ticks
 *   compact  memory is given back (compact.h)
 *
 * Where more is used than a limit allows, compaction is repeated while that
 * helps; then comes
 *
 *   budget   a share of the rows of each segment leaves, those with the
 *            largest score; then compaction again
 *
 * until the limit is met or no row may go.
 */
#include "base/hash.h"
#include "embedding/admit.h"
#include "embedding/alter.h"
#include "embedding/compact.h"
#include "embedding/evict.h"
#include "embedding/save_buffer.h"

#include <assert.h>

#define EVICT_LINES 5u    /* what evicting a row counts as */
#define SHARE_MORE  0.02  /* evicted beyond the excess: chunks are not full */
#define SHARE_MOST  0.25  /* of the rows, in one pass */
#define PASS_LINES  4096u /* a slice of rps_table_evict() */

enum phase {
    PHASE_COLD,
    PHASE_COUNTS,
    PHASE_COMPACT,
    PHASE_BUDGET,
};

struct slice {
    struct rps_table *table;
    struct rps_upkeep *upkeep;
    uint64_t tick;
    size_t lines; /* left */
    struct rps_evict_report *report;
};

static uint64_t
used_bytes(const struct rps_table *table)
{
    return atomic_load_explicit(&table->budget.used, memory_order_relaxed);
}

/* Bytes beyond a limit of the table or the server, for this table. */
static uint64_t
excess_of(const struct rps_table *table)
{
    uint64_t excess = 0;

    for (const struct rps_budget *budget = &table->budget; budget != NULL;
            budget = budget->parent) {
        const uint64_t used =
                atomic_load_explicit(&budget->used, memory_order_relaxed);
        const uint64_t limit =
                atomic_load_explicit(&budget->limit, memory_order_relaxed);
        if (limit != 0 && used > limit && used - limit > excess) {
            excess = used - limit;
        }
    }
    return excess;
}

static void
spend(struct slice *slice, size_t lines)
{
    slice->lines -= lines < slice->lines ? lines : slice->lines;
}

static void
enter(struct slice *slice, enum phase phase)
{
    struct rps_table *table = slice->table;
    struct rps_upkeep *upkeep = slice->upkeep;
    const uint64_t used = used_bytes(table);

    upkeep->phase = phase;
    upkeep->shard = 0;
    upkeep->segment = 0;
    upkeep->line = 0;
    upkeep->step = 0;
    upkeep->rounds = 0;
    if (phase == PHASE_BUDGET) {
        const double share =
                used == 0 ? 0.0 : (double)excess_of(table) / (double)used;
        upkeep->share = share > 0.0 ? share + SHARE_MORE : 0.0;
        upkeep->share = upkeep->share < SHARE_MOST ? upkeep->share : SHARE_MOST;
        upkeep->carry = 0.0;
        upkeep->evicted = 0;
    } else if (phase == PHASE_COMPACT) {
        upkeep->used = used;
        rps_compact_begin(table);
    } else if (phase == PHASE_COLD) {
        upkeep->evicted = 1; /* the budget has its turn yet */
    }
}

/* The next segment of the phase; true: there was none. */
static bool
next_segment(struct slice *slice, const struct rps_shard *shard)
{
    struct rps_upkeep *upkeep = slice->upkeep;

    upkeep->line = 0;
    upkeep->segment++;
    if (upkeep->segment < shard->index.segment_count) {
        return false;
    }
    upkeep->segment = 0;
    upkeep->shard++;
    return upkeep->shard == slice->table->shard_count;
}

/* Lines of one segment. True: the phase is over. */
static bool
cold_slice(struct slice *slice)
{
    struct rps_upkeep *upkeep = slice->upkeep;
    struct rps_shard *shard = &slice->table->shards[upkeep->shard];
    bool over = false;

    if (!rps_ages_matter(&slice->table->spec)) {
        return true;
    }
    pthread_mutex_lock(&shard->lock);
    if (upkeep->segment < shard->index.segment_count) {
        const struct rps_segment *segment =
                &shard->index.segments[upkeep->segment];
        while (slice->lines > 0 && upkeep->line < segment->line_count) {
            rps_evict_cold_locked(slice->table, shard,
                    &segment->lines[upkeep->line], slice->tick, slice->report);
            upkeep->line += 2;
            spend(slice, 2);
        }
        if (upkeep->line >= segment->line_count) {
            over = next_segment(slice, shard);
        }
    } else {
        over = next_segment(slice, shard);
    }
    pthread_mutex_unlock(&shard->lock);
    return over;
}

static void
age_counts(struct slice *slice, struct rps_shard *shard)
{
    const size_t places = slice->lines * RPS_LINE_KEYS;

    pthread_mutex_lock(&shard->lock);
    spend(slice, places < shard->counts.places
                         ? slice->lines
                         : shard->counts.places / RPS_LINE_KEYS + 1);
    if (rps_counts_age(&shard->counts, places)) {
        rps_counts_trim(&shard->counts);
        slice->upkeep->shard++;
    }
    pthread_mutex_unlock(&shard->lock);
}

static bool
counts_slice(struct slice *slice)
{
    struct rps_table *table = slice->table;
    struct rps_upkeep *upkeep = slice->upkeep;
    const uint64_t every = rps_cold_ticks(&table->spec);

    if (rps_admits_all(table) || every == 0) {
        return true;
    }
    if (upkeep->shard == 0 && upkeep->segment == 0 && upkeep->aged == 0) {
        upkeep->aged = slice->tick; /* the first pass */
    }
    if (slice->tick < upkeep->aged || slice->tick - upkeep->aged < every) {
        return true;
    }
    if (table->sketch == NULL) {
        age_counts(slice, &table->shards[upkeep->shard]);
    } else {
        rps_sketch_age(table->sketch, upkeep->shard);
        spend(slice, RPS_SKETCH_CELLS / 64);
        upkeep->shard++;
    }
    if (upkeep->shard <
            (table->sketch == NULL ? table->shard_count : RPS_SLOT_COUNT)) {
        return false;
    }
    upkeep->aged = slice->tick;
    return true;
}

/* A share of one segment's rows. */
static void
evict_share_locked(
        struct slice *slice, struct rps_shard *shard, struct rps_segment *from)
{
    struct rps_upkeep *upkeep = slice->upkeep;
    const struct rps_guard none = {.bits = NULL};

    if (upkeep->line == 0) {
        upkeep->carry += upkeep->share * (double)from->count;
        upkeep->line = 1;
    }
    while (upkeep->carry >= 1.0 && slice->lines > 0 &&
            rps_evict_one_locked(slice->table, shard, from,
                    rps_mix64(upkeep->evicted ^ upkeep->shard), &none)) {
        upkeep->carry -= 1.0;
        upkeep->evicted++;
        slice->report->full++;
        slice->report->examined += RPS_EVICT_ROWS;
        spend(slice, EVICT_LINES);
    }
}

static bool
budget_slice(struct slice *slice)
{
    struct rps_table *table = slice->table;
    struct rps_upkeep *upkeep = slice->upkeep;
    struct rps_shard *shard = &table->shards[upkeep->shard];
    bool over = false;

    if (table->spec.on_full == RPS_ON_FULL_REFUSE || upkeep->share <= 0.0 ||
            !rps_may_evict(table)) {
        return true;
    }
    pthread_mutex_lock(&shard->lock);
    if (upkeep->segment < shard->index.segment_count) {
        evict_share_locked(
                slice, shard, &shard->index.segments[upkeep->segment]);
    }
    if (slice->lines > 0) {
        over = next_segment(slice, shard);
    }
    pthread_mutex_unlock(&shard->lock);
    spend(slice, 1);
    return over;
}

static bool
compact_slice(struct slice *slice)
{
    struct rps_upkeep *upkeep = slice->upkeep;

    if (rps_compact_slice(slice->table, &slice->lines)) {
        upkeep->shard++;
        upkeep->segment = 0;
        upkeep->line = 0;
        upkeep->step = 0;
        upkeep->rounds = 0;
    }
    spend(slice, 1);
    return upkeep->shard == slice->table->shard_count;
}

/* After compaction. True: the pass is over. */
static bool
is_within_budget(struct slice *slice)
{
    const struct rps_upkeep *upkeep = slice->upkeep;

    if (excess_of(slice->table) > 0) {
        rps_arena_trim(&slice->table->lines);
        rps_arena_trim(&slice->table->cells);
    }
    if (excess_of(slice->table) > 0) {
        if (used_bytes(slice->table) < upkeep->used) {
            enter(slice, PHASE_COMPACT);
            return false;
        }
        if (upkeep->evicted > 0) {
            enter(slice, PHASE_BUDGET);
            return false;
        }
    }
    enter(slice, PHASE_COLD);
    return true;
}

/* Phases, until the pass is over, which is true, or the slice is. */
static bool
advance(struct slice *slice)
{
    static bool (*const phases[])(struct slice *) = {
            cold_slice, counts_slice, compact_slice, budget_slice};
    struct rps_upkeep *upkeep = slice->upkeep;

    while (slice->lines > 0) {
        if (!phases[upkeep->phase](slice)) {
            continue;
        }
        switch (upkeep->phase) {
        case PHASE_COLD:
            enter(slice, PHASE_COUNTS);
            break;
        case PHASE_COMPACT:
            if (is_within_budget(slice)) {
                return true;
            }
            break;
        default:
            enter(slice, PHASE_COMPACT);
            break;
        }
    }
    return false;
}

bool
rps_table_maintain(struct rps_table *table, struct rps_now now, size_t lines,
        struct rps_evict_report *report)
{
    struct slice slice = {.table = table,
            .upkeep = &table->upkeep,
            .lines = lines,
            .report = report};
    bool over = false;

    if (rps_save_buffer_is_tight(table->buffer)) { /* rows that leave need it */
        report->bytes_before = report->bytes_after = used_bytes(table);
        return false;
    }
    pthread_mutex_lock(&table->making); /* what a tick is may be set under it */
    slice.tick = rps_tick_of(&table->spec, now);
    rps_table_restamp_due(table, slice.tick);
    report->bytes_before = used_bytes(table);
    over = advance(&slice);
    report->bytes_after = used_bytes(table);
    pthread_mutex_unlock(&table->making);
    return !over;
}

/* The next slice is the first of a pass. */
static void
begin_anew(struct rps_table *table)
{
    struct slice slice = {.table = table, .upkeep = &table->upkeep};

    pthread_mutex_lock(&table->making);
    rps_upkeep_stop(table);
    enter(&slice, PHASE_COLD);
    pthread_mutex_unlock(&table->making);
}

void
rps_table_evict(struct rps_table *table, struct rps_now now,
        struct rps_evict_report *report)
{
    uint64_t before = 0;

    *report = (struct rps_evict_report){.examined = 0};
    begin_anew(table);
    before = used_bytes(table);
    while (rps_table_maintain(table, now, PASS_LINES, report)) {
    }
    rps_arena_trim(&table->lines);
    rps_arena_trim(&table->cells);
    report->bytes_before = before;
    report->bytes_after = used_bytes(table);
}

void
rps_upkeep_stop(struct rps_table *table)
{
    if (table->upkeep.draining) {
        struct rps_shard *shard = &table->shards[table->upkeep.shard];
        pthread_mutex_lock(&shard->lock);
        (void)rps_compact_stop_locked(table, shard);
        pthread_mutex_unlock(&shard->lock);
    }
    table->upkeep.phase = PHASE_COLD;
    table->upkeep.evicted = 1;
    table->upkeep.shard = 0;
    table->upkeep.segment = 0;
    table->upkeep.line = 0;
    table->upkeep.step = 0;
}
