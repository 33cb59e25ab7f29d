/* SPDX-License-Identifier: Apache-2.0 */
/* Rows with all that belongs to them, for a copy elsewhere. */
#include "base/hash.h"
#include "embedding/table_impl.h"

#include <string.h>

struct copy {
    struct rps_table *table;
    float *row;     /* [dim] */
    float *slots;   /* [slot floats]; may be NULL where there are none */
    uint32_t *meta; /* [1] */
};

/* False: the key has no row. */
static bool
copy_row(const struct copy *to, uint64_t key)
{
    struct rps_table *table = to->table;
    const uint64_t hash = rps_key_hash(key, table->job_seed);
    struct rps_shard *shard = &table->shards[rps_table_shard_of(table, hash)];
    struct rps_index_place place;
    char *row = NULL;

    rps_shard_lock(shard);
    place = rps_index_find(&shard->index, hash, key);
    if (place.row != 0) {
        row = rps_shard_row_locked(shard, place);
        rps_table_read_row(table, row, to->row);
        if (table->slot_floats > 0) {
            memcpy(to->slots, rps_table_slots_at(table, row),
                    table->slot_floats * sizeof(*to->slots));
        }
        *to->meta = place.line->meta[place.lane];
    }
    pthread_mutex_unlock(&shard->lock);
    return place.row != 0;
}

size_t
rps_table_read(struct rps_table *table, size_t n, uint64_t *keys, float *rows,
        float *slots, uint32_t *meta)
{
    size_t found = 0;

    for (size_t i = 0; i < n; i++) {
        const struct copy to = {.table = table,
                .row = rows + found * table->spec.dim,
                .slots = slots != NULL ? slots + found * table->slot_floats
                                       : NULL,
                .meta = meta + found};
        const uint64_t key = keys[i];

        if (copy_row(&to, key)) {
            keys[found++] = key;
        }
    }
    return found;
}
