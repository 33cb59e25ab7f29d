/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the disk does without us: one file, O_DIRECT, blocks of 4 MiB one
 * after the other, two in flight.
 */
#ifndef RPS_BENCH_CHECKPOINT_DISK_H
#define RPS_BENCH_CHECKPOINT_DISK_H

#include "base/error.h"

#include <stdint.h>

#define BENCH_DISK_BLOCK_BYTES ((size_t)4 << 20)
#define BENCH_DISK_IN_FLIGHT   2u

/**
 * Write a new file of `bytes`, rounded up to a block, room for it taken
 * before, until it is on the disk (fsync). Errors: IO (also where the folder's
 * file system has no O_DIRECT), NOMEM.
 */
rps_status bench_disk_write(const char *path, uint64_t bytes,
        double *seconds_out, struct rps_error *error);

/** Read it all. */
rps_status bench_disk_read(const char *path, uint64_t bytes,
        double *seconds_out, struct rps_error *error);

/**
 * Read it all through the page cache, twice: the seconds of the second time,
 * when what fits is in memory. Then it leaves the cache.
 */
rps_status bench_disk_read_cached(const char *path, uint64_t bytes,
        double *seconds_out, struct rps_error *error);

#endif /* RPS_BENCH_CHECKPOINT_DISK_H */
