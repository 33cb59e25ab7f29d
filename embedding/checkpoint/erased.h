/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table-<name>/<i>-of-<n>.erased.npy of a delta: keys that were erased since
 * the parent. <u8 [erased]; there is no file where there is no key.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_ERASED_H
#define RPS_EMBEDDING_CHECKPOINT_ERASED_H

#include "embedding/checkpoint/scan.h"

/** Arrays belong to the scan; the callback may reorder them in place. */
struct rps_ckpt_erased {
    size_t n;
    uint64_t *keys;
    uint64_t *hashes;  /* of the keys, each of a slot of the part */
    size_t file_bytes; /* of the file, that these took */
};

/**
 * Read the file, if the table's part has erased keys: every one is checked.
 * `take` gets scan->context. Errors: CORRUPT, IO, NOMEM, or the callback's.
 */
rps_status rps_ckpt_erased_scan(const struct rps_ckpt_scan *scan,
        rps_status (*take)(void *context, struct rps_ckpt_erased *erased,
                struct rps_error *error),
        struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_ERASED_H */
