/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open addressing over indexes into the distinct keys: an empty place is 0,
 * so every one of the 2^64 keys is legal. At most half of the places fill.
 */
#include "client/dedup.h"

#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct places {
    uint32_t *index; /* [mask + 1]: distinct index + 1; 0: empty */
    size_t mask;
};

static rps_status
allocate(struct rps_dedup *dedup, struct places *places,
        const struct rps_route *route)
{
    size_t n = dedup->key_count > 0 ? dedup->key_count : 1;
    size_t capacity = 16;

    while (capacity < 2 * n) {
        capacity *= 2;
    }
    places->mask = capacity - 1;
    places->index = calloc(capacity, sizeof(*places->index));
    dedup->keys = malloc(n * sizeof(*dedup->keys));
    dedup->counts = malloc(n * sizeof(*dedup->counts));
    dedup->first = malloc(n * sizeof(*dedup->first));
    dedup->index = malloc(n * sizeof(*dedup->index));
    dedup->order = malloc(n * sizeof(*dedup->order));
    dedup->starts = calloc((size_t)route->ps_count + 1, sizeof(*dedup->starts));
    return places->index != NULL && dedup->keys != NULL &&
                           dedup->counts != NULL && dedup->first != NULL &&
                           dedup->index != NULL && dedup->order != NULL &&
                           dedup->starts != NULL
                   ? RPS_OK
                   : RPS_E_NOMEM;
}

/* Index of the key among the distinct ones, added if it is new. */
static uint32_t
find_or_add(struct rps_dedup *dedup, struct places *places, uint64_t key,
        uint64_t hash, uint32_t position)
{
    size_t place = hash & places->mask;

    while (places->index[place] != 0) {
        uint32_t index = places->index[place] - 1;

        if (dedup->keys[index] == key) {
            dedup->counts[index]++;
            return index;
        }
        place = (place + 1) & places->mask;
    }
    dedup->keys[dedup->count] = key;
    dedup->counts[dedup->count] = 1;
    dedup->first[dedup->count] = position;
    places->index[place] = dedup->count + 1;
    return dedup->count++;
}

/* Counting sort by owner; `owners` holds each distinct key's. */
static void
sort_by_owner(struct rps_dedup *dedup, const uint16_t *owners,
        uint32_t ps_count, uint32_t *next)
{
    uint32_t i;

    for (i = 0; i < dedup->count; i++) {
        dedup->starts[owners[i] + 1]++;
    }
    for (i = 0; i < ps_count; i++) {
        next[i] = dedup->starts[i];
        dedup->starts[i + 1] += dedup->starts[i];
    }
    for (i = 0; i < dedup->count; i++) {
        dedup->order[next[owners[i]]++] = i;
    }
}

static void
find_distinct(struct rps_dedup *dedup, struct places *places,
        const uint64_t *keys, const uint64_t *padding,
        const struct rps_route *route, uint64_t job_seed, uint16_t *owners)
{
    size_t i;

    for (i = 0; i < dedup->key_count; i++) {
        uint64_t hash;
        uint32_t before = dedup->count;

        if (padding != NULL && keys[i] == *padding) {
            dedup->index[i] = RPS_DEDUP_PADDING;
            continue;
        }
        hash = rps_key_hash(keys[i], job_seed);
        dedup->index[i] =
                find_or_add(dedup, places, keys[i], hash, (uint32_t)i);
        if (dedup->count > before) {
            owners[before] = (uint16_t)rps_route_owner(route, hash);
        }
    }
}

rps_status
rps_dedup_init(struct rps_dedup *dedup, const uint64_t *keys, size_t key_count,
        const uint64_t *padding, const struct rps_route *route,
        uint64_t job_seed)
{
    struct places places = {0};
    uint16_t *owners = NULL;
    uint32_t *next = NULL;
    rps_status status;

    *dedup = (struct rps_dedup){.key_count = key_count};
    if (key_count > RPS_DEDUP_KEYS_MAX) {
        return RPS_E_LIMIT;
    }
    status = allocate(dedup, &places, route);
    owners = malloc((key_count > 0 ? key_count : 1) * sizeof(*owners));
    next = malloc(route->ps_count * sizeof(*next));
    if (status != RPS_OK || owners == NULL || next == NULL) {
        status = RPS_E_NOMEM;
        rps_dedup_finish(dedup);
    } else {
        find_distinct(dedup, &places, keys, padding, route, job_seed, owners);
        sort_by_owner(dedup, owners, route->ps_count, next);
    }
    free(places.index);
    free(owners);
    free(next);
    return status;
}

void
rps_dedup_finish(struct rps_dedup *dedup)
{
    free(dedup->keys);
    free(dedup->counts);
    free(dedup->first);
    free(dedup->index);
    free(dedup->order);
    free(dedup->starts);
    *dedup = (struct rps_dedup){0};
}
