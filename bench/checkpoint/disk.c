/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/checkpoint/disk.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIGN 4096u

/** Blocks are taken in order by whoever is free. */
struct stream {
    int fd;
    bool writes;
    uint64_t blocks;
    _Atomic uint64_t next;
    _Atomic int cause; /* errno of the last failure; 0: none */
};

/* One block, whole; 0 or the errno. */
static int
carry(const struct stream *stream, char *block, uint64_t i)
{
    size_t done = 0;

    while (done < BENCH_DISK_BLOCK_BYTES) {
        const off_t at = (off_t)(i * BENCH_DISK_BLOCK_BYTES + done);
        const size_t left = BENCH_DISK_BLOCK_BYTES - done;
        const ssize_t n = stream->writes
                                  ? pwrite(stream->fd, block + done, left, at)
                                  : pread(stream->fd, block + done, left, at);

        if (n == 0) {
            return EIO;
        }
        if (n < 0 && errno != EINTR) {
            return errno;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static void *
run(void *argument)
{
    struct stream *stream = argument;
    char *block = aligned_alloc(ALIGN, BENCH_DISK_BLOCK_BYTES);

    if (block == NULL) {
        atomic_store(&stream->cause, ENOMEM);
        return NULL;
    }
    memset(block, 0x5a, BENCH_DISK_BLOCK_BYTES);
    while (atomic_load(&stream->cause) == 0) {
        const uint64_t i = atomic_fetch_add(&stream->next, 1);
        const int cause = i < stream->blocks ? carry(stream, block, i) : 0;

        if (cause != 0) {
            atomic_store(&stream->cause, cause);
        }
        if (i >= stream->blocks) {
            break;
        }
    }
    free(block);
    return NULL;
}

static rps_status
run_all(struct stream *stream, const char *path, struct rps_error *error)
{
    pthread_t threads[BENCH_DISK_IN_FLIGHT];
    unsigned count = 0;
    int cause = 0;

    while (count < BENCH_DISK_IN_FLIGHT &&
            pthread_create(&threads[count], NULL, run, stream) == 0) {
        count++;
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
    cause = count < BENCH_DISK_IN_FLIGHT ? EAGAIN : atomic_load(&stream->cause);
    if (cause == 0 && stream->writes && fsync(stream->fd) != 0) {
        cause = errno;
    }
    return cause == 0
                   ? RPS_OK
                   : rps_fail(error, RPS_E_IO, "%s: %s", path, strerror(cause));
}

static uint64_t
blocks_of(uint64_t bytes)
{
    return (bytes + BENCH_DISK_BLOCK_BYTES - 1) / BENCH_DISK_BLOCK_BYTES;
}

/* Without a hint of what is in it. */
static rps_status
open_at(const char *path, int flags, int *fd_out, struct rps_error *error)
{
    *fd_out = open(path, flags | O_CLOEXEC, 0600);
    return *fd_out >= 0 ? RPS_OK
                        : rps_fail(error, RPS_E_IO, "%s: %s%s", path,
                                  strerror(errno),
                                  errno == EINVAL
                                          ? " (no O_DIRECT: try another --dir)"
                                          : "");
}

rps_status
bench_disk_write(const char *path, uint64_t bytes, double *seconds_out,
        struct rps_error *error)
{
    struct stream stream = {.writes = true, .blocks = blocks_of(bytes)};
    const uint64_t start = rps_clock_ns();
    rps_status status = open_at(
            path, O_WRONLY | O_CREAT | O_EXCL | O_DIRECT, &stream.fd, error);

    if (status != RPS_OK) {
        return status;
    }
    (void)fallocate(
            stream.fd, 0, 0, (off_t)(stream.blocks * BENCH_DISK_BLOCK_BYTES));
    status = run_all(&stream, path, error);
    close(stream.fd);
    *seconds_out = (double)(rps_clock_ns() - start) / 1e9;
    return status;
}

static rps_status
read_by(int flags, const char *path, uint64_t bytes, double *seconds_out,
        struct rps_error *error)
{
    struct stream stream = {.blocks = blocks_of(bytes)};
    const uint64_t start = rps_clock_ns();
    rps_status status = open_at(path, O_RDONLY | flags, &stream.fd, error);

    if (status == RPS_OK) {
        status = run_all(&stream, path, error);
        close(stream.fd);
        *seconds_out = (double)(rps_clock_ns() - start) / 1e9;
    }
    return status;
}

rps_status
bench_disk_read(const char *path, uint64_t bytes, double *seconds_out,
        struct rps_error *error)
{
    return read_by(O_DIRECT, path, bytes, seconds_out, error);
}

rps_status
bench_disk_read_cached(const char *path, uint64_t bytes, double *seconds_out,
        struct rps_error *error)
{
    rps_status status = read_by(0, path, bytes, seconds_out, error);
    int fd = -1;

    if (status == RPS_OK) {
        status = read_by(0, path, bytes, seconds_out, error);
    }
    if (status == RPS_OK) {
        status = open_at(path, O_RDONLY, &fd, error);
    }
    if (status == RPS_OK) {
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    return status;
}
