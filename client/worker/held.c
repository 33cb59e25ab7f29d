/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/held.h"

#include <stdlib.h>

void
rps_held_finish(struct rps_held *held)
{
    free(held->places);
    free(held->keys);
    *held = (struct rps_held){0};
}

bool
rps_held_reserve(struct rps_held *held, size_t tokens)
{
    const size_t capacity = tokens + tokens / 4 + 1;

    if (tokens <= held->capacity && held->keys != NULL) {
        return true;
    }
    rps_held_finish(held);
    held->places = malloc(capacity * sizeof(*held->places));
    held->keys = malloc(capacity * sizeof(*held->keys));
    held->capacity = capacity;
    return held->places != NULL && held->keys != NULL;
}
