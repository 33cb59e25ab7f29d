/* SPDX-License-Identifier: Apache-2.0 */
/* Which arrays of a checkpoint are damaged, beside the one that ended a
 * RESTORE: who has to fetch one of them again has to know of all. */
#ifndef RPS_EMBEDDING_CHECKPOINT_DAMAGE_H
#define RPS_EMBEDDING_CHECKPOINT_DAMAGE_H

#include "embedding/checkpoint/restore.h"

/** So many are named; of the others there is the number. */
#define RPS_CKPT_DAMAGED_NAMED 8u

/**
 * Behind what `error` says of the first one, "; damaged, too: ckpt-<step>/<
 * array>, …, and N more": of the arrays that this RESTORE reads, in the order
 * of the part files. Reads them whole. What cannot be read for another reason
 * than damage is passed over, and so are arrays whose checksums hold, whatever
 * is in them. error may be NULL: nothing is done.
 */
void rps_ckpt_name_damaged(
        const struct rps_ckpt_restoring *r, struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_DAMAGE_H */
