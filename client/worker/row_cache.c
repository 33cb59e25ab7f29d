/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list in order of use through the entries of rows that stay, a queue of the
 * extra ones in order of their batches, and an index by key over both, with
 * linear probes. Half of the index stays free. An extra entry is in the index
 * only while its batch is taken: no later one finds it.
 */
#include "client/worker/row_cache.h"

#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE       UINT32_MAX
#define UNANSWERED UINT64_MAX
#define INDEX_MIN  ((size_t)16)
#define EXTRAS_MIN 64u

/* --- the index ------------------------------------------------------------ */

static size_t
home_of(const struct rps_row_cache *cache, uint64_t key)
{
    return (size_t)rps_mix64(key) & cache->mask;
}

/* The place of the key's entry, or NONE. */
static uint32_t
find(const struct rps_row_cache *cache, uint64_t key)
{
    size_t at = home_of(cache, key);

    for (; cache->index[at] != 0; at = (at + 1) & cache->mask) {
        const uint32_t place = cache->index[at] - 1;

        if (cache->entries[place].key == key) {
            return place;
        }
    }
    return NONE;
}

static void
enter(struct rps_row_cache *cache, uint32_t place)
{
    size_t at = home_of(cache, cache->entries[place].key);

    while (cache->index[at] != 0) {
        at = (at + 1) & cache->mask;
    }
    cache->index[at] = place + 1;
}

/* What stands behind moves up, unless it would stand before its home. */
static void
leave(struct rps_row_cache *cache, uint32_t place)
{
    size_t hole = home_of(cache, cache->entries[place].key);
    size_t at;

    while (cache->index[hole] != place + 1) {
        assert(cache->index[hole] != 0);
        hole = (hole + 1) & cache->mask;
    }
    for (at = (hole + 1) & cache->mask; cache->index[at] != 0;
            at = (at + 1) & cache->mask) {
        const uint64_t key = cache->entries[cache->index[at] - 1].key;
        const size_t way = (at - home_of(cache, key)) & cache->mask;

        if (way >= ((at - hole) & cache->mask)) {
            cache->index[hole] = cache->index[at];
            hole = at;
        }
    }
    cache->index[hole] = 0;
}

/* --- the order of use ----------------------------------------------------- */

static void
unlink_entry(struct rps_row_cache *cache, uint32_t place)
{
    const struct rps_row_entry *entry = &cache->entries[place];

    if (entry->newer != NONE) {
        cache->entries[entry->newer].older = entry->older;
    } else {
        cache->newest = entry->older;
    }
    if (entry->older != NONE) {
        cache->entries[entry->older].newer = entry->newer;
    } else {
        cache->oldest = entry->newer;
    }
}

static void
link_newest(struct rps_row_cache *cache, uint32_t place)
{
    struct rps_row_entry *entry = &cache->entries[place];

    entry->newer = NONE;
    entry->older = cache->newest;
    if (cache->newest != NONE) {
        cache->entries[cache->newest].newer = place;
    } else {
        cache->oldest = place;
    }
    cache->newest = place;
}

static void
use(struct rps_row_cache *cache, uint32_t place)
{
    if (cache->newest != place) {
        unlink_entry(cache, place);
        link_newest(cache, place);
    }
}

/* --- memory ----------------------------------------------------------------
 */

static rps_status
grow_entries(struct rps_row_cache *cache, uint64_t wanted)
{
    const uint64_t more = (uint64_t)cache->room + cache->room / 2;
    uint64_t room = wanted > more ? wanted : more;
    struct rps_row_entry *grown;

    if (wanted <= cache->room) {
        return RPS_OK;
    }
    if (wanted > RPS_ROW_CACHE_MAX) {
        return RPS_E_LIMIT;
    }
    room = room < RPS_ROW_CACHE_MAX ? room : RPS_ROW_CACHE_MAX;
    grown = realloc(cache->entries, (size_t)room * sizeof(*grown));
    if (grown == NULL) {
        return RPS_E_NOMEM;
    }
    cache->entries = grown;
    cache->room = (uint32_t)room;
    return RPS_OK;
}

/* For `wanted` keys at once. */
static rps_status
grow_index(struct rps_row_cache *cache, uint64_t wanted)
{
    size_t places = INDEX_MIN;
    uint32_t *grown;

    while (places < 2 * wanted) {
        places *= 2;
    }
    if (cache->index != NULL && places <= cache->mask + 1) {
        return RPS_OK;
    }
    grown = calloc(places, sizeof(*grown));
    if (grown == NULL) {
        return RPS_E_NOMEM;
    }
    free(cache->index);
    cache->index = grown;
    cache->mask = places - 1;
    for (uint32_t place = 0; place < cache->count; place++) {
        enter(cache, place);
    }
    return RPS_OK;
}

/* So that nothing fails while a batch of `count` tokens is taken. */
static rps_status
reserve(struct rps_row_cache *cache, size_t count)
{
    rps_status status;

    if (count > RPS_ROW_CACHE_MAX) {
        return RPS_E_LIMIT;
    }
    status = grow_entries(
            cache, (uint64_t)cache->capacity + cache->extras + count);
    return status == RPS_OK
                   ? grow_index(cache, (uint64_t)cache->capacity + count)
                   : status;
}

rps_status
rps_row_cache_init(struct rps_row_cache *cache, uint64_t capacity)
{
    rps_status status;

    assert(capacity >= 1);
    *cache = (struct rps_row_cache){
            .newest = NONE,
            .oldest = NONE,
            .extra_first = NONE,
            .extra_last = NONE,
            .extra_free = NONE,
    };
    if (capacity > RPS_ROW_CACHE_MAX - EXTRAS_MIN) {
        return RPS_E_LIMIT;
    }
    cache->capacity = (uint32_t)capacity;
    status = grow_entries(cache, capacity + EXTRAS_MIN);
    return status == RPS_OK ? grow_index(cache, capacity + EXTRAS_MIN) : status;
}

void
rps_row_cache_finish(struct rps_row_cache *cache)
{
    free(cache->entries);
    free(cache->index);
    *cache = (struct rps_row_cache){0};
}

void
rps_row_cache_clear(struct rps_row_cache *cache)
{
    memset(cache->index, 0, (cache->mask + 1) * sizeof(*cache->index));
    cache->step = 0;
    cache->count = 0;
    cache->extras = 0;
    cache->newest = NONE;
    cache->oldest = NONE;
    cache->extra_first = NONE;
    cache->extra_last = NONE;
    cache->extra_free = NONE;
}

/* --- places ----------------------------------------------------------------
 */

/* Extra places of batches that are done are free again. */
static void
free_extras(struct rps_row_cache *cache, uint64_t done)
{
    while (cache->extra_first != NONE &&
            cache->entries[cache->extra_first].used <= done) {
        const uint32_t place = cache->extra_first;

        cache->extra_first = cache->entries[place].older;
        cache->entries[place].older = cache->extra_free;
        cache->extra_free = place;
    }
    if (cache->extra_first == NONE) {
        cache->extra_last = NONE;
    }
}

static uint32_t
take_extra(struct rps_row_cache *cache)
{
    uint32_t place = cache->extra_free;

    if (place != NONE) {
        cache->extra_free = cache->entries[place].older;
    } else {
        place = cache->capacity + cache->extras;
        cache->extras++;
    }
    assert(place < cache->room);
    cache->entries[place].older = NONE;
    if (cache->extra_last != NONE) {
        cache->entries[cache->extra_last].older = place;
    } else {
        cache->extra_first = place;
    }
    cache->extra_last = place;
    cache->figures.extra++;
    return place;
}

/* A free place, or the least recently used one, if no batch that is not done
 * has it; else NONE. */
static uint32_t
take_place(struct rps_row_cache *cache, uint64_t done)
{
    uint32_t place = cache->oldest;

    if (cache->count < cache->capacity) {
        place = cache->count;
        cache->count++;
        return place;
    }
    if (cache->entries[place].used > done) {
        return NONE;
    }
    leave(cache, place);
    unlink_entry(cache, place);
    cache->figures.evicted++;
    return place;
}

/* --- a batch ---------------------------------------------------------------
 */

static enum rps_row_need
need_of(const struct rps_row_batch *batch, const struct rps_row_entry *entry)
{
    /* what was fetched for the batch's own step or a later one has it all */
    const uint64_t now = batch->step - 1;

    if (now <= entry->version || now - entry->version <= batch->staleness) {
        return RPS_ROW_FRESH;
    }
    return batch->refreshing && entry->pushed == 0 && entry->since != UNANSWERED
                   ? RPS_ROW_REFRESH
                   : RPS_ROW_FETCH;
}

/* The row is here: what of it is needed? */
static void
hold(struct rps_row_cache *cache, const struct rps_row_batch *batch,
        struct rps_row_entry *entry)
{
    entry->need = need_of(batch, entry);
    entry->used = batch->step;
    entry->since_before = entry->since;
    if (entry->need != RPS_ROW_FRESH) {
        entry->version = batch->step - 1;
        entry->pushed = 0;
        entry->since = UNANSWERED;
    }
    if (batch->pushes && entry->pushed == 0) {
        entry->pushed = batch->step;
    }
    cache->figures.asked++;
    cache->figures.held++;
    cache->figures.fresh += entry->need == RPS_ROW_FRESH;
    cache->figures.refresh += entry->need == RPS_ROW_REFRESH;
    cache->figures.changed += entry->need == RPS_ROW_FETCH;
}

/* First those that are here, so that no other key of the batch puts them out.
 * Is there one that is not? */
static bool
hold_all(struct rps_row_cache *cache, const struct rps_row_batch *batch,
        struct rps_row_place *places)
{
    bool absent = false;

    for (size_t i = 0; i < batch->count; i++) {
        const uint32_t place = find(cache, batch->keys[i]);

        places[i].place = place;
        if (place == NONE) {
            absent = true;
        } else if (cache->entries[place].used < batch->step) {
            hold(cache, batch, &cache->entries[place]);
            use(cache, place);
        }
    }
    return absent;
}

static uint32_t
add(struct rps_row_cache *cache, const struct rps_row_batch *batch,
        uint64_t key)
{
    uint32_t place = take_place(cache, batch->done);
    const bool stays = place != NONE;

    if (!stays) {
        place = take_extra(cache);
    }
    cache->entries[place].key = key;
    cache->entries[place].used = batch->step;
    cache->entries[place].version = batch->step - 1;
    cache->entries[place].pushed = batch->pushes ? batch->step : 0;
    cache->entries[place].since = UNANSWERED;
    cache->entries[place].since_before = UNANSWERED;
    cache->entries[place].need = RPS_ROW_FETCH;
    if (stays) {
        link_newest(cache, place);
    }
    enter(cache, place);
    cache->figures.asked++;
    cache->figures.absent++;
    return place;
}

static void
add_absent(struct rps_row_cache *cache, const struct rps_row_batch *batch,
        struct rps_row_place *places)
{
    for (size_t i = 0; i < batch->count; i++) {
        if (places[i].place == NONE) {
            const uint32_t place = find(cache, batch->keys[i]);

            places[i].place =
                    place != NONE ? place : add(cache, batch, batch->keys[i]);
        }
    }
}

/* In the order of their tokens; extra ones are found no more. */
static void
use_all(struct rps_row_cache *cache, const struct rps_row_batch *batch,
        struct rps_row_place *places)
{
    for (size_t i = 0; i < batch->count; i++) {
        const uint32_t place = places[i].place;

        places[i].need = cache->entries[place].need;
        places[i].since = cache->entries[place].since_before;
        if (place < cache->capacity) {
            use(cache, place);
        } else if (find(cache, batch->keys[i]) == place) {
            leave(cache, place);
        }
    }
}

rps_status
rps_row_cache_take(struct rps_row_cache *cache,
        const struct rps_row_batch *batch, struct rps_row_place *places)
{
    rps_status status = reserve(cache, batch->count);

    assert(batch->step > cache->step && batch->done < batch->step);
    if (status != RPS_OK) {
        return status;
    }
    cache->step = batch->step;
    free_extras(cache, batch->done);
    if (hold_all(cache, batch, places)) {
        add_absent(cache, batch, places);
    }
    use_all(cache, batch, places);
    return RPS_OK;
}

/* --- what became of it ------------------------------------------------------
 */

/* The row that the batch had there, if it is there still. */
static struct rps_row_entry *
entry_of(const struct rps_row_cache *cache, const struct rps_row_batch *batch,
        const struct rps_row_place *places, size_t i)
{
    struct rps_row_entry *entry = &cache->entries[places[i].place];

    return places[i].place < cache->count && entry->key == batch->keys[i]
                   ? entry
                   : NULL;
}

void
rps_row_cache_answered(struct rps_row_cache *cache,
        const struct rps_row_batch *batch, const struct rps_row_place *places,
        uint64_t c)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct rps_row_entry *entry = entry_of(cache, batch, places, i);

        if (entry != NULL && places[i].need != RPS_ROW_FRESH) {
            entry->since = c;
        }
    }
}

void
rps_row_cache_unpushed(struct rps_row_cache *cache,
        const struct rps_row_batch *batch, const struct rps_row_place *places)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct rps_row_entry *entry = entry_of(cache, batch, places, i);

        if (entry != NULL && entry->pushed == batch->step) {
            entry->pushed = 0;
        }
    }
}
