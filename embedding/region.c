/* SPDX-License-Identifier: Apache-2.0 */
/* Owns nothing but the NUMA policy of the process' regions. */
#include "embedding/region.h"

#include "embedding/arena.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#ifdef RPS_HAVE_NUMA
#include <numa.h>

static _Atomic int policy = RPS_NUMA_OFF; /* set at start: relaxed */
#endif

bool
rps_region_numa(enum rps_numa numa)
{
#ifdef RPS_HAVE_NUMA
    if (numa != RPS_NUMA_OFF && numa_available() < 0) {
        return false;
    }
    atomic_store_explicit(&policy, (int)numa, memory_order_relaxed);
    return true;
#else
    return numa == RPS_NUMA_OFF;
#endif
}

void
rps_region_place(char *region)
{
#ifdef RPS_HAVE_NUMA
    switch (atomic_load_explicit(&policy, memory_order_relaxed)) {
    case RPS_NUMA_INTERLEAVE:
        numa_interleave_memory(region, RPS_REGION_BYTES, numa_all_nodes_ptr);
        break;
    case RPS_NUMA_BIND:
        numa_setlocal_memory(region, RPS_REGION_BYTES);
        break;
    default:
        break;
    }
#else
    (void)region;
#endif
}

/* Advice: without it everything works, slower. */
static void
advise(char *start, size_t bytes, bool huge)
{
    (void)madvise(start, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

char *
rps_region_map(size_t bytes, bool huge, void **mapping_out)
{
    const size_t mask = RPS_REGION_BYTES - 1;
    char *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t before = 0;

    if (mapping == MAP_FAILED) {
        return NULL;
    }
    *mapping_out = mapping;
    before = (RPS_REGION_BYTES - ((uintptr_t)mapping & mask)) & mask;
    advise(mapping + before, bytes - RPS_REGION_BYTES, huge);
    return mapping + before;
}

void
rps_region_unmap(void *mapping, size_t bytes)
{
    (void)munmap(mapping, bytes);
}

void
rps_region_make_huge(char *region)
{
    advise(region, RPS_REGION_BYTES, true);
}

void
rps_region_release(char *region)
{
    (void)madvise(region, RPS_REGION_BYTES, MADV_DONTNEED);
}
