/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/slots.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX ((size_t)1 << 30)

void
rps_slots_finish(struct rps_slots *slots)
{
    free(slots->slots);
    free(slots->first);
    free(slots->index);
    *slots = (struct rps_slots){0};
}

/* Half of the index stays free. */
static bool
reserve(struct rps_slots *slots, size_t tokens)
{
    size_t capacity = tokens + tokens / 4 + 1, places = 16;

    if (tokens <= slots->capacity && slots->index != NULL) {
        return true;
    }
    rps_slots_finish(slots);
    while (places < 2 * capacity) {
        places *= 2;
    }
    slots->slots = malloc(capacity * sizeof(*slots->slots));
    slots->first = malloc(capacity * sizeof(*slots->first));
    slots->index = malloc(places * sizeof(*slots->index));
    slots->capacity = capacity;
    slots->mask = places - 1;
    return slots->slots != NULL && slots->first != NULL && slots->index != NULL;
}

/* The slot of token i's key, which gets the next one if it is new. */
static int32_t
slot_of(struct rps_slots *slots, const uint64_t *keys, size_t i)
{
    size_t place = (size_t)rps_mix64(keys[i]) & slots->mask;

    while (slots->index[place] != 0) {
        const uint32_t slot = slots->index[place] - 1;

        if (keys[slots->first[slot]] == keys[i]) {
            return (int32_t)slot;
        }
        place = (place + 1) & slots->mask;
    }
    slots->first[slots->count] = (uint32_t)i;
    slots->count++;
    slots->index[place] = (uint32_t)slots->count;
    return (int32_t)(slots->count - 1);
}

rps_status
rps_slots_take(struct rps_slots *slots, const struct rps_bags *bags,
        struct rps_error *error)
{
    const size_t tokens = bags->key_count;

    if (tokens > TOKENS_MAX) {
        return rps_fail(error, RPS_E_LIMIT,
                "table %s: a batch has %zu tokens, a device takes at most %zu",
                bags->table.name, tokens, TOKENS_MAX);
    }
    if (!reserve(slots, tokens)) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for a batch's keys");
    }
    memset(slots->index, 0, (slots->mask + 1) * sizeof(*slots->index));
    slots->count = 0;
    for (size_t i = 0; i < tokens; i++) {
        slots->slots[i] = slot_of(slots, bags->keys, i);
    }
    return RPS_OK;
}

void
rps_slots_gather(
        const struct rps_slots *slots, const struct rps_bags *bags, float *rows)
{
    const size_t dim = bags->table.dim;

    for (size_t i = 0; i < slots->count; i++) {
        memcpy(rows + i * dim, bags->rows + slots->first[i] * dim,
                dim * sizeof(*rows));
    }
}
