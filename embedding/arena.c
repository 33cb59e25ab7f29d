/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the regions of one table and the bits of their pages. */
#include "embedding/arena.h"

#include "base/poison.h"
#include "embedding/region.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_ALIGNMENT   ((size_t)128)
#define SPAN_REGIONS_MAX  512u
#define PAGES_OF(bytes)   (((bytes) + RPS_PAGE_BYTES - 1) / RPS_PAGE_BYTES)
#define EMPTY_REGIONS_MAX 1u /* kept, so that one row more or less is cheap */

bool
rps_arena_init(struct rps_arena *arena, struct rps_budget *budget,
        struct rps_region_file *file)
{
    *arena = (struct rps_arena){.budget = budget, .file = file};
    return pthread_mutex_init(&arena->lock, NULL) == 0;
}

void
rps_arena_finish(struct rps_arena *arena)
{
    for (uint32_t i = 0; i < arena->region_count; i++) {
        rps_unpoison(arena->regions[i].start, RPS_REGION_BYTES);
    }
    for (uint32_t i = 0; i < arena->span_count; i++) {
        rps_region_unmap(arena->spans[i].mapping, arena->spans[i].bytes);
        if (arena->file != NULL) {
            rps_region_file_release(
                    arena->file, arena->spans[i].offset, arena->spans[i].bytes);
        }
    }
    rps_budget_give(arena->budget, rps_arena_bytes(arena));
    free(arena->regions);
    free(arena->spans);
    pthread_mutex_destroy(&arena->lock);
    arena->regions = NULL;
    arena->spans = NULL;
}

static rps_status
account(struct rps_arena *arena, size_t bytes)
{
    if (arena->exceeds) {
        rps_budget_add(arena->budget, bytes);
    } else if (!rps_budget_take(arena->budget, bytes)) {
        return RPS_E_LIMIT;
    }
    atomic_fetch_add_explicit(&arena->bytes, bytes, memory_order_relaxed);
    return RPS_OK;
}

static void
unaccount(struct rps_arena *arena, size_t bytes)
{
    rps_budget_give(arena->budget, bytes);
    atomic_fetch_sub_explicit(&arena->bytes, bytes, memory_order_relaxed);
}

/* Room for `more` regions and one span in the lists. */
static rps_status
make_list_room(struct rps_arena *arena, uint32_t more)
{
    const uint32_t needed = arena->region_count + more;
    struct rps_span *spans = realloc(
            arena->spans, (arena->span_count + 1) * sizeof(*arena->spans));

    if (spans == NULL) {
        return RPS_E_NOMEM;
    }
    arena->spans = spans;
    if (needed > arena->region_room) {
        const uint32_t room = needed + arena->region_room;
        struct rps_region *regions =
                realloc(arena->regions, room * sizeof(*arena->regions));
        if (regions == NULL) {
            return RPS_E_NOMEM;
        }
        arena->regions = regions;
        arena->region_room = room;
    }
    return RPS_OK;
}

static uint32_t
next_span_regions(const struct rps_arena *arena)
{
    const uint32_t eighth = arena->region_count / 8;

    return eighth < 1                  ? 1
           : eighth > SPAN_REGIONS_MAX ? SPAN_REGIONS_MAX
                                       : eighth;
}

/* Returns the first region. */
static char *
map_span(struct rps_arena *arena, uint32_t count, struct rps_span *span)
{
    char *start = NULL;

    if (arena->file != NULL) {
        span->bytes = (size_t)count * RPS_REGION_BYTES;
        start = rps_region_file_map(arena->file, span->bytes, &span->offset);
        span->mapping = start;
        return start;
    }
    /* aligned regions need up to a region more of addresses */
    span->bytes = (count + (size_t)1) * RPS_REGION_BYTES;
    return rps_region_map(span->bytes, arena->region_count > 0, &span->mapping);
}

static rps_status
add_span_locked(struct rps_arena *arena)
{
    const uint32_t count = next_span_regions(arena);
    struct rps_span span = {.mapping = NULL};
    char *start = NULL;
    rps_status status = make_list_room(arena, count);

    if (status != RPS_OK) {
        return status;
    }
    start = map_span(arena, count, &span);
    if (start == NULL) {
        return RPS_E_NOMEM;
    }
    arena->spans[arena->span_count] = span;
    arena->span_count++;
    for (uint32_t i = 0; i < count; i++) {
        arena->regions[arena->region_count] = (struct rps_region){
                .start = start + (size_t)i * RPS_REGION_BYTES,
                .offset = span.offset + (uint64_t)i * RPS_REGION_BYTES};
        arena->region_count++;
    }
    if (arena->span_count == 2 && arena->file == NULL) {
        rps_region_make_huge(arena->regions[0].start);
    }
    return RPS_OK;
}

/* A region of which nothing is used yet: the lowest. */
static rps_status
unused_region_locked(struct rps_arena *arena, uint32_t *index_out)
{
    uint32_t index = 0;
    rps_status status = RPS_OK;

    if (arena->used_count == arena->region_count) {
        index = arena->region_count;
        status = add_span_locked(arena);
    }
    while (status == RPS_OK && arena->regions[index].used) {
        index++;
    }
    *index_out = index;
    return status;
}

static void
note_room_locked(struct rps_arena *arena, uint32_t index)
{
    for (size_t n = 0; n <= RPS_REGION_PAGES; n++) {
        arena->fit[n] = arena->fit[n] < index ? arena->fit[n] : index;
    }
}

static rps_status
use_region_locked(struct rps_arena *arena, uint32_t *index_out)
{
    struct rps_region *region = NULL;
    rps_status status = account(arena, RPS_REGION_BYTES);

    if (status != RPS_OK) {
        return status;
    }
    status = unused_region_locked(arena, index_out);
    if (status == RPS_OK && arena->file != NULL) {
        status = rps_region_file_use(
                arena->file, arena->regions[*index_out].offset);
    }
    if (status != RPS_OK) {
        unaccount(arena, RPS_REGION_BYTES);
        return status;
    }
    region = &arena->regions[*index_out];
    memset(region->taken, 0, sizeof(region->taken));
    region->used = true;
    region->free_pages = RPS_REGION_PAGES;
    arena->used_count++;
    arena->empty_count++;
    note_room_locked(arena, *index_out);
    if (arena->file == NULL) {
        rps_region_place(region->start);
    }
    rps_poison(region->start, RPS_REGION_BYTES);
    return RPS_OK;
}

static void
leave_region_locked(struct rps_arena *arena, struct rps_region *region)
{
    rps_unpoison(region->start, RPS_REGION_BYTES);
    if (arena->file == NULL) {
        rps_region_release(region->start);
    } else {
        rps_region_file_release(arena->file, region->offset, RPS_REGION_BYTES);
    }
    region->used = false;
    arena->used_count--;
    arena->empty_count--;
    unaccount(arena, RPS_REGION_BYTES);
}

static void
mark_pages(struct rps_region *region, size_t first, size_t count, bool taken)
{
    for (size_t page = first; page < first + count; page++) {
        const uint64_t bit = (uint64_t)1 << (page % 64);
        assert(((region->taken[page / 64] & bit) != 0) != taken);
        region->taken[page / 64] ^= bit;
    }
    region->free_pages += taken ? -(uint32_t)count : (uint32_t)count;
}

/* The first page from `page` on that is taken, or that is free; 512: none. */
static size_t
next_page(const struct rps_region *region, size_t page, bool taken)
{
    const uint64_t flip = taken ? 0 : UINT64_MAX;

    while (page < RPS_REGION_PAGES) {
        const uint64_t found = (region->taken[page / 64] ^ flip) >> (page % 64);
        if (found != 0) {
            return page + (size_t)__builtin_ctzll(found);
        }
        page = (page / 64 + 1) * 64;
    }
    return RPS_REGION_PAGES;
}

/* First page of the first `count` free ones in a row; 512: there are none. */
static size_t
find_pages(const struct rps_region *region, size_t count)
{
    size_t first = next_page(region, 0, false);

    while (first + count <= RPS_REGION_PAGES) {
        const size_t end = next_page(region, first, true);
        if (end - first >= count) {
            return first;
        }
        first = next_page(region, end, false);
    }
    return RPS_REGION_PAGES;
}

/* The lowest used region with `count` pages in a row, and where. */
static rps_status
find_run_locked(struct rps_arena *arena, size_t count, uint32_t *index_out,
        size_t *first_out)
{
    rps_status status = RPS_OK;

    for (uint32_t i = arena->fit[count]; i < arena->region_count; i++) {
        const struct rps_region *region = &arena->regions[i];
        if (region->used && region->free_pages >= count) {
            *first_out = find_pages(region, count);
            if (*first_out < RPS_REGION_PAGES) {
                arena->fit[count] = i;
                *index_out = i;
                return RPS_OK;
            }
        }
    }
    arena->fit[count] = arena->region_count;
    *first_out = 0;
    status = use_region_locked(arena, index_out);
    return status;
}

static rps_status
take_pages(struct rps_arena *arena, size_t bytes, struct rps_run *run_out)
{
    const size_t count = PAGES_OF(bytes);
    uint32_t index = 0;
    size_t first = 0;
    rps_status status = RPS_OK;

    pthread_mutex_lock(&arena->lock);
    status = find_run_locked(arena, count, &index, &first);
    if (status == RPS_OK) {
        struct rps_region *region = &arena->regions[index];
        arena->empty_count -= region->free_pages == RPS_REGION_PAGES;
        mark_pages(region, first, count, true);
        *run_out = (struct rps_run){
                .start = region->start + first * RPS_PAGE_BYTES,
                .bytes = count * RPS_PAGE_BYTES,
                .region = index};
        rps_unpoison(run_out->start, run_out->bytes);
    }
    pthread_mutex_unlock(&arena->lock);
    return status;
}

static rps_status
take_small(struct rps_arena *arena, size_t bytes, struct rps_run *run_out)
{
    void *start = NULL;
    rps_status status = account(arena, bytes);

    if (status == RPS_OK &&
            posix_memalign(&start, SMALL_ALIGNMENT, bytes) != 0) {
        unaccount(arena, bytes);
        status = RPS_E_NOMEM;
    }
    if (status == RPS_OK) {
        *run_out = (struct rps_run){
                .start = start, .bytes = bytes, .region = RPS_REGION_NONE};
    }
    return status;
}

rps_status
rps_arena_take(struct rps_arena *arena, size_t bytes, struct rps_run *run_out)
{
    assert(bytes > 0 && bytes <= RPS_REGION_BYTES);

    *run_out = (struct rps_run){.start = NULL};
    return bytes < RPS_PAGE_BYTES ? take_small(arena, bytes, run_out)
                                  : take_pages(arena, bytes, run_out);
}

static void
give_pages(struct rps_arena *arena, const struct rps_run *run)
{
    struct rps_region *region = NULL;

    pthread_mutex_lock(&arena->lock);
    region = &arena->regions[run->region];
    mark_pages(region,
            (size_t)((char *)run->start - region->start) / RPS_PAGE_BYTES,
            run->bytes / RPS_PAGE_BYTES, false);
    rps_poison(run->start, run->bytes);
    note_room_locked(arena, run->region);
    if (region->free_pages == RPS_REGION_PAGES) {
        arena->empty_count++;
        if (arena->empty_count > EMPTY_REGIONS_MAX) {
            leave_region_locked(arena, region);
        }
    }
    pthread_mutex_unlock(&arena->lock);
}

void
rps_arena_give(struct rps_arena *arena, struct rps_run *run)
{
    if (run->start == NULL) {
        return;
    }
    if (run->region == RPS_REGION_NONE) {
        free(run->start);
        unaccount(arena, run->bytes);
    } else {
        give_pages(arena, run);
    }
    *run = (struct rps_run){.start = NULL};
}

/* The region behind so many used ones. */
static uint32_t
behind_used_locked(const struct rps_arena *arena, uint64_t used)
{
    uint32_t index = 0;

    while (used > 0) {
        used -= arena->regions[index].used;
        index++;
    }
    return index;
}

uint32_t
rps_arena_high(struct rps_arena *arena)
{
    uint64_t pages = 0;
    uint64_t needed = 0;
    uint32_t high = RPS_REGION_NONE;

    pthread_mutex_lock(&arena->lock);
    for (uint32_t i = 0; i < arena->region_count; i++) {
        if (arena->regions[i].used) {
            pages += RPS_REGION_PAGES - arena->regions[i].free_pages;
        }
    }
    needed = (pages + pages / 8) / RPS_REGION_PAGES + 1;
    if (needed < arena->used_count) {
        high = behind_used_locked(arena, needed);
    }
    pthread_mutex_unlock(&arena->lock);
    return high;
}

void
rps_arena_trim(struct rps_arena *arena)
{
    pthread_mutex_lock(&arena->lock);
    for (uint32_t i = 0; arena->empty_count > 0 && i < arena->region_count;
            i++) {
        struct rps_region *region = &arena->regions[i];
        if (region->used && region->free_pages == RPS_REGION_PAGES) {
            leave_region_locked(arena, region);
        }
    }
    pthread_mutex_unlock(&arena->lock);
}
