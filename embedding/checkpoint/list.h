/* SPDX-License-Identifier: Apache-2.0 */
/* Which folders of a checkpoint_dir are complete checkpoints. */
#ifndef RPS_EMBEDDING_CHECKPOINT_LIST_H
#define RPS_EMBEDDING_CHECKPOINT_LIST_H

#include "embedding/checkpoint/chain.h"

/**
 * What the folder by itself is to (part, parts), whatever became of a delta's
 * ancestors: OK (complete; *head_out is its manifest's), UNSUPPORTED
 * (complete, for what this version knows, but of another format), else why it
 * does not count. parts 0: every part. *head_out is zeroed where the manifest
 * cannot be read.
 */
rps_status rps_ckpt_inspect(const char *path, uint64_t step, uint32_t part,
        uint32_t parts, struct rps_ckpt_head *head_out,
        struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_LIST_H */
