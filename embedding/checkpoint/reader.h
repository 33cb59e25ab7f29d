/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One .npy file of a checkpoint, read from start to end, some blocks ahead
 * (io.h): each block is checked before a byte of it is handed out.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_READER_H
#define RPS_EMBEDDING_CHECKPOINT_READER_H

#include "base/error.h"
#include "base/npy.h"
#include "embedding/checkpoint/folder.h"
#include "embedding/checkpoint/io.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/** Zeroed is closed; rps_ckpt_reader_close() is then harmless. */
struct rps_ckpt_reader {
    char *path; /* NULL: closed */
    int fd;
    struct rps_ckpt_io io;
    const unsigned char *block; /* of io; NULL: none yet */
    size_t used;                /* bytes in the block */
    size_t at;                  /* handed out of them */
    uint64_t bytes;             /* of the file */
    uint64_t next;              /* block to hand out */
    uint64_t ahead;             /* next <= ahead: blocks asked for */
    uint64_t *sums;             /* <file>.xxh3 */
    uint64_t block_count;
    uint64_t sum; /* of the whole file, as listed */
    void *whole;  /* XXH3_state_t */
    struct rps_npy npy;
};

/**
 * Open `name`, which `files` of a part lists with its .xxh3. Errors: CORRUPT
 * naming the file, and the block where one is damaged; IO; NOMEM.
 */
rps_status rps_ckpt_reader_open(struct rps_ckpt_reader *reader,
        const struct rps_ckpt_folder *folder, const json_t *files,
        const char *name, struct rps_error *error);

/** The array must be of this type and shape (ndim, shape, dtype). */
rps_status rps_ckpt_reader_expect(const struct rps_ckpt_reader *reader,
        const struct rps_npy *wanted, struct rps_error *error);

/** Exactly n bytes of the array. */
rps_status rps_ckpt_reader_read(struct rps_ckpt_reader *reader, void *bytes,
        size_t n, struct rps_error *error);

/** At the end of the array: the checksum of the whole file. */
rps_status rps_ckpt_reader_check(
        struct rps_ckpt_reader *reader, struct rps_error *error);

void rps_ckpt_reader_close(struct rps_ckpt_reader *reader);

#endif /* RPS_EMBEDDING_CHECKPOINT_READER_H */
