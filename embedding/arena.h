/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of one table: regions of 2 MiB, on huge pages where the system
 * gives them, cut into runs of whole pages.
 *
 *   span    one mapping of 1, 1, 2, 3, ... 512 regions (an eighth of what is
 *           there), so that a terabyte is a few thousand mappings; what of it
 *           is not used yet costs no memory
 *   region  2 MiB, 512 pages, a bit a page; taken from the budget and given
 *           back to the system as a whole
 *   run     1 .. 512 pages of one region; the lowest region that has them,
 *           so that what is taken after a large eviction ends up together
 *
 * A run of less than a page comes from malloc: a small table takes little.
 * So does the first region, which stays on small pages until a second one
 * shows that the table is large.
 *
 * Threads: any; a short lock inside.
 */
#ifndef RPS_EMBEDDING_ARENA_H
#define RPS_EMBEDDING_ARENA_H

#include "embedding/budget.h"

#include <recps/status.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_PAGE_BYTES   ((size_t)4096)
#define RPS_REGION_BYTES ((size_t)2 << 20)
#define RPS_REGION_PAGES (RPS_REGION_BYTES / RPS_PAGE_BYTES)
#define RPS_REGION_NONE  UINT32_MAX /* from malloc */

/** Memory that was taken: `bytes` at `start`, in one region. */
struct rps_run {
    void *start; /* aligned to 128 bytes; NULL: nothing */
    size_t bytes;
    uint32_t region; /* the lower, the older; or RPS_REGION_NONE */
};

struct rps_region {
    char *start;
    uint64_t offset;                       /* in the arena's file */
    bool used;                             /* its memory is ours */
    uint32_t free_pages;                   /* of a used one */
    uint64_t taken[RPS_REGION_PAGES / 64]; /* a bit a page */
};

struct rps_span {
    void *mapping;
    size_t bytes;
    uint64_t offset; /* in the arena's file */
};

struct rps_region_file;

struct rps_arena {
    struct rps_budget *budget;
    struct rps_region_file *file; /* NULL: in memory */
    bool exceeds; /* takes what it needs, whatever the budget says; set
                     before use */
    pthread_mutex_t lock;
    struct rps_region *regions; /* lock; [region_count] */
    uint32_t region_count;      /* lock */
    uint32_t region_room;       /* lock */
    uint32_t used_count;        /* lock; regions whose memory is ours */
    uint32_t empty_count;       /* lock; of them without a run: 0 or 1 */
    struct rps_span *spans;     /* lock; [span_count] */
    uint32_t span_count;        /* lock */
    uint32_t fit[RPS_REGION_PAGES + 1]; /* lock; no region below has n pages */
    _Atomic uint64_t bytes; /* of regions and small runs; read by anyone */
};

/** file: where its regions are; NULL: memory. false: no lock could be made. */
bool rps_arena_init(struct rps_arena *arena, struct rps_budget *budget,
        struct rps_region_file *file);

/** Gives everything back, runs that are still taken too. */
void rps_arena_finish(struct rps_arena *arena);

/**
 * Take at least `bytes` (1 .. RPS_REGION_BYTES), rounded up to whole pages
 * from a page on. Its content is undefined.
 * Errors: NOMEM (of the system), LIMIT (of the budget).
 */
RPS_NODISCARD rps_status rps_arena_take(
        struct rps_arena *arena, size_t bytes, struct rps_run *run_out);

/** Accepts a run that holds nothing. *run holds nothing after it. */
void rps_arena_give(struct rps_arena *arena, struct rps_run *run);

/**
 * The region from which on memory should be given back: those below could
 * hold all that is taken, with an eighth to spare. RPS_REGION_NONE: none.
 */
uint32_t rps_arena_high(struct rps_arena *arena);

/** Give back the region that is kept though nothing is in it. */
void rps_arena_trim(struct rps_arena *arena);

/** What the arena takes from its budget. */
static inline uint64_t
rps_arena_bytes(const struct rps_arena *arena)
{
    /* a figure that nothing is ordered by */
    return atomic_load_explicit(&arena->bytes, memory_order_relaxed);
}

#endif /* RPS_EMBEDDING_ARENA_H */
