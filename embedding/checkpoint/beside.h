/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a tool writes a checkpoint: a hidden folder beside it,
 * .new-ckpt-<step>-<epoch>, that gets its name when all of it is on the disk.
 * A tool that is stopped at any moment leaves what was there before, or the
 * new one; what it left hidden goes when the next tool comes. The folder is
 * locked (flock) while its tool lives.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_BESIDE_H
#define RPS_EMBEDDING_CHECKPOINT_BESIDE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_CKPT_NEW_PREFIX ".new-ckpt-" /* being written by a tool */

/** Zeroed is closed; close() is then harmless. */
struct rps_ckpt_beside {
    char *dir;
    char *path;  /* of the hidden folder; NULL: closed */
    char *final; /* "DIR/ckpt-<step>" */
    int fd;      /* of the folder: holds the lock */
    size_t kept; /* bytes of `dir`: this folder was there before */
    bool installed;
};

/**
 * Make `dir` if it is not there, and an empty hidden folder in it. Errors: IO
 * (names the path), RETRY_LATER (a tool writes this step now), NOMEM.
 */
rps_status rps_ckpt_beside_open(struct rps_ckpt_beside *beside, const char *dir,
        uint64_t step, uint32_t epoch, struct rps_error *error);

/**
 * Its name: what it holds has been fsynced by the caller. With `replace` what
 * stands there is swapped for it in one call, and then removed. OK with words
 * in *error: done, but the old one could not be removed. Errors: IO, MISMATCH
 * (it is there and `replace` is not given), UNSUPPORTED (this file system
 * cannot swap).
 */
rps_status rps_ckpt_beside_install(
        struct rps_ckpt_beside *beside, bool replace, struct rps_error *error);

/** Removes what was not installed, and the folders that were made for it. */
void rps_ckpt_beside_close(struct rps_ckpt_beside *beside);

#endif /* RPS_EMBEDDING_CHECKPOINT_BESIDE_H */
