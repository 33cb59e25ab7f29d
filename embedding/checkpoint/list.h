/* SPDX-License-Identifier: Apache-2.0 */
/* Which folders of a checkpoint_dir are complete checkpoints. */
#ifndef RPS_EMBEDDING_CHECKPOINT_LIST_H
#define RPS_EMBEDDING_CHECKPOINT_LIST_H

#include "base/error.h"

#include <stdint.h>

/**
 * What the folder is to (part, parts): OK (complete; *epoch_out is its
 * manifest's), UNSUPPORTED (complete, for what this version knows, but of
 * another format), else why it does not count. parts 0: every part.
 */
rps_status rps_ckpt_inspect(const char *path, uint64_t step, uint32_t part,
        uint32_t parts, uint32_t *epoch_out, struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_LIST_H */
