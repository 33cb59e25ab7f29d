/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the steps by which a shard gives memory back; upkeep.c calls them. */
#include "embedding/compact.h"

#include "embedding/index_grow.h"

#include <assert.h>
#include <string.h>

#define DRAIN_CHUNKS 256u /* at once: each round reads the shard's index */
#define ROW_LINES    4u   /* what moving a row counts as */
#define CHUNK_LINES  2048u

enum step {
    STEP_SEGMENTS,
    STEP_DRAIN,
    STEP_ROWS,
    STEP_RESTART,
    STEP_CHUNKS,
};

static void
spend(size_t *lines, size_t count)
{
    *lines -= count < *lines ? count : *lines;
}

static void
go_to(struct rps_upkeep *upkeep, enum step step)
{
    upkeep->step = step;
    upkeep->segment = 0;
    upkeep->line = 0;
}

void
rps_compact_begin(struct rps_table *table)
{
    table->upkeep.high_lines = rps_arena_high(&table->lines);
    table->upkeep.high_cells = rps_arena_high(&table->cells);
}

static bool
is_high(const struct rps_run *run, uint32_t high)
{
    return run->region != RPS_REGION_NONE && run->region >= high;
}

bool
rps_compact_stop_locked(struct rps_table *table, struct rps_shard *shard)
{
    struct rps_rows *rows = &shard->rows;

    if (!table->upkeep.draining ||
            shard != &table->shards[table->upkeep.shard]) {
        return false;
    }
    for (uint32_t i = 0; i < rows->chunk_count; i++) {
        if (rows->chunks[i].rows != 0 && rows->chunks[i].drained) {
            rps_rows_keep(rows, i);
        }
    }
    table->upkeep.draining = false;
    return true;
}

/* 1: segments get smaller, or lower. */
static void
segments_locked(struct rps_table *table, struct rps_shard *shard, size_t *lines)
{
    struct rps_index *index = &shard->index;
    struct rps_upkeep *upkeep = &table->upkeep;

    while (*lines > 0 && upkeep->segment < index->segment_count) {
        struct rps_segment *segment = &index->segments[upkeep->segment];
        const uint32_t before = segment->line_count;
        rps_index_shrink(index, segment, rps_shard_kept_locked(shard, segment));
        if (segment->line_count < before) {
            spend(lines, before);
        } else if (is_high(&segment->run, upkeep->high_lines)) {
            if (!rps_index_move(index, segment)) {
                upkeep->high_lines = RPS_REGION_NONE; /* no lower place */
            }
            spend(lines, before);
        }
        spend(lines, 1);
        upkeep->segment++;
    }
    if (upkeep->segment >= index->segment_count) {
        go_to(upkeep, STEP_DRAIN);
    }
}

/* The chunk in the highest region, or the last one of equal ones. */
static uint32_t
highest_chunk(const struct rps_rows *rows)
{
    uint32_t highest = rows->chunk_count;

    for (uint32_t i = 0; i < rows->chunk_count; i++) {
        const struct rps_chunk *chunk = &rows->chunks[i];
        if (chunk->rows != 0 && !chunk->drained &&
                (highest == rows->chunk_count ||
                        chunk->run.region >=
                                rows->chunks[highest].run.region)) {
            highest = i;
        }
    }
    return highest;
}

static uint64_t
rows_that_fit(const struct rps_rows *rows)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < rows->chunk_count; i++) {
        count += rows->chunks[i].drained ? 0 : rows->chunks[i].rows;
    }
    return count;
}

/* 2: choose chunks; an eighth more than is needed stays. */
static void
drain_locked(struct rps_upkeep *upkeep, struct rps_shard *shard)
{
    struct rps_rows *rows = &shard->rows;
    uint64_t fit = rows_that_fit(rows);
    const uint64_t needed = rows->live + shard->reserved;

    if (rows->live < fit / 4 * 3) {
        for (unsigned i = 0; i < DRAIN_CHUNKS; i++) {
            const uint32_t chunk = highest_chunk(rows);
            if (chunk == rows->chunk_count ||
                    fit - rows->chunks[chunk].rows <= needed + needed / 8) {
                break;
            }
            fit -= rows->chunks[chunk].rows;
            rps_rows_drain(rows, chunk); /* an empty one leaves at once */
            upkeep->draining = true;
        }
    }
    go_to(upkeep, upkeep->draining ? STEP_ROWS : STEP_RESTART);
}

static void
move_row_locked(struct rps_rows *rows, uint32_t *row)
{
    const uint32_t number = rps_rows_take(rows);

    memcpy(rps_rows_at(rows, number), rps_rows_at(rows, *row - 1),
            rows->stride);
    rps_rows_copy_bits(rows, number, rows, *row - 1);
    rps_rows_give(rows, *row - 1);
    *row = number + 1;
}

/* False: there is no place for a row; those left stay where they are. */
static bool
move_line_locked(
        struct rps_shard *shard, struct rps_index_line *line, size_t *lines)
{
    struct rps_rows *rows = &shard->rows;

    for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
        const uint32_t row = line->rows[lane];
        if (row == 0 ||
                !rows->chunks[rps_rows_chunk_of(rows, row - 1)].drained) {
            continue;
        }
        if (rows->spare <= shard->reserved) {
            return false;
        }
        move_row_locked(rows, &line->rows[lane]);
        spend(lines, ROW_LINES);
    }
    spend(lines, 1);
    return true;
}

/* Segments are never fewer, and new ones come last: none is missed. */
static void
rows_locked(struct rps_table *table, struct rps_shard *shard, size_t *lines)
{
    struct rps_index *index = &shard->index;
    struct rps_upkeep *upkeep = &table->upkeep;

    while (*lines > 0 && upkeep->draining &&
            upkeep->segment < index->segment_count) {
        struct rps_segment *segment = &index->segments[upkeep->segment];
        if (upkeep->line >= segment->line_count) {
            upkeep->segment++;
            upkeep->line = 0;
            continue;
        }
        if (!move_line_locked(shard, &segment->lines[upkeep->line], lines)) {
            (void)rps_compact_stop_locked(table, shard);
        }
        upkeep->line++;
    }
    if (!upkeep->draining) { /* someone needed the room */
        go_to(upkeep, STEP_RESTART);
    } else if (upkeep->segment >= index->segment_count) {
        /* what a growing segment carried past is still in a drained chunk */
        (void)rps_compact_stop_locked(table, shard);
        go_to(upkeep, STEP_DRAIN);
        upkeep->rounds++;
        if (upkeep->rounds >= RPS_COMPACT_ROUNDS) {
            go_to(upkeep, STEP_RESTART);
        }
    }
}

static void
refill_locked(struct rps_shard *shard, const struct rps_rows *old)
{
    struct rps_index *index = &shard->index;

    for (uint32_t s = 0; s < index->segment_count; s++) {
        for (uint32_t i = 0; i < index->segments[s].line_count; i++) {
            struct rps_index_line *line = &index->segments[s].lines[i];
            for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
                if (line->rows[lane] != 0) {
                    const uint32_t number = rps_rows_take(&shard->rows);
                    memcpy(rps_rows_at(&shard->rows, number),
                            rps_rows_at(old, line->rows[lane] - 1),
                            old->stride);
                    rps_rows_copy_bits(
                            &shard->rows, number, old, line->rows[lane] - 1);
                    line->rows[lane] = number + 1;
                }
            }
        }
    }
}

/* 3: all rows of a shard that has one chunk, in a smaller one. */
static void
restart_locked(
        struct rps_upkeep *upkeep, struct rps_shard *shard, size_t *lines)
{
    struct rps_rows *rows = &shard->rows;
    const uint64_t needed = rows->live + shard->reserved;
    struct rps_rows old = *rows;
    struct rps_rows fresh;

    go_to(upkeep, STEP_CHUNKS);
    if (rows->chunk_count - rows->gap_count != 1 ||
            needed >= rows_that_fit(rows) / 8 * 3 ||
            rows_that_fit(rows) <= RPS_ROWS_FIRST) {
        return;
    }
    rps_rows_init(&fresh, rows->arena, rows->stride);
    assert(fresh.stride == rows->stride);
    if (needed > 0 && rps_rows_reserve(&fresh, needed) != RPS_OK) {
        rps_rows_finish(&fresh);
        return;
    }
    *rows = fresh;
    refill_locked(shard, &old);
    rps_rows_finish(&old);
    spend(lines, CHUNK_LINES);
}

/* 4: chunks out of regions that are to be empty. True: done. */
static bool
chunks_locked(struct rps_table *table, struct rps_shard *shard, size_t *lines)
{
    struct rps_rows *rows = &shard->rows;
    struct rps_upkeep *upkeep = &table->upkeep;

    while (*lines > 0 && upkeep->segment < rows->chunk_count) {
        const struct rps_chunk *chunk = &rows->chunks[upkeep->segment];
        if (chunk->rows != 0 && is_high(&chunk->run, upkeep->high_cells)) {
            if (!rps_rows_move(rows, upkeep->segment)) {
                upkeep->high_cells = RPS_REGION_NONE;
            }
            spend(lines, CHUNK_LINES);
        }
        spend(lines, 1);
        upkeep->segment++;
    }
    return upkeep->segment >= rows->chunk_count;
}

bool
rps_compact_slice(struct rps_table *table, size_t *lines)
{
    struct rps_upkeep *upkeep = &table->upkeep;
    struct rps_shard *shard = &table->shards[upkeep->shard];
    bool done = false;

    pthread_mutex_lock(&shard->lock);
    switch (upkeep->step) {
    case STEP_SEGMENTS:
        segments_locked(table, shard, lines);
        break;
    case STEP_DRAIN:
        drain_locked(upkeep, shard);
        break;
    case STEP_ROWS:
        rows_locked(table, shard, lines);
        break;
    case STEP_RESTART:
        restart_locked(upkeep, shard, lines);
        break;
    default:
        done = chunks_locked(table, shard, lines);
        break;
    }
    pthread_mutex_unlock(&shard->lock);
    return done;
}
