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

/**
 * NULL: no memory. What it takes comes from the budget (NULL: no limit), and
 * is bytes_max at most, but for the list of slots.
 */
struct rps_sketch *rps_sketch_create(
        struct rps_budget *budget, uint64_t bytes_max);
void rps_sketch_destroy(struct rps_sketch *sketch);

uint32_t rps_sketch_get(struct rps_sketch *sketch, uint64_t hash);

/**
 * Count n >= 1 more and return the new count. Cannot fail: without memory or
 * budget for its slot a key is not counted.
 */
uint32_t rps_sketch_add(struct rps_sketch *sketch, uint64_t hash, uint64_t n);

/** Halve one slot's cells. A slot that is all zeros gives its memory back. */
void rps_sketch_age(struct rps_sketch *sketch, uint32_t slot);

uint64_t rps_sketch_bytes(struct rps_sketch *sketch);

/** One cell, by slot * RPS_SKETCH_CELLS + cell. False: no memory or budget. */
bool rps_sketch_set_cell(struct rps_sketch *sketch, uint64_t id, uint8_t count);

/**
 * Visit the cells of one slot that are not 0, under its lock. Stops at the
 * first status that is not OK and returns it.
 */
rps_status rps_sketch_visit(struct rps_sketch *sketch, uint32_t slot,
        rps_status (*visit)(void *context, uint64_t id, uint8_t count),
        void *context);

#endif /* RPS_EMBEDDING_SKETCH_H */
