/* SPDX-License-Identifier: Apache-2.0 */
/* A set of the 4096 slots of keys. */
#ifndef RPS_EMBEDDING_CHECKPOINT_SLOTS_H
#define RPS_EMBEDDING_CHECKPOINT_SLOTS_H

#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>

/** Zeroed it is empty: slot s is in it if bit s % 64 of words[s / 64] is. */
struct rps_ckpt_slots {
    uint64_t words[RPS_SLOT_COUNT / 64];
};

static inline bool
rps_ckpt_slots_has(const struct rps_ckpt_slots *slots, uint32_t slot)
{
    return (slots->words[slot / 64] >> (slot % 64) & 1u) != 0;
}

/** Adds first..last. */
static inline void
rps_ckpt_slots_add(struct rps_ckpt_slots *slots, uint32_t first, uint32_t last)
{
    for (uint32_t slot = first; slot <= last; slot++) {
        slots->words[slot / 64] |= (uint64_t)1 << (slot % 64);
    }
}

/** Adds those of first..last that `but` has not; false: there is none. */
static inline bool
rps_ckpt_slots_add_but(struct rps_ckpt_slots *slots, uint32_t first,
        uint32_t last, const struct rps_ckpt_slots *but)
{
    bool any = false;

    for (uint32_t slot = first; slot <= last; slot++) {
        if (!rps_ckpt_slots_has(but, slot)) {
            rps_ckpt_slots_add(slots, slot, slot);
            any = true;
        }
    }
    return any;
}

#endif /* RPS_EMBEDDING_CHECKPOINT_SLOTS_H */
