/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of one file on their way to the disk or from it: a ring of them, and
 * two threads that carry them past the page cache where the file system can
 * (O_DIRECT), so that a save neither fills memory nor waits for each block.
 *
 *   started <= submitted <= started + RPS_CKPT_IO_BLOCKS
 *
 * Block i is at offset i * RPS_CKPT_BLOCK_BYTES and lies in ring place
 * i mod RPS_CKPT_IO_BLOCKS. The file's owner alone submits and waits; a
 * place is the threads' from submit until wait, and the owner's else.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_IO_H
#define RPS_EMBEDDING_CHECKPOINT_IO_H

#include "base/error.h"
#include "embedding/checkpoint/layout.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_CKPT_IO_BLOCKS  4u /* 4 MiB a file */
#define RPS_CKPT_IO_THREADS 2u /* in flight; more were no faster */
#define RPS_CKPT_IO_ALIGN   4096u

/** A place of the ring. */
struct rps_ckpt_io_place {
    unsigned char *bytes; /* [RPS_CKPT_BLOCK_BYTES], aligned; NULL: not yet */
    size_t n;             /* to write; to read: at least */
    int error;            /* errno of what was done; 0: it went well */
    uint64_t sum;         /* XXH3_64 of what was read, where it went well */
    bool busy;            /* io->lock */
};

/** Zeroed is empty; rps_ckpt_io_finish() is then harmless. */
struct rps_ckpt_io {
    int fd; /* borrowed; -1 and zeroed memory: none */
    bool writes;
    bool direct; /* io->lock */
    bool open;
    bool stopping;      /* io->lock */
    uint64_t submitted; /* io->lock: blocks */
    uint64_t started;   /* io->lock */
    pthread_mutex_t lock;
    pthread_cond_t work; /* submitted rose, or stopping */
    pthread_cond_t done; /* a place is not busy any more */
    pthread_t threads[RPS_CKPT_IO_THREADS];
    uint32_t thread_count;
    struct rps_ckpt_io_place places[RPS_CKPT_IO_BLOCKS];
};

/** For a file that is open. */
void rps_ckpt_io_init(struct rps_ckpt_io *io, int fd, bool writes);

/** Waits for what is under way, whatever comes of it. */
void rps_ckpt_io_finish(struct rps_ckpt_io *io);

/** Memory of block i, which is not under way. NULL: no memory. */
unsigned char *rps_ckpt_io_memory(struct rps_ckpt_io *io, uint64_t i);

/**
 * Block i = submitted goes: all of its n bytes are written, or the file is
 * read there, at least n bytes. Its place has memory and is the owner's.
 */
void rps_ckpt_io_submit(struct rps_ckpt_io *io, uint64_t i, size_t n);

/**
 * Until block i's place is the owner's again: 0 or the errno of it, EBADMSG
 * where the file ended before. Of one that was read the checksum is
 * rps_ckpt_io_sum() then: the threads take it, so that its owner need not.
 */
int rps_ckpt_io_wait(struct rps_ckpt_io *io, uint64_t i);

static inline uint64_t
rps_ckpt_io_sum(const struct rps_ckpt_io *io, uint64_t i)
{
    return io->places[i % RPS_CKPT_IO_BLOCKS].sum;
}

/**
 * The file is longer than a block: by the threads from here on, and past the
 * page cache where that is possible. Without it the owner does it all.
 */
void rps_ckpt_io_begin(struct rps_ckpt_io *io);

/** Through the page cache from here on: bytes that are no whole block. */
void rps_ckpt_io_end_direct(struct rps_ckpt_io *io);

#endif /* RPS_EMBEDDING_CHECKPOINT_IO_H */
