/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was pushed of keys without a row, in fixed memory: a count-min sketch
 * (Cormode and Muthukrishnan, 2005) for each slot of the key, so that it can
 * move to another server with its slot. A slot's sketch is made when the
 * first of its keys is counted: 8 KiB a slot that is used, 32 MiB at most.
 *
 *   cells[4][2048] u8      a key's cell in row r: bits 11r..11r+10 of its
 *                          hash; its count is the least of its four cells
 *
 * An addition raises only cells below the new count (conservative update),
 * so a count is never too small and rarely too large: of a slot's first 2048
 * keys 4 % find a count that is not theirs, of the last of them 16 %. Counts
 * stop at 255.
 *
 * Ageing: after 2048 keys whose count was 0, all cells of the slot are
 * halved, rounded down. A single key cannot be forgotten.
 *
 * Frozen, for a cut (cut.h): a slot as it is then is copied before its next
 * change, and the copy is kept until the sketch is thawed.
 *
 * Threads: any; a lock of its own a sixteenth of the slots, held for one key
 * or one slot, inside a shard's lock and with none inside it.
 */
#ifndef RPS_EMBEDDING_SKETCH_H
#define RPS_EMBEDDING_SKETCH_H

#include "base/hash.h"
#include "embedding/budget.h"

#include <recps/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_SKETCH_COUNT_MAX 255u

struct rps_sketch;

/* Taken from the budget at once, so that no slot is without cells later:
 * keys that are not counted would never be admitted. */
#define RPS_SKETCH_BUDGET_BYTES ((uint64_t)33 << 20)

/** Errors: NOMEM, LIMIT (the budget, if not NULL, has no room for it). */
RPS_NODISCARD rps_status rps_sketch_create(
        struct rps_sketch **sketch_out, struct rps_budget *budget);
void rps_sketch_destroy(struct rps_sketch *sketch);

uint32_t rps_sketch_get(struct rps_sketch *sketch, uint64_t hash);

/**
 * Count n >= 1 more and return the new count. Cannot fail: where the system
 * has no memory for its slot a key is not counted, this time.
 */
uint32_t rps_sketch_add(struct rps_sketch *sketch, uint64_t hash, uint64_t n);

/** Halve one slot's cells. A slot that is all zeros gives its memory back. */
void rps_sketch_age(struct rps_sketch *sketch, uint32_t slot);

uint64_t rps_sketch_bytes(struct rps_sketch *sketch);

/** One cell, by slot * RPS_SKETCH_CELLS + cell. False: no memory. */
bool rps_sketch_set_cell(struct rps_sketch *sketch, uint64_t id, uint8_t count);

/**
 * Visit the cells of one slot that are not 0, under its lock. Stops at the
 * first status that is not OK and returns it.
 */
rps_status rps_sketch_visit(struct rps_sketch *sketch, uint32_t slot,
        rps_status (*visit)(void *context, uint64_t id, uint8_t count),
        void *context);

/** From now on the cells are kept as they are now; thaw forgets that. */
void rps_sketch_freeze(struct rps_sketch *sketch);
void rps_sketch_thaw(struct rps_sketch *sketch);

/** One slot's cells as they were at the freeze. False: there was no memory
 * to keep them. cells[RPS_SKETCH_CELLS]. */
bool rps_sketch_frozen(
        struct rps_sketch *sketch, uint32_t slot, uint8_t *cells);

#endif /* RPS_EMBEDDING_SKETCH_H */
