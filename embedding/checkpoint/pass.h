/* SPDX-License-Identifier: Apache-2.0 */
/* A file of a checkpoint as it is, to somewhere else. */
#ifndef RPS_EMBEDDING_CHECKPOINT_PASS_H
#define RPS_EMBEDDING_CHECKPOINT_PASS_H

#include "embedding/checkpoint/manifest.h"

/**
 * `take` gets all bytes of the file in order. What was listed of it is
 * compared at the end: CORRUPT names the file. Other errors: NOT_FOUND, IO,
 * NOMEM, or the callback's.
 */
rps_status rps_ckpt_pass(const struct rps_ckpt_folder *folder, const char *name,
        const struct rps_ckpt_listed *listed,
        rps_status (*take)(void *context, const void *bytes, size_t n,
                struct rps_error *error),
        void *context, struct rps_error *error);

/** The same into a new file, fsynced. */
rps_status rps_ckpt_copy(const struct rps_ckpt_folder *folder, const char *name,
        const struct rps_ckpt_listed *listed, const char *to_folder,
        struct rps_error *error);

/** Bytes and checksum of a file, as it is now. */
rps_status rps_ckpt_measure(const struct rps_ckpt_folder *folder,
        const char *name, struct rps_ckpt_listed *listed_out,
        struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_PASS_H */
