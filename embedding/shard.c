/* SPDX-License-Identifier: Apache-2.0 */
/* Owns one shard's lock, index and rows, and the promises of room. */
#include "embedding/shard.h"

#include <assert.h>
#include <string.h>

#define PROMISES_MAX ((size_t)1 << 24) /* to one call: no sum overflows */

rps_status
rps_shard_init(struct rps_shard *shard, struct rps_arena *lines,
        struct rps_arena *cells, size_t row_bytes, uint64_t job_seed,
        uint32_t skip)
{
    rps_status status = RPS_OK;

    if (pthread_mutex_init(&shard->lock, NULL) != 0) {
        return RPS_E_NOMEM;
    }
    shard->reserved = 0;
    shard->anywhere = 0;
    memset(shard->promised, 0, sizeof(shard->promised));
    memset(&shard->track, 0, sizeof(shard->track));
    memset(&shard->disk, 0, sizeof(shard->disk));
    rps_rows_init(&shard->rows, cells, row_bytes);
    rps_counts_init(&shard->counts, job_seed, cells->budget);
    status = rps_index_init(&shard->index, lines, job_seed, skip);
    if (status != RPS_OK) {
        rps_shard_finish(shard);
    }
    return status;
}

void
rps_shard_finish(struct rps_shard *shard)
{
    assert(shard->reserved == 0);
    rps_index_finish(&shard->index);
    rps_rows_finish(&shard->rows);
    if (shard->disk.arena != NULL) {
        rps_rows_finish(&shard->disk);
    }
    rps_counts_finish(&shard->counts);
    pthread_mutex_destroy(&shard->lock);
}

#define LOOKS       64u
#define LOOK_PAUSES 16u /* between two: some 0.3 us */

static void
pause_some(void)
{
    for (unsigned i = 0; i < LOOK_PAUSES; i++) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#else
        atomic_signal_fence(memory_order_seq_cst);
#endif
    }
}

void
rps_shard_lock(struct rps_shard *shard)
{
    for (unsigned i = 0; i < LOOKS; i++) {
        if (pthread_mutex_trylock(&shard->lock) == 0) {
            return;
        }
        pause_some();
    }
    pthread_mutex_lock(&shard->lock);
}

uint64_t
rps_shard_kept_locked(
        const struct rps_shard *shard, const struct rps_segment *segment)
{
    const struct rps_index_parts parts = rps_segment_parts(segment);
    uint64_t kept = shard->anywhere;

    if (parts.count == RPS_INDEX_PARTS) {
        return shard->reserved;
    }
    for (uint32_t i = parts.first; i < parts.first + parts.count; i++) {
        kept += shard->promised[i];
    }
    return kept;
}

/* Whether what is promised by now is there, as far as keys of this hash's
 * part are concerned. */
static bool
is_there_locked(struct rps_shard *shard, uint64_t hash)
{
    struct rps_index *index = &shard->index;
    const uint32_t part = rps_index_part(index, hash);
    const uint64_t kept = index->shallow == 0
                                  ? shard->anywhere + shard->promised[part]
                                  : rps_shard_kept_locked(shard,
                                            rps_index_segment(index, hash));

    return rps_index_has_free(index, part, kept);
}

bool
rps_shard_promise_locked(
        struct rps_shard *shard, size_t n, const uint64_t *hashes)
{
    bool there = true;

    if (n > PROMISES_MAX) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        shard->promised[rps_index_part(&shard->index, hashes[i])]++;
    }
    shard->reserved += n;
    for (size_t i = 0; there && i < n; i++) {
        there = is_there_locked(shard, hashes[i]);
    }
    if (there && rps_rows_reserve(&shard->rows, shard->reserved) == RPS_OK) {
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        rps_shard_release_locked(shard, hashes[i]);
    }
    return false;
}

/* Whether each segment has so many free places. */
static bool
all_have_free_locked(struct rps_shard *shard, uint64_t count)
{
    struct rps_index *index = &shard->index;
    uint32_t least = UINT32_MAX;
    bool there = true;

    for (uint32_t part = 0; part < RPS_INDEX_PARTS; part++) {
        const uint32_t free_min = index->free_min[part];
        least = free_min < least ? free_min : least;
    }
    if (least >= count) {
        return true;
    }
    for (uint32_t part = 0; there && part < RPS_INDEX_PARTS; part++) {
        there = rps_index_has_free(index, part, count);
    }
    return there;
}

bool
rps_shard_promise_anywhere_locked(struct rps_shard *shard, size_t n)
{
    const uint64_t reserved = shard->reserved + n;

    if (n > PROMISES_MAX || !all_have_free_locked(shard, reserved) ||
            rps_rows_reserve(&shard->rows, reserved) != RPS_OK) {
        return false;
    }
    shard->reserved = reserved;
    shard->anywhere += n;
    return true;
}

/* A spare row, and its key in the index. */
static rps_status
take_row_locked(struct rps_shard *shard, struct rps_rows *rows, uint32_t tier,
        uint64_t hash, uint64_t key, struct rps_index_place *place_out)
{
    const uint32_t number = rps_rows_take(rows);
    const uint64_t kept = rps_shard_kept_locked(
            shard, rps_index_segment(&shard->index, hash));
    const rps_status status = rps_index_insert(
            &shard->index, hash, key, (number + 1) | tier, kept, place_out);

    if (status != RPS_OK) {
        rps_rows_give(rows, number);
    }
    return status;
}

rps_status
rps_shard_create_row_locked(struct rps_shard *shard, uint64_t hash,
        uint64_t key, bool promised, struct rps_index_place *place_out)
{
    rps_status status = RPS_OK;

    if (promised) {
        rps_shard_release_locked(shard, hash);
    }
    status = rps_rows_reserve(&shard->rows, shard->reserved + 1);
    if (status == RPS_OK) {
        status = take_row_locked(shard, &shard->rows, 0, hash, key, place_out);
    }
    assert(status == RPS_OK || !promised);
    return status;
}

rps_status
rps_shard_create_on_disk_locked(struct rps_shard *shard, uint64_t hash,
        uint64_t key, struct rps_index_place *place_out)
{
    rps_status status = rps_rows_reserve(&shard->disk, 1);

    return status == RPS_OK ? take_row_locked(shard, &shard->disk,
                                      RPS_ROW_ON_DISK, hash, key, place_out)
                            : status;
}

void
rps_shard_erase_row_locked(
        struct rps_shard *shard, struct rps_index_place place)
{
    struct rps_rows *rows =
            (place.row & RPS_ROW_ON_DISK) != 0 ? &shard->disk : &shard->rows;

    rps_index_remove(&shard->index, place);
    rps_rows_give(rows, rps_row_number(place.row));
}
