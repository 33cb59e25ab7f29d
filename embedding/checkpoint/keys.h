/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of a table's part that are keys alone, <u8 [n]: its keys column, and
 * in a delta table-<name>/<i>-of-<n>.erased.npy, the keys that were erased
 * since the parent (there is no file where there is none).
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_KEYS_H
#define RPS_EMBEDDING_CHECKPOINT_KEYS_H

#include "embedding/checkpoint/scan.h"

/** Arrays belong to the scan; the callback may reorder them in place. */
struct rps_ckpt_keys {
    size_t n;
    uint64_t *keys;
    uint64_t *hashes;  /* of the keys, each of a slot of the part */
    size_t file_bytes; /* of the file, that these took */
};

/**
 * Read the file of the table's part; every key is checked to be of the part's
 * slots. `take` gets scan->context; scan->batch is not called. Errors:
 * CORRUPT, IO, NOMEM, or the callback's.
 */
rps_status rps_ckpt_keys_scan(const struct rps_ckpt_scan *scan,
        rps_status (*take)(void *context, struct rps_ckpt_keys *keys,
                struct rps_error *error),
        struct rps_error *error);
rps_status rps_ckpt_erased_scan(const struct rps_ckpt_scan *scan,
        rps_status (*take)(void *context, struct rps_ckpt_keys *keys,
                struct rps_error *error),
        struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_KEYS_H */
