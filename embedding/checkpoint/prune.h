/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RPS_EMBEDDING_CHECKPOINT_PRUNE_H
#define RPS_EMBEDDING_CHECKPOINT_PRUNE_H

#include "embedding/checkpoint/checkpoint.h"

/**
 * After the commit of `id`: of the complete steps up to it, the newest
 * `keep` stay (0: all), and all that these stand on. Later steps stay, and
 * what they stand on. Deltas that were abandoned and whose parent is gone or
 * another go, and so do temporary folders of saves before it. A failure is said
 * in *error and is no failure of the save.
 */
void rps_ckpt_prune(const struct rps_checkpoint_id *id, uint32_t keep,
        struct rps_error *error);

/**
 * Which of survey->complete stay: [survey->count], free(); NULL: no memory.
 * keep >= 1.
 */
bool *rps_ckpt_prune_kept(const struct rps_checkpoint_survey *survey,
        uint64_t step, uint32_t keep);

#endif /* RPS_EMBEDDING_CHECKPOINT_PRUNE_H */
