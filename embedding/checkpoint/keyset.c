/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/keyset.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#define PLACES_MIN 64u
#define ENTRY      (sizeof(uint64_t) + sizeof(uint8_t))

/* Doubled when it is three quarters full: the old places and the new ones are
 * there at once while it grows. */
size_t
rps_keyset_bytes(uint64_t count)
{
    size_t places = PLACES_MIN;

    while (places / 4 * 3 < count) {
        places *= 2;
    }
    return places * ENTRY * 3 / 2;
}

static size_t
place_of(const struct rps_keyset *set, uint64_t key)
{
    size_t at = (size_t)rps_mix64(key) & set->mask;

    while (set->marks[at] != 0 && set->keys[at] != key) {
        at = (at + 1) & set->mask;
    }
    return at;
}

static uint8_t *
grow(struct rps_keyset *set)
{
    struct rps_keyset grown = {.count = set->count};
    const size_t places = set->marks == NULL ? PLACES_MIN : 2 * (set->mask + 1);

    grown.mask = places - 1;
    grown.keys = calloc(places, sizeof(*grown.keys));
    grown.marks = calloc(places, sizeof(*grown.marks));
    if (grown.keys == NULL || grown.marks == NULL) {
        rps_keyset_finish(&grown);
        return NULL;
    }
    for (size_t i = 0; set->marks != NULL && i <= set->mask; i++) {
        if (set->marks[i] != 0) {
            const size_t at = place_of(&grown, set->keys[i]);

            grown.keys[at] = set->keys[i];
            grown.marks[at] = set->marks[i];
        }
    }
    rps_keyset_finish(set);
    *set = grown;
    return grown.marks;
}

uint8_t *
rps_keyset_add(struct rps_keyset *set, uint64_t key)
{
    size_t at;

    if ((set->marks == NULL || set->count >= (set->mask + 1) / 4 * 3) &&
            grow(set) == NULL) {
        return NULL;
    }
    at = place_of(set, key);
    if (set->marks[at] == 0) {
        set->keys[at] = key;
        set->count++;
    }
    return &set->marks[at];
}

uint8_t
rps_keyset_mark(const struct rps_keyset *set, uint64_t key)
{
    return set->marks == NULL ? 0 : set->marks[place_of(set, key)];
}

void
rps_keyset_clear(struct rps_keyset *set)
{
    if (set->marks != NULL) {
        memset(set->marks, 0, set->mask + 1);
    }
    set->count = 0;
}

void
rps_keyset_finish(struct rps_keyset *set)
{
    free(set->keys);
    free(set->marks);
    *set = (struct rps_keyset){.keys = NULL};
}
