/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint folder that is read. What stands in it is hostile: names are
 * plain, links are refused, lengths are bounded before memory is taken.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_FOLDER_H
#define RPS_EMBEDDING_CHECKPOINT_FOLDER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rps_ckpt_folder {
    int fd; /* -1: closed */
    char *path;
};

/** NOT_FOUND names the path. */
rps_status rps_ckpt_folder_open(struct rps_ckpt_folder *folder,
        const char *path, struct rps_error *error);
void rps_ckpt_folder_close(struct rps_ckpt_folder *folder);

/**
 * Open a regular file for reading. Errors: NOT_FOUND (not there), CORRUPT
 * (not a plain name, a link, no regular file), IO.
 */
rps_status rps_ckpt_folder_file(const struct rps_ckpt_folder *folder,
        const char *name, int *fd_out, uint64_t *bytes_out,
        struct rps_error *error);

/** A whole file of at most bytes_max; *text_out is NUL-terminated; free(). */
rps_status rps_ckpt_folder_text(const struct rps_ckpt_folder *folder,
        const char *name, size_t bytes_max, char **text_out, size_t *n_out,
        struct rps_error *error);

/** Fill `bytes` from fd, or IO, or CORRUPT where the file ends before. */
rps_status rps_ckpt_read_all(int fd, const char *path, void *bytes, size_t n,
        struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_FOLDER_H */
