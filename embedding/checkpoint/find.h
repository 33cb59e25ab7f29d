/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RPS_EMBEDDING_CHECKPOINT_FIND_H
#define RPS_EMBEDDING_CHECKPOINT_FIND_H

#include "base/error.h"

/**
 * The checkpoint that an operator means by a path: the folder itself, or of a
 * checkpoint_dir its newest step that was not abandoned (a restore would not
 * take one of those either); free(*folder_out). A newer one that is not
 * complete is CORRUPT, and named: passing it over would call it good. Other
 * errors: NOT_FOUND (neither), IO, NOMEM.
 */
rps_status rps_ckpt_find(
        const char *path, char **folder_out, struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_FIND_H */
