/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the bags of a table are laid out for the servers to pool: for each PS
 * the occurrences that it owns, in bag order, cut into pieces that fit a
 * frame. A piece names its distinct keys once; a bag that lies in several
 * pieces has an entry in each.
 */
#ifndef RPS_CLIENT_BAGS_H
#define RPS_CLIENT_BAGS_H

#include "client/batch.h"
#include "proto/message.h"

/** One part of a request. Its arrays are runs of the plan's. */
struct rps_bag_piece {
    uint32_t key_first, key_count;
    uint32_t occurrence_first, occurrence_count;
    uint32_t entry_first, entry_count;
    size_t bytes; /* of a frame's: by request, reply, floats, sums */
};

#define RPS_ENTRY_FIRST UINT32_MAX

struct rps_bag_plan {
    struct rps_bag_piece *pieces; /* [starts[ps_count]] */
    uint32_t *starts;             /* [ps_count + 1]: a PS's pieces */
    uint32_t *keys;               /* distinct keys, by their dedup index */
    uint32_t *counts;             /* occurrences of each of `keys` */
    uint32_t *index;              /* of occurrences, into the piece's keys */
    uint32_t *bags;               /* of entries */
    uint32_t *ends;  /* of entries: the piece's occurrences up to there */
    uint32_t *order; /* of entries: FIRST of its bag, or 0, 1, 2, … */
    uint32_t rest;   /* entries that are not the first of their bag */
    uint32_t *sizes; /* [bag_count]: keys of the whole bag that count */
};

/**
 * Lay it out. row_bytes: of a bag's row on the wire, in the reply or (push)
 * beside the keys; piece_bytes: what a piece may take. NOMEM.
 */
rps_status rps_bag_plan_init(struct rps_bag_plan *plan,
        const struct rps_batch *batch, const struct rps_dedup *dedup,
        uint32_t ps_count, size_t row_bytes, bool push, size_t piece_bytes);

/** A zeroed one is fine. */
void rps_bag_plan_finish(struct rps_bag_plan *plan);

/**
 * KEYS, [COUNTS], [INDEX] and OFFSETS of a piece. COUNTS of a lookup are the
 * whole call's, as admission has them; of a push the piece's own.
 */
void rps_bag_plan_write(const struct rps_bag_plan *plan,
        const struct rps_bag_piece *piece, const struct rps_batch *batch,
        const struct rps_dedup *dedup, bool push, struct rps_builder *builder);

#endif /* RPS_CLIENT_BAGS_H */
