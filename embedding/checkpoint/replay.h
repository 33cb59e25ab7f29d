/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a table as they are after all links of a chain, without the
 * table in memory: links are read from the newest on, and a key that a newer
 * one has or has erased is passed over. What is kept of a delta are its keys;
 * where these exceed the memory, the slots are done in ranges, one after the
 * other, and each range reads the parts that hold slots of it.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_REPLAY_H
#define RPS_EMBEDDING_CHECKPOINT_REPLAY_H

#include "embedding/checkpoint/chain.h"
#include "embedding/checkpoint/keys.h"

#define RPS_CKPT_REPLAY_BYTES ((size_t)256 << 20)

struct rps_ckpt_replay {
    const struct rps_ckpt_chain *chain; /* every part of every link is here */
    const char *table;
    uint32_t slot_first; /* rows of these slots only */
    uint32_t slot_last;
    size_t memory_bytes; /* for the keys of deltas; 0: the above */
    /** Bytes that were read since the last call; NULL: nobody asks. */
    void (*advance)(void *context, uint64_t bytes);
    void *context; /* of advance */
};

/**
 * `take` gets every row once, in no order; keys are of any slot of the range.
 * Errors: CORRUPT (also: a delta has a key twice), IO, NOMEM, NOT_FOUND (no
 * such table), or the callback's.
 */
rps_status rps_ckpt_replay_rows(const struct rps_ckpt_replay *replay,
        rps_status (*take)(void *context, struct rps_ckpt_batch *batch,
                struct rps_error *error),
        void *context, struct rps_error *error);

/** The same of the keys alone, which is much less to read. */
rps_status rps_ckpt_replay_keys(const struct rps_ckpt_replay *replay,
        rps_status (*take)(void *context, struct rps_ckpt_keys *keys,
                struct rps_error *error),
        void *context, struct rps_error *error);

/** What rps_ckpt_replay_rows() will read, for progress; 0: cannot be said. */
uint64_t rps_ckpt_replay_bytes(const struct rps_ckpt_replay *replay);

#endif /* RPS_EMBEDDING_CHECKPOINT_REPLAY_H */
