/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the arenas ask of the operating system, for regions of 2 MiB.
 *
 * Threads: any.
 */
#ifndef RPS_EMBEDDING_REGION_H
#define RPS_EMBEDDING_REGION_H

#include <recps/status.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Where pages go; asked when a region is first used. */
enum rps_numa {
    RPS_NUMA_OFF,        /* the system's default: the node that touches */
    RPS_NUMA_INTERLEAVE, /* page by page over all nodes */
    RPS_NUMA_BIND        /* the node of the thread that asks, no other */
};

/**
 * For all regions from now on. False: this build has no libnuma, or the
 * machine no NUMA.
 */
bool rps_region_numa(enum rps_numa numa);

/**
 * Map `bytes`; no memory is used before it is touched. Returns the first
 * region inside, NULL: no memory. *mapping_out is for rps_region_unmap().
 */
char *rps_region_map(size_t bytes, bool huge, void **mapping_out);
void rps_region_unmap(void *mapping, size_t bytes);

/** Huge pages from now on: the system joins the small ones in time. */
void rps_region_make_huge(char *region);

/** Before a region's first touch: its NUMA node. */
void rps_region_place(char *region);

/** Give the memory back; the addresses stay ours, and read 0. */
void rps_region_release(char *region);

/**
 * A scratch file without a name, in which regions may be instead: what of
 * them is not in memory the system reads and writes by itself. It goes with
 * the process.
 */
struct rps_region_file {
    int fd;
    pthread_mutex_t lock;
    uint64_t end; /* lock; the next mapping's offset */
};

/** Errors: IO (errno says why). */
RPS_NODISCARD rps_status rps_region_file_open(
        struct rps_region_file *file, const char *dir);
void rps_region_file_close(struct rps_region_file *file);

/** Addresses for `bytes` of the file, without a block of the disk. NULL: no
 * memory. *offset_out is for the two below. */
char *rps_region_file_map(
        struct rps_region_file *file, size_t bytes, uint64_t *offset_out);

/** Blocks of the disk for a region, before its first touch: none is missing
 * later. LIMIT: the disk has none. */
RPS_NODISCARD rps_status rps_region_file_use(
        struct rps_region_file *file, uint64_t offset);

/** Give them back; the addresses stay ours, and read 0. */
void rps_region_file_release(
        struct rps_region_file *file, uint64_t offset, size_t bytes);

#endif /* RPS_EMBEDDING_REGION_H */
