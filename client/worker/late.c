/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/late.h"

#include <stdlib.h>
#include <string.h>

void
rps_late_finish(struct rps_late *late)
{
    free(late->positions);
    free(late->keys);
    free(late->early_keys);
    *late = (struct rps_late){0};
}

static bool
reserve(struct rps_late *late, const struct rps_bags *bags)
{
    const size_t count = bags->key_capacity;

    if (bags->key_count <= late->capacity && late->keys != NULL) {
        return true;
    }
    rps_late_finish(late);
    late->positions = malloc(count * sizeof(*late->positions));
    late->keys = malloc(count * sizeof(*late->keys));
    late->early_keys = malloc(count * sizeof(*late->early_keys));
    late->capacity = count;
    return late->positions != NULL && late->keys != NULL &&
           late->early_keys != NULL;
}

/* Each of the 2^64 is a legal key: one that this batch has not. */
uint64_t
rps_late_padding(const struct rps_bags *bags, uint64_t padding)
{
    size_t i = 0;

    while (i < bags->key_count) {
        if (bags->keys[i] == padding) {
            padding = rps_mix64(padding + 1);
            i = 0;
        } else {
            i++;
        }
    }
    return padding;
}

rps_status
rps_late_split(struct rps_late *late, const struct rps_bags *bags,
        const struct rps_recent *recent, uint64_t since, uint64_t step,
        struct rps_error *error)
{
    if (!reserve(late, bags)) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for a batch's keys");
    }
    late->count = 0;
    late->padding = rps_late_padding(bags, late->padding);
    for (size_t i = 0; i < bags->key_count; i++) {
        const uint64_t key = bags->keys[i];
        const bool is_late = rps_recent_has(recent, key, since, step);

        late->early_keys[i] = is_late ? late->padding : key;
        if (is_late) {
            late->positions[late->count] = (uint32_t)i;
            late->keys[late->count] = key;
            late->count++;
        }
    }
    return RPS_OK;
}

void
rps_late_place(const struct rps_late *late, struct rps_bags *bags)
{
    const size_t dim = bags->table.dim;

    for (size_t i = 0; i < late->count; i++) {
        memcpy(bags->rows + late->positions[i] * dim,
                bags->work->late + i * dim, dim * sizeof(float));
    }
}
