/* SPDX-License-Identifier: Apache-2.0 */
/* Owns one shard's counts; who is admitted is decided in admit.h. */
#include "embedding/counts.h"

#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PLACES_MIN  64u
#define PLACE_BYTES (sizeof(uint64_t) + sizeof(uint16_t))

void
rps_counts_init(
        struct rps_counts *counts, uint64_t job_seed, struct rps_budget *budget)
{
    *counts = (struct rps_counts){.job_seed = job_seed,
            .budget = budget,
            .bytes_max = RPS_COUNTS_PLACES_MAX * PLACE_BYTES};
}

/* NULL: no memory. */
static void *
copy_of(const struct rps_counts *counts)
{
    const size_t keys = counts->places * sizeof(*counts->keys);
    char *copy = malloc(counts->places * PLACE_BYTES);

    if (copy != NULL) {
        memcpy(copy, counts->keys, keys);
        memcpy(copy + keys, counts->counts,
                counts->places * sizeof(*counts->counts));
    }
    return copy;
}

/* Before any change. */
static void
keep_frozen(struct rps_counts *counts)
{
    if (counts->frozen != RPS_FROZEN_SHARED) {
        return;
    }
    counts->frozen = RPS_FROZEN_COPIED;
    if (counts->places == 0) {
        return;
    }
    counts->copy = copy_of(counts);
    counts->copy_places = counts->places;
    if (counts->copy == NULL) {
        counts->copy_places = 0;
        counts->frozen = RPS_FROZEN_LOST;
    } else if (counts->budget != NULL) {
        rps_budget_add(counts->budget, counts->copy_places * PLACE_BYTES);
    }
}

void
rps_counts_freeze(struct rps_counts *counts)
{
    assert(counts->frozen == RPS_FROZEN_NOT);
    counts->frozen = RPS_FROZEN_SHARED;
}

void
rps_counts_thaw(struct rps_counts *counts)
{
    if (counts->copy != NULL && counts->budget != NULL) {
        rps_budget_give(counts->budget, counts->copy_places * PLACE_BYTES);
    }
    free(counts->copy);
    counts->copy = NULL;
    counts->copy_places = 0;
    counts->frozen = RPS_FROZEN_NOT;
}

bool
rps_counts_frozen(
        const struct rps_counts *counts, void **copy_out, size_t *places_out)
{
    *copy_out = NULL;
    *places_out = 0;
    if (counts->frozen == RPS_FROZEN_LOST) {
        return false;
    }
    if (counts->frozen == RPS_FROZEN_SHARED) {
        *places_out = counts->places;
        *copy_out = counts->places == 0 ? NULL : copy_of(counts);
    } else if (counts->copy != NULL) {
        *places_out = counts->copy_places;
        *copy_out = malloc(counts->copy_places * PLACE_BYTES);
        if (*copy_out != NULL) {
            memcpy(*copy_out, counts->copy, counts->copy_places * PLACE_BYTES);
        }
    }
    return *copy_out != NULL || *places_out == 0;
}

/* The arrays go; what was frozen stays. */
static void
drop_arrays(struct rps_counts *counts)
{
    free(counts->keys);
    free(counts->counts);
    rps_budget_give(counts->budget, rps_counts_bytes(counts));
    counts->keys = NULL;
    counts->counts = NULL;
    counts->places = 0;
    counts->used = 0;
    counts->hand = 0;
}

void
rps_counts_finish(struct rps_counts *counts)
{
    rps_counts_thaw(counts);
    drop_arrays(counts);
}

uint64_t
rps_counts_bytes(const struct rps_counts *counts)
{
    return counts->places * PLACE_BYTES;
}

/* The key's place, or the free one that ends its probe. */
static size_t
probe(const struct rps_counts *counts, uint64_t hash, uint64_t key)
{
    const size_t mask = counts->places - 1;
    size_t at = hash & mask;

    while (counts->counts[at] != 0 && counts->keys[at] != key) {
        at = (at + 1) & mask;
    }
    return at;
}

uint32_t
rps_counts_get(const struct rps_counts *counts, uint64_t hash, uint64_t key)
{
    return counts->places == 0 ? 0 : counts->counts[probe(counts, hash, key)];
}

static size_t
capacity_of(size_t places)
{
    return places / 4 * 3;
}

/* Empty arrays. False: no memory, or no budget. */
static bool
allocate(struct rps_counts *counts, size_t places)
{
    if (counts->budget != NULL &&
            !rps_budget_take(counts->budget, places * PLACE_BYTES)) {
        return false;
    }
    counts->places = places;
    counts->keys = malloc(places * sizeof(*counts->keys));
    counts->counts = calloc(places, sizeof(*counts->counts));
    if (counts->keys == NULL || counts->counts == NULL) {
        drop_arrays(counts);
        return false;
    }
    return true;
}

/* Move all keys to other arrays. False: nothing changed. */
static bool
resize(struct rps_counts *counts, size_t places)
{
    struct rps_counts moved;

    assert(counts->used <= capacity_of(places));

    rps_counts_init(&moved, counts->job_seed, counts->budget);
    moved.bytes_max = counts->bytes_max;
    if (!allocate(&moved, places)) {
        return false;
    }
    moved.used = counts->used;
    for (size_t i = 0; i < counts->places; i++) {
        if (counts->counts[i] != 0) {
            const uint64_t key = counts->keys[i];
            const size_t at =
                    probe(&moved, rps_key_hash(key, counts->job_seed), key);
            moved.keys[at] = key;
            moved.counts[at] = counts->counts[i];
        }
    }
    moved.frozen = counts->frozen;
    moved.copy = counts->copy;
    moved.copy_places = counts->copy_places;
    drop_arrays(counts);
    *counts = moved;
    return true;
}

/*
 * Free a place. What probes past it moves up, so that no probe ends early:
 * the element at `next` may fill the hole unless its home lies cyclically in
 * (hole, next].
 */
static void
remove_at(struct rps_counts *counts, size_t hole)
{
    const size_t mask = counts->places - 1;
    size_t next = (hole + 1) & mask;

    while (counts->counts[next] != 0) {
        const size_t home =
                rps_key_hash(counts->keys[next], counts->job_seed) & mask;
        if (((next - home) & mask) >= ((next - hole) & mask)) {
            counts->keys[hole] = counts->keys[next];
            counts->counts[hole] = counts->counts[next];
            hole = next;
        }
        next = (next + 1) & mask;
    }
    counts->counts[hole] = 0;
    counts->used--;
}

/*
 * Take out what stands at a place and put it where a probe ends now: there,
 * or nearer to its home. What stands behind it up to the next free place may
 * be out of reach until it was put again too.
 */
static void
put_again(struct rps_counts *counts, size_t at, unsigned divisor)
{
    const uint64_t key = counts->keys[at];
    const uint16_t count = (uint16_t)(counts->counts[at] / divisor);
    size_t to = 0;

    counts->counts[at] = 0;
    if (count == 0) {
        counts->used--;
        return;
    }
    to = probe(counts, rps_key_hash(key, counts->job_seed), key);
    counts->keys[to] = key;
    counts->counts[to] = count;
}

/* A slice ends at a free place, so that all can be found between slices. */
bool
rps_counts_age(struct rps_counts *counts, size_t places)
{
    size_t at = counts->hand;

    keep_frozen(counts);
    for (; at < counts->places; at++) {
        if (counts->counts[at] != 0) {
            put_again(counts, at, 2);
        } else if (at - counts->hand >= places) {
            counts->hand = at;
            return false;
        }
    }
    /* probes that wrap round the end: these were halved at the start */
    for (at = 0; at < counts->places && counts->counts[at] != 0; at++) {
        put_again(counts, at, 1);
    }
    counts->hand = 0;
    return true;
}

void
rps_counts_trim(struct rps_counts *counts)
{
    size_t places = counts->places;

    keep_frozen(counts);
    if (counts->used == 0) {
        drop_arrays(counts);
        return;
    }
    while (places > PLACES_MIN && counts->used < places / 8) {
        places /= 2;
    }
    if (places < counts->places) {
        (void)resize(counts, places); /* without memory it stays large */
    }
}

/* Room for one more key, by growth or else by age. */
static bool
make_room(struct rps_counts *counts)
{
    const size_t places = counts->places == 0 ? PLACES_MIN : counts->places * 2;

    if (counts->used < capacity_of(counts->places)) {
        return true;
    }
    if (places * PLACE_BYTES <= counts->bytes_max && resize(counts, places)) {
        return true;
    }
    if (counts->places > 0) {
        (void)rps_counts_age(counts, counts->places);
    }
    return counts->used < capacity_of(counts->places);
}

static uint16_t
saturated(uint64_t count)
{
    return count < RPS_COUNT_MAX ? (uint16_t)count : RPS_COUNT_MAX;
}

/* A key without a place. */
static bool
insert(struct rps_counts *counts, uint64_t hash, uint64_t key, uint64_t count)
{
    size_t at = 0;

    if (!make_room(counts)) {
        return false;
    }
    at = probe(counts, hash, key);
    assert(counts->counts[at] == 0);
    counts->keys[at] = key;
    counts->counts[at] = saturated(count);
    counts->used++;
    return true;
}

uint32_t
rps_counts_add(
        struct rps_counts *counts, uint64_t hash, uint64_t key, uint64_t n)
{
    size_t at = 0;

    assert(n > 0);

    keep_frozen(counts);
    if (counts->places > 0) {
        at = probe(counts, hash, key);
        if (counts->counts[at] != 0) {
            const uint64_t most = RPS_COUNT_MAX - counts->counts[at];
            counts->counts[at] =
                    (uint16_t)(counts->counts[at] + (n < most ? n : most));
            return counts->counts[at];
        }
    }
    (void)insert(counts, hash, key, n); /* else: see Ageing */
    return saturated(n);
}

uint32_t
rps_counts_take(struct rps_counts *counts, uint64_t hash, uint64_t key)
{
    uint32_t count = 0;
    size_t at = 0;

    if (counts->places == 0) {
        return 0;
    }
    at = probe(counts, hash, key);
    count = counts->counts[at];
    if (count != 0) {
        keep_frozen(counts);
        remove_at(counts, at);
    }
    return count;
}

bool
rps_counts_set(
        struct rps_counts *counts, uint64_t hash, uint64_t key, uint32_t count)
{
    assert(count > 0);

    keep_frozen(counts);
    if (counts->places > 0) {
        const size_t at = probe(counts, hash, key);
        if (counts->counts[at] != 0) {
            counts->counts[at] = saturated(count);
            return true;
        }
    }
    return insert(counts, hash, key, count);
}
