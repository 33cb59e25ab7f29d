/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges are few (the pool takes megabytes at a time): a sorted array. */
#include "client/npu/memory.h"

#include "client/npu/error.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static char *
map(uint64_t bytes, int access)
{
    void *at = mmap(NULL, bytes, access,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return at == MAP_FAILED ? NULL : at;
}

rps_status
rps_npu_memory_init(struct rps_npu_memory *memory, uint64_t capacity)
{
    *memory = (struct rps_npu_memory){
            .capacity = capacity - capacity % RPS_NPU_PAGE_BYTES};
    pthread_mutex_init(&memory->lock, NULL);
    memory->outside = map(memory->capacity, PROT_NONE);
    memory->inside = map(memory->capacity, PROT_READ | PROT_WRITE);
    if (memory->outside == NULL || memory->inside == NULL) {
        rps_npu_fail(RPS_E_NOMEM,
                "no addresses for %" PRIu64 " bytes of device memory: %s; ask "
                "for less memory_bytes",
                capacity, strerror(errno));
        rps_npu_memory_finish(memory);
        return RPS_E_NOMEM;
    }
    /* large pages where there are any: kernels walk long rows */
    (void)madvise(memory->inside, memory->capacity, MADV_HUGEPAGE);
    return RPS_OK;
}

void
rps_npu_memory_finish(struct rps_npu_memory *memory)
{
    if (memory->outside != NULL) {
        munmap(memory->outside, memory->capacity);
    }
    if (memory->inside != NULL) {
        munmap(memory->inside, memory->capacity);
    }
    free(memory->ranges);
    pthread_mutex_destroy(&memory->lock);
    *memory = (struct rps_npu_memory){0};
}

static uint64_t
end_of(const struct rps_npu_memory *memory, uint32_t index)
{
    return memory->ranges[index].offset + memory->ranges[index].bytes;
}

/* Free bytes between range index - 1 and range index (or the end). */
static uint64_t
gap_before_locked(const struct rps_npu_memory *memory, uint32_t index,
        uint64_t *offset_out)
{
    const uint64_t end = index < memory->range_count
                                 ? memory->ranges[index].offset
                                 : memory->capacity;

    *offset_out = index == 0 ? 0 : end_of(memory, index - 1);
    return end - *offset_out;
}

static bool
grow_locked(struct rps_npu_memory *memory)
{
    const uint32_t more = memory->ranges_max == 0 ? 64 : 2 * memory->ranges_max;
    struct rps_npu_range *ranges = NULL;

    if (memory->range_count < memory->ranges_max) {
        return true;
    }
    ranges = realloc(memory->ranges, more * sizeof(*ranges));
    if (ranges == NULL) {
        return false;
    }
    memory->ranges = ranges;
    memory->ranges_max = more;
    return true;
}

static void
insert_locked(struct rps_npu_memory *memory, uint32_t index,
        struct rps_npu_range range)
{
    struct rps_npu_range *at = memory->ranges + index;

    memmove(at + 1, at, (memory->range_count - index) * sizeof(*at));
    *at = range;
    memory->range_count++;
    memory->taken += range.bytes;
}

/* *largest_out: the largest gap, where none is large enough. */
static bool
take_locked(struct rps_npu_memory *memory, struct rps_npu_range *range,
        uint64_t *largest_out)
{
    *largest_out = 0;
    for (uint32_t i = 0; i <= memory->range_count; i++) {
        const uint64_t gap = gap_before_locked(memory, i, &range->offset);

        if (gap >= range->bytes) {
            insert_locked(memory, i, *range);
            return true;
        }
        *largest_out = gap > *largest_out ? gap : *largest_out;
    }
    return false;
}

rps_status
rps_npu_memory_take(struct rps_npu_memory *memory, uint64_t bytes, bool pooled,
        void **outside_out)
{
    const uint64_t rest = bytes % RPS_NPU_PAGE_BYTES;
    struct rps_npu_range range = {.bytes = bytes, .pooled = pooled};
    uint64_t largest = 0;
    uint64_t taken = 0;
    bool room = false;
    bool found = false;

    *outside_out = NULL;
    if (rest != 0 && bytes <= memory->capacity) {
        range.bytes += RPS_NPU_PAGE_BYTES - rest;
    }
    pthread_mutex_lock(&memory->lock);
    room = grow_locked(memory);
    found = room && take_locked(memory, &range, &largest);
    taken = memory->taken;
    pthread_mutex_unlock(&memory->lock);
    if (!room) {
        return rps_npu_nomem("device memory");
    }
    if (!found) {
        return rps_npu_fail(RPS_E_NOMEM,
                "out of device memory: %" PRIu64 " bytes asked for; of the "
                "capacity of %" PRIu64 ", %" PRIu64 " are taken, and the "
                "largest free range has %" PRIu64,
                bytes, memory->capacity, taken, largest);
    }
    *outside_out = memory->outside + range.offset;
    return RPS_OK;
}

/* The last range that begins at offset or before it; -1: none. */
static int64_t
find_locked(const struct rps_npu_memory *memory, uint64_t offset)
{
    uint32_t low = 0;
    uint32_t high = memory->range_count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (memory->ranges[middle].offset <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return (int64_t)low - 1;
}

static uint64_t
offset_of(const struct rps_npu_memory *memory, const void *outside)
{
    return (uint64_t)((const char *)outside - memory->outside);
}

/* The range that begins at this address, the pool's or not; -1: none. */
static int64_t
find_start_locked(
        const struct rps_npu_memory *memory, const void *outside, bool pooled)
{
    const uint64_t offset = offset_of(memory, outside);
    const int64_t at = find_locked(memory, offset);

    return at >= 0 && memory->ranges[at].offset == offset &&
                           memory->ranges[at].pooled == pooled
                   ? at
                   : -1;
}

bool
rps_npu_memory_is_taken(
        struct rps_npu_memory *memory, const void *outside, bool pooled)
{
    bool taken = false;

    if (!rps_npu_memory_has(memory, outside)) {
        return false;
    }
    pthread_mutex_lock(&memory->lock);
    taken = find_start_locked(memory, outside, pooled) >= 0;
    pthread_mutex_unlock(&memory->lock);
    return taken;
}

/* Pages go before the range does: nobody else may have them meanwhile. */
bool
rps_npu_memory_give_back(
        struct rps_npu_memory *memory, void *outside, bool pooled)
{
    int64_t at = -1;

    if (!rps_npu_memory_has(memory, outside)) {
        return false;
    }
    pthread_mutex_lock(&memory->lock);
    at = find_start_locked(memory, outside, pooled);
    if (at >= 0) {
        struct rps_npu_range *range = memory->ranges + at;
        char *inside = memory->inside + range->offset;

        if (madvise(inside, range->bytes, MADV_DONTNEED) != 0) {
            memset(inside, 0, range->bytes); /* locked pages stay */
        }
        memory->taken -= range->bytes;
        memory->range_count--;
        memmove(range, range + 1,
                (memory->range_count - (uint64_t)at) * sizeof(*range));
    }
    pthread_mutex_unlock(&memory->lock);
    return at >= 0;
}

bool
rps_npu_memory_has(const struct rps_npu_memory *memory, const void *address)
{
    const uintptr_t first = (uintptr_t)memory->outside;
    const uintptr_t at = (uintptr_t)address;

    return at >= first && at - first < memory->capacity;
}

uint64_t
rps_npu_memory_left(
        struct rps_npu_memory *memory, const void *outside, bool *pooled_out)
{
    uint64_t offset = 0;
    uint64_t left = 0;
    int64_t at = -1;

    *pooled_out = false;
    if (!rps_npu_memory_has(memory, outside)) {
        return 0;
    }
    offset = offset_of(memory, outside);
    pthread_mutex_lock(&memory->lock);
    at = find_locked(memory, offset);
    if (at >= 0 && end_of(memory, (uint32_t)at) > offset) {
        left = end_of(memory, (uint32_t)at) - offset;
        *pooled_out = memory->ranges[at].pooled;
    }
    pthread_mutex_unlock(&memory->lock);
    return left;
}

void *
rps_npu_memory_inside(const struct rps_npu_memory *memory, const void *outside)
{
    assert(rps_npu_memory_has(memory, outside));
    return memory->inside + offset_of(memory, outside);
}

uint64_t
rps_npu_memory_free_bytes(const struct rps_npu_memory *memory)
{
    return memory->capacity - memory->taken;
}
