/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving memory back after rows left. Per shard:
 *
 *   1  segments of the index that are less than 3/8 full get smaller
 *   2  where less than 3/4 of the places for rows are taken, chunks are
 *      drained: those of the highest regions first; their rows move
 *   3  the only chunk of a shard, less than 3/8 full, gets smaller
 *   4  what lies in the highest regions moves to lower ones, whole, where
 *      that frees regions
 *
 * Threads: under table->making; each call takes the shard's lock for itself.
 */
#ifndef RPS_EMBEDDING_COMPACT_H
#define RPS_EMBEDDING_COMPACT_H

#include "embedding/table_impl.h"

/** Before the first shard of a pass: which regions are to be emptied. */
void rps_compact_begin(struct rps_table *table);

/**
 * Compact upkeep.shard from upkeep.segment on, by about `lines` lines or as
 * many rows; less *lines. True: the shard is done.
 */
bool rps_compact_slice(struct rps_table *table, size_t *lines);

/**
 * The shard's drained chunks may be used again: room is needed now. False:
 * it had none.
 */
bool rps_compact_stop_locked(struct rps_table *table, struct rps_shard *shard);

/**
 * Upkeep starts anew with its next slice.
 *
 * Threads: under table->making, with no shard's lock.
 */
void rps_upkeep_stop(struct rps_table *table);

#endif /* RPS_EMBEDDING_COMPACT_H */
