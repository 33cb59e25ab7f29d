/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which row of a table is in which place of a device's memory, and how old it
 * is. No network and no device: it says what a batch needs and where it goes,
 * and is told what became of it.
 *
 *   places  0 … capacity - 1   rows that stay, least recently used out
 *           capacity …         rows that did not fit, for one batch only
 *
 * A batch's keys are used in the order of its tokens, so while a batch has at
 * most `capacity` distinct keys the rows that stay are the `capacity` ones that
 * were used last: what an LRU cache has that sees one token after the other. A
 * key of the batch is never put out by another one of it; where they are more
 * than fit, those that are here stay, then the first ones get a place, and the
 * others have places for this batch alone.
 *
 * A row of version v has all pushes of the steps up to v. A batch of step s
 * takes it as it is where s - 1 - v <= staleness; what must be asked for has
 * version s - 1 from then on.
 *
 *   held = fresh + refresh + changed,  asked = held + absent
 *   absent = placed + extra,           evicted <= placed
 */
#ifndef RPS_WORKER_ROW_CACHE_H
#define RPS_WORKER_ROW_CACHE_H

#include <recps/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_ROW_CACHE_MAX UINT32_C(0x40000000) /* places of both kinds */

/** What a batch needs of a row. */
enum rps_row_need {
    RPS_ROW_FRESH = 0, /* nothing: it is here, and new enough */
    RPS_ROW_REFRESH,   /* it is here; whether it changed must be asked */
    RPS_ROW_FETCH      /* it is not here, or is known to have changed */
};

/** The same for all tokens of a key. */
struct rps_row_place {
    uint64_t since; /* of what is to be refreshed: REFRESH's c */
    uint32_t place;
    enum rps_row_need need;
};

struct rps_row_batch {
    const uint64_t *keys; /* [count]; each of the 2^64 is legal, repeatedly */
    size_t count;
    uint64_t step;      /* s; greater than that of the batch before */
    uint64_t staleness; /* in steps */
    /** Batches of steps up to this one are done: their places may be given
     * away. Who moves rows to their places in the order of the steps says
     * s - 1, whatever else is on its way. */
    uint64_t done;
    bool pushes;     /* the step changes each of its rows */
    bool refreshing; /* false: what is not fresh is fetched */
};

/** Distinct keys of batches, summed over them. */
struct rps_row_figures {
    uint64_t asked;
    uint64_t held; /* of them, rows that were here */
    uint64_t fresh;
    uint64_t refresh;
    uint64_t changed; /* here, but fetched again */
    uint64_t absent;
    uint64_t extra; /* absent, and no place to stay */
    uint64_t evicted;
};

struct rps_row_entry {
    uint64_t key;
    uint64_t used;         /* step of the last batch that had it */
    uint64_t version;      /* it has the pushes of steps up to this one */
    uint64_t pushed;       /* the first step whose push it lacks; 0: none */
    uint64_t since;        /* REFRESH's c; UINT64_MAX: not answered yet */
    uint64_t since_before; /* the same, before the last batch that had it */
    uint32_t newer, older; /* neighbours in order of use; NONE */
    enum rps_row_need need;
};

struct rps_row_cache {
    uint32_t capacity;
    uint32_t count;                /* rows that stay */
    uint32_t extras;               /* places beyond them that were ever used */
    uint32_t room;                 /* of entries */
    struct rps_row_entry *entries; /* [capacity + extras], by place */
    uint32_t newest, oldest;       /* of the rows that stay */
    uint32_t extra_first;          /* in use by batches, those of the oldest */
    uint32_t extra_last;           /*   batch first; by `older` */
    uint32_t extra_free;           /* a list by `older` */
    uint32_t *index;               /* [mask + 1]: place + 1; 0: free */
    size_t mask;
    uint64_t step; /* of the last batch */
    struct rps_row_figures figures;
};

/** capacity >= 1. NOMEM, LIMIT. */
rps_status rps_row_cache_init(struct rps_row_cache *cache, uint64_t capacity);

/** A zeroed one is fine. */
void rps_row_cache_finish(struct rps_row_cache *cache);

/**
 * The batch's rows: places[count], for each token. The caller sees to it that
 * what they need is there before the batch is computed, or clears the cache.
 * NOMEM, LIMIT: nothing was done.
 */
rps_status rps_row_cache_take(struct rps_row_cache *cache,
        const struct rps_row_batch *batch, struct rps_row_place *places);

/** What the batch needed was answered from step c of the servers' clock. Rows
 * that have lost their place since are left alone. */
void rps_row_cache_answered(struct rps_row_cache *cache,
        const struct rps_row_batch *batch, const struct rps_row_place *places,
        uint64_t c);

/** The batch's step pushed nothing after all. */
void rps_row_cache_unpushed(struct rps_row_cache *cache,
        const struct rps_row_batch *batch, const struct rps_row_place *places);

/** All rows are forgotten; figures stay. */
void rps_row_cache_clear(struct rps_row_cache *cache);

#endif /* RPS_WORKER_ROW_CACHE_H */
