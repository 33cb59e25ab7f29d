/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/recent.h"

#include <stdlib.h>

#define PLACES_MIN     ((size_t)4096)
#define PLACES_PER_KEY 8u
#define LONG_AGO       (UINT32_MAX / 2) /* steps */

void
rps_recent_finish(struct rps_recent *recent)
{
    free(recent->steps);
    *recent = (struct rps_recent){0};
}

bool
rps_recent_reserve(struct rps_recent *recent, size_t keys, uint64_t step)
{
    const bool first = recent->steps == NULL;
    const uint32_t age = first ? LONG_AGO : 1;
    size_t places = first ? PLACES_MIN : recent->mask + 1;
    uint32_t *steps;

    if (!first && keys <= places / PLACES_PER_KEY) {
        return true;
    }
    while (places / PLACES_PER_KEY < keys) {
        places *= 2;
    }
    steps = malloc(places * sizeof(*steps));
    if (steps == NULL) {
        return false;
    }
    for (size_t i = 0; i < places; i++) {
        steps[i] = (uint32_t)step - age;
    }
    free(recent->steps);
    recent->steps = steps;
    recent->mask = places - 1;
    return true;
}

void
rps_recent_add(struct rps_recent *recent, const uint64_t *keys, size_t count,
        uint64_t step)
{
    for (size_t i = 0; i < count; i++) {
        recent->steps[rps_mix64(keys[i]) & (uint64_t)recent->mask] =
                (uint32_t)step;
    }
}
