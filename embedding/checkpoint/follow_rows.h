/* SPDX-License-Identifier: Apache-2.0 */
/* The deltas of one table, written into the table that is being read. */
#ifndef RPS_EMBEDDING_CHECKPOINT_FOLLOW_ROWS_H
#define RPS_EMBEDDING_CHECKPOINT_FOLLOW_ROWS_H

#include "embedding/checkpoint/restore.h"

struct rps_ckpt_patch {
    struct rps_ckpt_restoring *r; /* its lock guards the counts below */
    struct rps_table *table;
    struct rps_ckpt_piece *pieces; /* [count], in the order of their links */
    size_t count;
    bool counts_new;   /* rps_ckpt_patch_check() is to fill new_rows */
    uint64_t new_rows; /* of keys that have none yet; at most */
    uint64_t written;
};

/** Read all of it, every checksum, and change nothing. Errors: CORRUPT, IO,
 * NOMEM. */
rps_status rps_ckpt_patch_check(
        struct rps_ckpt_patch *patch, struct rps_error *error);

/**
 * Write it, piece by piece: rows that changed, then keys that left. A key
 * that was erased and made again never leaves. Errors: the same, LIMIT.
 */
rps_status rps_ckpt_patch_write(
        struct rps_ckpt_patch *patch, struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_FOLLOW_ROWS_H */
