/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/tier.h"

#include "base/hash.h"
#include "embedding/evict.h"

#include <string.h>

rps_status
rps_tier_enter(struct rps_table *table, struct rps_region_file *file,
        struct rps_budget *budget)
{
    if (table->spec.dense_elements != 0) {
        return RPS_OK;
    }
    rps_budget_init(&table->disk_budget, budget, 0);
    if (!rps_arena_init(&table->disk_cells, &table->disk_budget, file)) {
        return RPS_E_NOMEM;
    }
    for (size_t i = 0; i < table->shard_count; i++) {
        struct rps_shard *shard = &table->shards[i];
        rps_rows_init(
                &shard->disk, &table->disk_cells, rps_table_row_bytes(table));
        shard->disk.bit_count = RPS_ROW_BITS;
        shard->rows.bit_count = RPS_ROW_BITS;
    }
    table->lines.exceeds = true;
    table->tiered = true;
    return RPS_OK;
}

void
rps_tier_finish(struct rps_table *table)
{
    if (table->tiered) {
        rps_arena_finish(&table->disk_cells);
    }
}

/* The row, its bits and what the index says of it. */
static uint32_t
move_locked(struct rps_rows *from, struct rps_rows *to, uint32_t tier,
        struct rps_index_place place)
{
    const uint32_t old = rps_row_number(place.row);
    const uint32_t number = rps_rows_take(to);

    memcpy(rps_rows_at(to, number), rps_rows_at(from, old), from->stride);
    rps_rows_copy_bits(to, number, from, old);
    rps_rows_give(from, old);
    place.line->rows[place.lane] = (number + 1) | tier;
    return place.line->rows[place.lane];
}

bool
rps_tier_lower_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_index_place place)
{
    if (!table->tiered || rps_rows_reserve(&shard->disk, 1) != RPS_OK) {
        return false;
    }
    (void)move_locked(&shard->rows, &shard->disk, RPS_ROW_ON_DISK, place);
    rps_count(&table->disk_rows, 1);
    rps_count(&table->lowered, 1);
    return true;
}

static bool
is_over_limit(const struct rps_table *table)
{
    for (const struct rps_budget *budget = &table->budget; budget != NULL;
            budget = budget->parent) {
        /* relaxed: a moment ago it may have been another way */
        const uint64_t limit =
                atomic_load_explicit(&budget->limit, memory_order_relaxed);
        if (limit != 0 && atomic_load_explicit(&budget->used,
                                  memory_order_relaxed) > limit) {
            return true;
        }
    }
    return false;
}

/* For a row in memory: there is some, or another row goes to the disk. */
static bool
make_room_locked(struct rps_table *table, struct rps_shard *shard, uint64_t key)
{
    const uint64_t needed = shard->reserved + 1;

    if (!is_over_limit(table) &&
            rps_rows_reserve(&shard->rows, needed) == RPS_OK) {
        return true;
    }
    return rps_evict_lower_locked(table, shard,
                   rps_mix64(key ^ rps_counted(&table->lowered))) &&
           shard->rows.spare >= needed;
}

uint32_t
rps_tier_raise_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_index_place place)
{
    if (!make_room_locked(table, shard, place.line->keys[place.lane])) {
        return place.row;
    }
    atomic_fetch_sub_explicit(&table->disk_rows, 1, memory_order_relaxed);
    rps_count(&table->raised, 1);
    return move_locked(&shard->disk, &shard->rows, 0, place);
}

unsigned
rps_tier_raise_line_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_index_line *line)
{
    unsigned raised = 0;

    for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
        const struct rps_index_place place = {
                .line = line, .lane = lane, .row = line->rows[lane]};
        if ((place.row & RPS_ROW_ON_DISK) != 0 &&
                rps_shard_bit(shard, RPS_ROW_TOUCHED, place.row)) {
            raised += rps_tier_raise_locked(table, shard, place) != place.row;
        }
    }
    return raised;
}
