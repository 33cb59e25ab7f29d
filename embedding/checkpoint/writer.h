/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One .npy file on its way to the disk: one block of memory, a checksum a
 * block (<file>.xxh3) and one of the whole.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_WRITER_H
#define RPS_EMBEDDING_CHECKPOINT_WRITER_H

#include "base/error.h"
#include "base/npy.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/** Zeroed is closed; rps_ckpt_writer_discard() is then harmless. */
struct rps_ckpt_writer {
    char *path; /* NULL: closed */
    char *name; /* below the checkpoint folder */
    int fd;
    unsigned char *block;
    size_t used;
    uint64_t bytes; /* flushed so far */
    uint64_t *sums;
    size_t sum_count;
    size_t sum_capacity;
    void *whole; /* XXH3_state_t */
};

/** Create `name` below `folder`; it must not exist. Writes the header. */
rps_status rps_ckpt_writer_open(struct rps_ckpt_writer *writer,
        const char *folder, const char *name, const struct rps_npy *npy,
        struct rps_error *error);

rps_status rps_ckpt_writer_add(struct rps_ckpt_writer *writer,
        const void *bytes, size_t n, struct rps_error *error);

/**
 * Flush, fsync, write <file>.xxh3 and add both to `files`
 * ({name: {"bytes", "xxh3"}}). Closes, also on error.
 */
rps_status rps_ckpt_writer_close(
        struct rps_ckpt_writer *writer, json_t *files, struct rps_error *error);

/** Close without a promise; the file stays where it is. */
void rps_ckpt_writer_discard(struct rps_ckpt_writer *writer);

#endif /* RPS_EMBEDDING_CHECKPOINT_WRITER_H */
