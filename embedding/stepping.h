/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The third pass of an update (apply.c): an optimizer step a distinct key.
 *
 *   each shard, a slice of keys at a time: combine           (no lock)
 *   then find or create, step and stamp their rows           (its lock)
 */
#ifndef RPS_EMBEDDING_STEPPING_H
#define RPS_EMBEDDING_STEPPING_H

#include "embedding/combine.h"
#include "embedding/group.h"
#include "embedding/optimizer.h"
#include "embedding/room.h"

#define RPS_SLICE_KEYS 256u /* one lock's worth of steps */

/** An update that is being carried out. */
struct rps_apply {
    struct rps_table *table;
    const struct rps_update *update;
    struct rps_apply_report *report;
    struct rps_grouping grouping;
    struct rps_room room;
    uint64_t *uses; /* [groups] multiplicities, or NULL: all are admitted */
    uint64_t tick;  /* to stamp with */
    struct rps_step step;
    float *sums;       /* [slice_keys][dim] */
    float *scratch;    /* of rps_step_row() */
    size_t row_bytes;  /* that a step reads and writes */
    size_t slice_keys; /* <= RPS_SLICE_KEYS: as many as sums[] has room for */
    bool borrows;      /* a key's only gradient is its step's as it lies */
    bool together;     /* a burst of rows is stepped by one call */
    /* of the slice at hand: */
    const float *gradients[RPS_SLICE_KEYS]; /* NULL: refused */
    uint64_t key_uses[RPS_SLICE_KEYS];      /* multiplicities, summed */
};

/** Step all groups. Cannot fail: they have room. Threads: as
 * rps_table_apply(). */
void rps_step_groups(struct rps_apply *apply);

#endif /* RPS_EMBEDDING_STEPPING_H */
