/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the counters of one table's hot keys.
 *
 * Counters never leave their place, they change keys; `places` finds them by
 * key. The least count only grows between two halvings, so the counter that
 * gives way is found by going round: from where the last one was, the first
 * that still has the least count; only when a whole round finds none is the
 * least worked out anew. Most of a skewed stream's tail shares the least
 * count, so that a round is paid once in many keys.
 */
#include "embedding/hot.h"

#include "base/hash.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PLACE_COUNT 2048u /* a quarter full at most */
#define PLACE_MASK  (PLACE_COUNT - 1u)

_Static_assert(RPS_HOT_KEYS_MAX * 4 <= PLACE_COUNT, "probes stay short");
_Static_assert(RPS_HOT_KEYS_MAX < UINT16_MAX, "a place names a counter + 1");

struct rps_hot {
    pthread_mutex_t lock;
    struct rps_hot_key counters[RPS_HOT_KEYS_MAX]; /* lock */
    uint16_t places[PLACE_COUNT]; /* lock; counter + 1 by key, 0 = free */
    size_t used;                  /* lock; counters with a key */
    size_t at;                    /* lock; where the search goes on */
    uint64_t least;               /* lock; no counter has less */
    uint64_t added;               /* lock; since the last halving */
};

struct rps_hot *
rps_hot_create(void)
{
    struct rps_hot *hot = calloc(1, sizeof(*hot));

    if (hot != NULL && pthread_mutex_init(&hot->lock, NULL) != 0) {
        free(hot);
        hot = NULL;
    }
    return hot;
}

void
rps_hot_destroy(struct rps_hot *hot)
{
    if (hot != NULL) {
        pthread_mutex_destroy(&hot->lock);
        free(hot);
    }
}

uint64_t
rps_hot_bytes(void)
{
    return sizeof(struct rps_hot);
}

size_t
rps_hot_first(uint64_t draws, uint64_t push)
{
    return (size_t)(rps_mix64(draws ^ rps_mix64(push)) % RPS_HOT_SAMPLE);
}

static size_t
home_of(uint64_t key)
{
    return (size_t)(rps_mix64(key) & PLACE_MASK);
}

/* The key's place, or the free one that ends its probe. */
static size_t
probe_locked(const struct rps_hot *hot, uint64_t key)
{
    size_t at = home_of(key);

    while (hot->places[at] != 0 &&
            hot->counters[hot->places[at] - 1].key != key) {
        at = (at + 1) & PLACE_MASK;
    }
    return at;
}

/* What probes past the hole moves up: see counts.c. */
static void
free_place_locked(struct rps_hot *hot, size_t hole)
{
    size_t next = (hole + 1) & PLACE_MASK;

    while (hot->places[next] != 0) {
        const size_t home = home_of(hot->counters[hot->places[next] - 1].key);
        if (((next - home) & PLACE_MASK) >= ((next - hole) & PLACE_MASK)) {
            hot->places[hole] = hot->places[next];
            hole = next;
        }
        next = (next + 1) & PLACE_MASK;
    }
    hot->places[hole] = 0;
}

static void
work_out_least_locked(struct rps_hot *hot)
{
    hot->least = UINT64_MAX;
    for (size_t i = 0; i < hot->used; i++) {
        if (hot->counters[i].count < hot->least) {
            hot->least = hot->counters[i].count;
        }
    }
}

/* A counter with the least count; all are in use. */
static size_t
find_least_locked(struct rps_hot *hot)
{
    size_t looked = 0;

    assert(hot->used == RPS_HOT_KEYS_MAX);

    while (hot->counters[hot->at].count > hot->least) {
        hot->at = (hot->at + 1) % RPS_HOT_KEYS_MAX;
        looked++;
        if (looked == RPS_HOT_KEYS_MAX) {
            work_out_least_locked(hot); /* one of the next round has it */
        }
    }
    return hot->at;
}

/* Give a counter to a key that has none. */
static void
take_counter_locked(struct rps_hot *hot, uint64_t key, uint64_t weight)
{
    struct rps_hot_key *counter = NULL;
    size_t at = hot->used;

    if (hot->used < RPS_HOT_KEYS_MAX) {
        hot->used++;
        hot->counters[at] = (struct rps_hot_key){.key = key, .count = weight};
    } else {
        at = find_least_locked(hot);
        counter = &hot->counters[at];
        free_place_locked(hot, probe_locked(hot, counter->key));
        counter->key = key;
        counter->error = counter->count;
        counter->count += weight;
    }
    hot->places[probe_locked(hot, key)] = (uint16_t)(at + 1);
}

static void
halve_locked(struct rps_hot *hot)
{
    for (size_t i = 0; i < hot->used; i++) {
        hot->counters[i].count /= 2;
        hot->counters[i].error /= 2;
    }
    hot->least /= 2;
    hot->added /= 2;
}

void
rps_hot_add(struct rps_hot *hot, uint64_t key, uint64_t weight)
{
    size_t place = 0;

    pthread_mutex_lock(&hot->lock);
    place = probe_locked(hot, key);
    if (hot->places[place] != 0) {
        hot->counters[hot->places[place] - 1].count += weight;
    } else {
        take_counter_locked(hot, key, weight);
    }
    hot->added += weight;
    while (hot->added >= RPS_HOT_AGE_ADDED) {
        halve_locked(hot);
    }
    pthread_mutex_unlock(&hot->lock);
}

/* Largest count first; equal ones by key, so that an answer has one order. */
static int
compare(const void *left, const void *right)
{
    const struct rps_hot_key *a = left;
    const struct rps_hot_key *b = right;

    if (a->count != b->count) {
        return a->count > b->count ? -1 : 1;
    }
    return (a->key > b->key) - (a->key < b->key);
}

size_t
rps_hot_top(struct rps_hot *hot, size_t max, struct rps_hot_key *out)
{
    struct rps_hot_key sorted[RPS_HOT_KEYS_MAX]; /* 12 KiB */
    size_t used = 0;

    pthread_mutex_lock(&hot->lock);
    used = hot->used;
    memcpy(sorted, hot->counters, used * sizeof(*sorted));
    pthread_mutex_unlock(&hot->lock);
    qsort(sorted, used, sizeof(*sorted), compare);
    used = used < max ? used : max;
    while (used > 0 && sorted[used - 1].count == 0) {
        used--; /* faded */
    }
    memcpy(out, sorted, used * sizeof(*out));
    return used;
}
