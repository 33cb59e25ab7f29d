/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/io.h"

#include "base/checksum.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(RPS_CKPT_BLOCK_BYTES % RPS_CKPT_IO_ALIGN == 0,
        "blocks lie where O_DIRECT wants them");

void
rps_ckpt_io_init(struct rps_ckpt_io *io, int fd, bool writes)
{
    memset(io, 0, sizeof(*io));
    io->fd = fd;
    io->writes = writes;
    io->open = true;
    pthread_mutex_init(&io->lock, NULL);
    pthread_cond_init(&io->work, NULL);
    pthread_cond_init(&io->done, NULL);
}

static struct rps_ckpt_io_place *
place_of(struct rps_ckpt_io *io, uint64_t i)
{
    return &io->places[i % RPS_CKPT_IO_BLOCKS];
}

static bool
is_direct(struct rps_ckpt_io *io)
{
    bool direct;

    pthread_mutex_lock(&io->lock);
    direct = io->direct;
    pthread_mutex_unlock(&io->lock);
    return direct;
}

static void
set_direct(struct rps_ckpt_io *io, bool direct)
{
    int flags = fcntl(io->fd, F_GETFL);

    if (flags >= 0) {
        flags = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
        direct = fcntl(io->fd, F_SETFL, flags) == 0 && direct;
        pthread_mutex_lock(&io->lock);
        io->direct = direct;
        pthread_mutex_unlock(&io->lock);
    }
}

/* 0, or the errno. */
static int
write_block(int fd, const unsigned char *bytes, size_t n, off_t offset)
{
    while (n > 0) {
        const ssize_t done = pwrite(fd, bytes, n, offset);

        if (done < 0 && errno != EINTR) {
            return errno;
        }
        if (done > 0) {
            bytes += done;
            n -= (size_t)done;
            offset += done;
        }
    }
    return 0;
}

/* The last block of a file ends before `room` does: that is no error where
 * `least` bytes were there. EBADMSG: the file is shorter. */
static int
read_block(int fd, unsigned char *bytes, size_t least, off_t offset)
{
    size_t have = 0;

    while (have < least) {
        const ssize_t done = pread(fd, bytes + have,
                RPS_CKPT_BLOCK_BYTES - have, offset + (off_t)have);

        if (done == 0) {
            return EBADMSG;
        }
        if (done < 0 && errno != EINTR) {
            return errno;
        }
        have += done > 0 ? (size_t)done : 0;
    }
    return 0;
}

/* Through the page cache, but what is done leaves it. Only a hint: that a
 * file is on the disk is what fsync answers. */
static void
drop_cached(const struct rps_ckpt_io *io, off_t offset, size_t n)
{
    if (io->writes) {
        (void)sync_file_range(io->fd, offset, (off_t)n,
                SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                        SYNC_FILE_RANGE_WAIT_AFTER);
        (void)posix_fadvise(io->fd, offset, (off_t)n, POSIX_FADV_DONTNEED);
    }
}

static int
carry_once(const struct rps_ckpt_io *io, const struct rps_ckpt_io_place *place,
        off_t offset)
{
    return io->writes ? write_block(io->fd, place->bytes, place->n, offset)
                      : read_block(io->fd, place->bytes, place->n, offset);
}

/* A file system may take O_DIRECT at open and refuse the first block. */
static void
carry(struct rps_ckpt_io *io, uint64_t i)
{
    struct rps_ckpt_io_place *place = place_of(io, i);
    const off_t offset = (off_t)(i * RPS_CKPT_BLOCK_BYTES);
    const bool direct = is_direct(io);

    place->error = carry_once(io, place, offset);
    if (place->error == EINVAL && direct) {
        set_direct(io, false);
        place->error = carry_once(io, place, offset);
    }
    if (place->error == 0 && !direct) {
        drop_cached(io, offset, place->n);
    }
    if (place->error == 0 && !io->writes) {
        place->sum = rps_checksum(place->bytes, place->n);
    }
}

static void *
run(void *argument)
{
    struct rps_ckpt_io *io = argument;

    pthread_mutex_lock(&io->lock);
    while (!io->stopping || io->started < io->submitted) {
        if (io->started < io->submitted) {
            const uint64_t i = io->started++;

            pthread_mutex_unlock(&io->lock);
            carry(io, i);
            pthread_mutex_lock(&io->lock);
            place_of(io, i)->busy = false;
            pthread_cond_signal(&io->done); /* the owner alone waits */
        } else {
            pthread_cond_wait(&io->work, &io->lock);
        }
    }
    pthread_mutex_unlock(&io->lock);
    return NULL;
}

/* One is enough to go on with; with none the owner does it all. */
void
rps_ckpt_io_begin(struct rps_ckpt_io *io)
{
    sigset_t all;
    sigset_t old;

    assert(io->submitted == 0 && io->thread_count == 0);
    set_direct(io, true);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    while (io->thread_count < RPS_CKPT_IO_THREADS &&
            pthread_create(&io->threads[io->thread_count], NULL, run, io) ==
                    0) {
        io->thread_count++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void
rps_ckpt_io_end_direct(struct rps_ckpt_io *io)
{
    if (is_direct(io)) {
        set_direct(io, false);
    }
}

unsigned char *
rps_ckpt_io_memory(struct rps_ckpt_io *io, uint64_t i)
{
    struct rps_ckpt_io_place *place = place_of(io, i);

    if (place->bytes == NULL) {
        place->bytes = aligned_alloc(RPS_CKPT_IO_ALIGN, RPS_CKPT_BLOCK_BYTES);
    }
    return place->bytes;
}

void
rps_ckpt_io_submit(struct rps_ckpt_io *io, uint64_t i, size_t n)
{
    struct rps_ckpt_io_place *place = place_of(io, i);

    assert(i == io->submitted && place->bytes != NULL && !place->busy);
    place->n = n;
    pthread_mutex_lock(&io->lock);
    io->submitted++;
    if (io->thread_count == 0) {
        io->started++;
        pthread_mutex_unlock(&io->lock);
        carry(io, i);
        return;
    }
    place->busy = true;
    pthread_cond_signal(&io->work);
    pthread_mutex_unlock(&io->lock);
}

int
rps_ckpt_io_wait(struct rps_ckpt_io *io, uint64_t i)
{
    struct rps_ckpt_io_place *place = place_of(io, i);

    pthread_mutex_lock(&io->lock);
    while (place->busy) {
        pthread_cond_wait(&io->done, &io->lock);
    }
    pthread_mutex_unlock(&io->lock);
    return place->error;
}

void
rps_ckpt_io_finish(struct rps_ckpt_io *io)
{
    if (!io->open) {
        return;
    }
    pthread_mutex_lock(&io->lock);
    io->stopping = true;
    pthread_cond_broadcast(&io->work);
    pthread_mutex_unlock(&io->lock);
    for (uint32_t i = 0; i < io->thread_count; i++) {
        pthread_join(io->threads[i], NULL);
    }
    for (uint32_t i = 0; i < RPS_CKPT_IO_BLOCKS; i++) {
        free(io->places[i].bytes);
    }
    pthread_cond_destroy(&io->done);
    pthread_cond_destroy(&io->work);
    pthread_mutex_destroy(&io->lock);
    memset(io, 0, sizeof(*io));
}
