/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disk tier: rows beyond the memory that a table may take lie in a file
 * that is mapped, as they would in memory, and what of it is read stays in
 * the system's page cache as long as there is room. The index, with the
 * meta of every row, stays in memory.
 *
 *   lower   a row that would have to be evicted for its score goes to the
 *           disk: by upkeep, before the memory is full, and one for one
 *           where a push needs room at once
 *   raise   a row that is pushed comes back at once; one that was looked up,
 *           with the next pass of upkeep. Where there is no room, another row
 *           goes for it. A row that was looked up has another turn before it
 *           is lowered
 *
 * Scratch: a checkpoint has the rows of both, and the file has no name.
 *
 * Threads: _locked: under the shard's lock.
 */
#ifndef RPS_EMBEDDING_TIER_H
#define RPS_EMBEDDING_TIER_H

#include "embedding/region.h"
#include "embedding/table_impl.h"

/**
 * Rows of the table may lie in `file`, within `budget`. Before its first row;
 * both outlive it. Its index may take more than its memory limit from now on,
 * until upkeep has lowered rows for that. Not for dense tables. Errors: NOMEM.
 */
RPS_NODISCARD rps_status rps_tier_enter(struct rps_table *table,
        struct rps_region_file *file, struct rps_budget *budget);
void rps_tier_finish(struct rps_table *table);

/** False: it has no room. */
bool rps_tier_lower_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_index_place place);

/** Returns the row as the index names it now: the same where there is no room
 * in memory. */
uint32_t rps_tier_raise_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_index_place place);

/** Of a line: rows that were looked up come back. Returns how many. */
unsigned rps_tier_raise_line_locked(struct rps_table *table,
        struct rps_shard *shard, struct rps_index_line *line);

#endif /* RPS_EMBEDDING_TIER_H */
