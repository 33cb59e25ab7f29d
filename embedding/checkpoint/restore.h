/* SPDX-License-Identifier: Apache-2.0 */
/* What RESTORE has in hand, and one table of it. */
#ifndef RPS_EMBEDDING_CHECKPOINT_RESTORE_H
#define RPS_EMBEDDING_CHECKPOINT_RESTORE_H

#include "embedding/checkpoint/chain.h"
#include "embedding/checkpoint/checkpoint.h"

#include <pthread.h>

/** One table that is asked for: as what, from where. */
struct rps_ckpt_wanted {
    rps_table_spec spec;                /* of the table that is made */
    const struct rps_ckpt_table *entry; /* in the last link's manifest */
    bool slots;                         /* the file's go on; else fresh ones */
    bool counts;                        /* of keys without a row, the same */
};

struct rps_ckpt_restoring {
    const struct rps_restore *how;
    struct rps_store *store;
    struct rps_ckpt_chain chain;
    struct rps_ckpt_wanted *wanted;
    size_t wanted_count;
    bool same_seed; /* slots here are slots there */
    pthread_mutex_t lock;
    uint64_t rows_read; /* lock; of what matters to this PS */
    uint64_t rows_total;
};

/** Whether this PS owns a slot that the piece is live in. */
bool rps_ckpt_piece_matters(
        const struct rps_ckpt_restoring *r, const struct rps_ckpt_piece *piece);

/** About as many rows as the oldest link's pieces of a table bring. Those of a
 * file that is not what it says are not counted. */
uint64_t rps_ckpt_rows_expected(const struct rps_ckpt_restoring *r,
        const struct rps_ckpt_piece *pieces, size_t count);

/**
 * Make the table, replay its pieces, add it to the store. Errors: CORRUPT,
 * IO, NOMEM, LIMIT, MISMATCH; the store has no such table then.
 */
rps_status rps_ckpt_restore_table(struct rps_ckpt_restoring *r,
        const struct rps_ckpt_wanted *wanted, struct rps_error *error);

/** What is asked for, against what is there. Errors: NOT_FOUND naming a
 * table that is not there, MISMATCH naming a field, INVAL, NOMEM. */
rps_status rps_ckpt_restore_plan(
        struct rps_ckpt_restoring *r, struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_RESTORE_H */
