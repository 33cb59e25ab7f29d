/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the sketches of a table, by slot. */
#include "embedding/sketch.h"

#include "embedding/counts.h"
#include "embedding/table.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ROW_COUNT     4u
#define ROW_LOG2      11u
#define ROW_CELLS     (1u << ROW_LOG2)
#define NEWCOMERS_MAX ROW_CELLS /* then the slot is aged */
#define LOCK_COUNT    16u

_Static_assert(ROW_COUNT *ROW_CELLS == RPS_SKETCH_CELLS, "ids hold cells");
_Static_assert(ROW_COUNT *ROW_LOG2 <= 52, "the slot's bits stay out of it");

struct slot {
    uint32_t newcomers; /* keys whose count was 0, since it was aged */
    uint8_t cells[ROW_COUNT * ROW_CELLS];
};

#define SLOT_BYTES sizeof(struct slot)

struct rps_sketch {
    pthread_mutex_t locks[LOCK_COUNT];  /* by slot mod LOCK_COUNT */
    struct slot *slots[RPS_SLOT_COUNT]; /* its lock; NULL: all zeros */
    /* its lock; of each slot, as enum rps_frozen, and its copy */
    uint8_t frozen[RPS_SLOT_COUNT];
    uint8_t *copies[RPS_SLOT_COUNT]; /* NULL: all zeros */
    struct rps_budget *budget;
    _Atomic uint64_t bytes; /* read without a lock: a sum, so relaxed */
};

uint64_t
rps_sketch_bytes(struct rps_sketch *sketch)
{
    return atomic_load_explicit(&sketch->bytes, memory_order_relaxed);
}

rps_status
rps_sketch_create(struct rps_sketch **sketch_out, struct rps_budget *budget)
{
    struct rps_sketch *sketch = calloc(1, sizeof(*sketch));
    rps_status status = RPS_E_NOMEM;
    unsigned made = 0;

    *sketch_out = NULL;
    if (sketch == NULL) {
        return status;
    }
    sketch->budget = budget;
    while (made < LOCK_COUNT &&
            pthread_mutex_init(&sketch->locks[made], NULL) == 0) {
        made++;
    }
    if (made == LOCK_COUNT) {
        if (budget == NULL ||
                rps_budget_take(budget, RPS_SKETCH_BUDGET_BYTES)) {
            sketch->bytes = sizeof(*sketch);
            *sketch_out = sketch;
            return RPS_OK;
        }
        status = RPS_E_LIMIT;
    }
    while (made > 0) {
        pthread_mutex_destroy(&sketch->locks[--made]);
    }
    free(sketch);
    return status;
}

void
rps_sketch_destroy(struct rps_sketch *sketch)
{
    if (sketch == NULL) {
        return;
    }
    for (uint32_t slot = 0; slot < RPS_SLOT_COUNT; slot++) {
        free(sketch->slots[slot]);
        free(sketch->copies[slot]);
    }
    for (unsigned i = 0; i < LOCK_COUNT; i++) {
        pthread_mutex_destroy(&sketch->locks[i]);
    }
    rps_budget_give(sketch->budget, RPS_SKETCH_BUDGET_BYTES);
    free(sketch);
}

static void
lock_slot(struct rps_sketch *sketch, uint32_t slot)
{
    pthread_mutex_lock(&sketch->locks[slot % LOCK_COUNT]);
}

static void
unlock_slot(struct rps_sketch *sketch, uint32_t slot)
{
    pthread_mutex_unlock(&sketch->locks[slot % LOCK_COUNT]);
}

_Static_assert(sizeof(struct rps_sketch) + RPS_SLOT_COUNT * SLOT_BYTES <=
                       RPS_SKETCH_BUDGET_BYTES,
        "all slots are in the budget");

static uint8_t *
cell_of(struct slot *slot, uint64_t hash, unsigned row)
{
    return &slot->cells[row * ROW_CELLS +
                        ((hash >> (row * ROW_LOG2)) & (ROW_CELLS - 1))];
}

static uint32_t
count_locked(struct slot *slot, uint64_t hash)
{
    uint32_t least = RPS_SKETCH_COUNT_MAX;

    for (unsigned row = 0; row < ROW_COUNT; row++) {
        const uint32_t cell = *cell_of(slot, hash, row);
        least = cell < least ? cell : least;
    }
    return least;
}

uint32_t
rps_sketch_get(struct rps_sketch *sketch, uint64_t hash)
{
    const uint32_t slot = rps_hash_slot(hash);
    uint32_t count = 0;

    lock_slot(sketch, slot);
    if (sketch->slots[slot] != NULL) {
        count = count_locked(sketch->slots[slot], hash);
    }
    unlock_slot(sketch, slot);
    return count;
}

/* Before any change of the slot. */
static void
keep_frozen_locked(struct rps_sketch *sketch, uint32_t slot)
{
    if (sketch->frozen[slot] != RPS_FROZEN_SHARED) {
        return;
    }
    sketch->frozen[slot] = RPS_FROZEN_COPIED;
    if (sketch->slots[slot] == NULL) {
        return;
    }
    sketch->copies[slot] = malloc(RPS_SKETCH_CELLS);
    if (sketch->copies[slot] == NULL) {
        sketch->frozen[slot] = RPS_FROZEN_LOST;
        return;
    }
    memcpy(sketch->copies[slot], sketch->slots[slot]->cells, RPS_SKETCH_CELLS);
}

/* To be changed. NULL: no memory. */
static struct slot *
need_slot_locked(struct rps_sketch *sketch, uint32_t slot)
{
    keep_frozen_locked(sketch, slot);
    if (sketch->slots[slot] == NULL) {
        sketch->slots[slot] = calloc(1, SLOT_BYTES);
        if (sketch->slots[slot] != NULL) {
            atomic_fetch_add_explicit(
                    &sketch->bytes, SLOT_BYTES, memory_order_relaxed);
        }
    }
    return sketch->slots[slot];
}

static void
drop_slot_locked(struct rps_sketch *sketch, uint32_t slot)
{
    free(sketch->slots[slot]);
    sketch->slots[slot] = NULL;
    atomic_fetch_sub_explicit(&sketch->bytes, SLOT_BYTES, memory_order_relaxed);
}

/* True: something is left. */
static bool
halve(struct slot *slot)
{
    uint8_t all = 0;

    for (size_t i = 0; i < RPS_SKETCH_CELLS; i++) {
        slot->cells[i] /= 2;
        all |= slot->cells[i];
    }
    slot->newcomers = 0;
    return all != 0;
}

static uint32_t
add_locked(struct slot *slot, uint64_t hash, uint64_t n)
{
    uint32_t count = count_locked(slot, hash);

    if (count == 0) {
        if (slot->newcomers == NEWCOMERS_MAX) {
            halve(slot);
        }
        slot->newcomers++;
    }
    count = n < RPS_SKETCH_COUNT_MAX - count ? count + (uint32_t)n
                                             : RPS_SKETCH_COUNT_MAX;
    for (unsigned row = 0; row < ROW_COUNT; row++) {
        uint8_t *cell = cell_of(slot, hash, row);
        *cell = *cell < count ? (uint8_t)count : *cell;
    }
    return count;
}

uint32_t
rps_sketch_add(struct rps_sketch *sketch, uint64_t hash, uint64_t n)
{
    const uint32_t at = rps_hash_slot(hash);
    uint32_t count =
            n < RPS_SKETCH_COUNT_MAX ? (uint32_t)n : RPS_SKETCH_COUNT_MAX;
    struct slot *slot = NULL;

    assert(n > 0);

    lock_slot(sketch, at);
    slot = need_slot_locked(sketch, at);
    if (slot != NULL) {
        count = add_locked(slot, hash, n);
    }
    unlock_slot(sketch, at);
    return count;
}

void
rps_sketch_age(struct rps_sketch *sketch, uint32_t slot)
{
    lock_slot(sketch, slot);
    keep_frozen_locked(sketch, slot);
    if (sketch->slots[slot] != NULL && !halve(sketch->slots[slot])) {
        drop_slot_locked(sketch, slot);
    }
    unlock_slot(sketch, slot);
}

bool
rps_sketch_set_cell(struct rps_sketch *sketch, uint64_t id, uint8_t count)
{
    const uint32_t at = (uint32_t)(id / RPS_SKETCH_CELLS);
    struct slot *slot = NULL;

    assert(id / RPS_SKETCH_CELLS < RPS_SLOT_COUNT);

    lock_slot(sketch, at);
    slot = need_slot_locked(sketch, at);
    if (slot != NULL) {
        slot->cells[id % RPS_SKETCH_CELLS] = count;
    }
    unlock_slot(sketch, at);
    return slot != NULL;
}

static rps_status
visit_locked(const struct slot *slot, uint64_t base,
        rps_status (*visit)(void *context, uint64_t id, uint8_t count),
        void *context)
{
    rps_status status = RPS_OK;

    for (size_t i = 0; status == RPS_OK && i < RPS_SKETCH_CELLS; i++) {
        if (slot->cells[i] != 0) {
            status = visit(context, base + i, slot->cells[i]);
        }
    }
    return status;
}

rps_status
rps_sketch_visit(struct rps_sketch *sketch, uint32_t slot,
        rps_status (*visit)(void *context, uint64_t id, uint8_t count),
        void *context)
{
    rps_status status = RPS_OK;

    lock_slot(sketch, slot);
    if (sketch->slots[slot] != NULL) {
        status = visit_locked(sketch->slots[slot],
                (uint64_t)slot * RPS_SKETCH_CELLS, visit, context);
    }
    unlock_slot(sketch, slot);
    return status;
}

void
rps_sketch_freeze(struct rps_sketch *sketch)
{
    for (uint32_t slot = 0; slot < RPS_SLOT_COUNT; slot++) {
        lock_slot(sketch, slot);
        assert(sketch->frozen[slot] == RPS_FROZEN_NOT);
        sketch->frozen[slot] = RPS_FROZEN_SHARED;
        unlock_slot(sketch, slot);
    }
}

void
rps_sketch_thaw(struct rps_sketch *sketch)
{
    for (uint32_t slot = 0; slot < RPS_SLOT_COUNT; slot++) {
        lock_slot(sketch, slot);
        free(sketch->copies[slot]);
        sketch->copies[slot] = NULL;
        sketch->frozen[slot] = RPS_FROZEN_NOT;
        unlock_slot(sketch, slot);
    }
}

bool
rps_sketch_frozen(struct rps_sketch *sketch, uint32_t slot, uint8_t *cells)
{
    const uint8_t *from = NULL;
    bool kept = false;

    lock_slot(sketch, slot);
    kept = sketch->frozen[slot] != RPS_FROZEN_LOST;
    if (sketch->frozen[slot] == RPS_FROZEN_COPIED) {
        from = sketch->copies[slot];
    } else if (sketch->slots[slot] != NULL) {
        from = sketch->slots[slot]->cells;
    }
    if (from != NULL) {
        memcpy(cells, from, RPS_SKETCH_CELLS);
    } else {
        memset(cells, 0, RPS_SKETCH_CELLS);
    }
    unlock_slot(sketch, slot);
    return kept;
}
