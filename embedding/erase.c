/* SPDX-License-Identifier: Apache-2.0 */
/* Erasing rows by key. */
#include "base/hash.h"
#include "embedding/admit.h"
#include "embedding/save_buffer.h"

#define SLICE_KEYS 256u /* erased before others may make rows */

static bool
erase_key(struct rps_table *table, uint64_t key)
{
    const uint64_t hash = rps_key_hash(key, table->job_seed);
    struct rps_shard *shard = &table->shards[rps_table_shard_of(table, hash)];
    struct rps_index_place place;

    pthread_mutex_lock(&shard->lock);
    place = rps_index_find(&shard->index, hash, key);
    if (place.row != 0) {
        rps_table_erase_row_locked(table, shard, place);
        rps_table_note_erased(table);
    }
    (void)rps_admit_take_locked(table, shard, hash, key);
    pthread_mutex_unlock(&shard->lock);
    return place.row != 0;
}

uint64_t
rps_table_erase(struct rps_table *table, size_t n, const uint64_t *keys)
{
    uint64_t erased = 0;

    for (size_t start = 0; start < n; start += SLICE_KEYS) {
        const size_t end = n - start < SLICE_KEYS ? n : start + SLICE_KEYS;
        uint64_t kept_bytes = 0;
        rps_save_buffer_reserve(
                table->buffer, table->cut_list, end - start, &kept_bytes);
        pthread_mutex_lock(&table->making);
        for (size_t i = start; i < end; i++) {
            erased += erase_key(table, keys[i]);
        }
        pthread_mutex_unlock(&table->making);
        rps_save_buffer_release(table->buffer, kept_bytes);
    }
    rps_count(&table->erased, erased);
    return erased;
}
