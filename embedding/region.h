/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the arenas ask of the operating system, for regions of 2 MiB.
 *
 * Threads: any.
 */
#ifndef RPS_EMBEDDING_REGION_H
#define RPS_EMBEDDING_REGION_H

#include <stdbool.h>
#include <stddef.h>

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

#endif /* RPS_EMBEDDING_REGION_H */
