/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One .npy file on its way to the disk: a few blocks of memory (io.h), a
 * checksum a block (<file>.xxh3) and one of the whole, both taken of some KiB
 * at a time while they are in the cache. Room for the whole array is taken at
 * once, so that a full disk is told before it is written.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_WRITER_H
#define RPS_EMBEDDING_CHECKPOINT_WRITER_H

#include "base/error.h"
#include "base/npy.h"
#include "embedding/checkpoint/io.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/** Zeroed is closed; rps_ckpt_writer_discard() is then harmless. */
struct rps_ckpt_writer {
    char *path; /* NULL: closed */
    char *name; /* below the checkpoint folder */
    int fd;
    struct rps_ckpt_io io;
    unsigned char *block; /* being filled; of io */
    size_t used;
    uint64_t next;   /* its number */
    uint64_t bytes;  /* handed on so far */
    uint64_t wanted; /* of the file, as the header says it */
    uint64_t *sums;
    size_t sum_count;
    size_t sum_capacity;
    uint64_t written; /* blocks: those after it may be under way */
    void *sum;        /* XXH3_state_t of the block; of the whole: */
    void *whole;
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
