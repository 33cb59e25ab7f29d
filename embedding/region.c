/* SPDX-License-Identifier: Apache-2.0 */
/* Owns nothing but the NUMA policy of the process' regions. */
#include "embedding/region.h"

#include "embedding/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

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

rps_status
rps_region_file_open(struct rps_region_file *file, const char *dir)
{
    char path[PATH_MAX];

    if ((size_t)snprintf(path, sizeof(path), "%s/.recps-rows-XXXXXX", dir) >=
            sizeof(path)) {
        errno = ENAMETOOLONG;
        return RPS_E_IO;
    }
    file->fd = mkstemp(path);
    if (file->fd < 0) {
        return RPS_E_IO;
    }
    (void)unlink(path);
    (void)fcntl(file->fd, F_SETFD, FD_CLOEXEC);
    file->end = 0;
    if (pthread_mutex_init(&file->lock, NULL) != 0) {
        close(file->fd);
        errno = ENOMEM;
        return RPS_E_IO;
    }
    return RPS_OK;
}

void
rps_region_file_close(struct rps_region_file *file)
{
    pthread_mutex_destroy(&file->lock);
    close(file->fd);
}

char *
rps_region_file_map(
        struct rps_region_file *file, size_t bytes, uint64_t *offset_out)
{
    char *mapping = MAP_FAILED;

    pthread_mutex_lock(&file->lock);
    *offset_out = file->end;
    if (ftruncate(file->fd, (off_t)(file->end + bytes)) == 0) {
        mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                file->fd, (off_t)file->end);
    }
    if (mapping != MAP_FAILED) {
        file->end += bytes;
    }
    pthread_mutex_unlock(&file->lock);
    if (mapping == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(mapping, bytes, MADV_RANDOM); /* a row is near no other */
    return mapping;
}

rps_status
rps_region_file_use(struct rps_region_file *file, uint64_t offset)
{
    return posix_fallocate(file->fd, (off_t)offset, RPS_REGION_BYTES) == 0
                   ? RPS_OK
                   : RPS_E_LIMIT;
}

void
rps_region_file_release(
        struct rps_region_file *file, uint64_t offset, size_t bytes)
{
    (void)fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            (off_t)offset, (off_t)bytes);
}
