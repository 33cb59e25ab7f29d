/* SPDX-License-Identifier: Apache-2.0 */
/* Owns promises and the list of rows made in advance. */
#include "embedding/room.h"

#include "embedding/admit.h"
#include "embedding/compact.h"
#include "embedding/index_grow.h"

#include <assert.h>
#include <stdlib.h>

void
rps_room_done_locked(struct rps_room *room, size_t shard_index)
{
    struct rps_promises *promises = &room->promises[shard_index];
    struct rps_shard *shard = &room->table->shards[shard_index];
    const size_t *starts = &room->starts[shard_index];

    if (!promises->by_part) {
        rps_shard_release_anywhere_locked(shard, promises->left);
        promises->left = 0;
    }
    for (size_t i = starts[0]; promises->left > 0; i++) {
        assert(i < starts[1]);
        if (room->made[i] == RPS_MADE_NONE) {
            rps_shard_release_locked(shard, room->hashes[i]);
            promises->left--;
        }
    }
}

/* What was not used. */
static void
release(struct rps_room *room)
{
    for (size_t s = 0; s < room->table->shard_count; s++) {
        struct rps_shard *shard = &room->table->shards[s];
        if (room->promises[s].left > 0) {
            rps_shard_lock(shard);
            rps_room_done_locked(room, s);
            pthread_mutex_unlock(&shard->lock);
        }
    }
}

static bool
promise_locked(struct rps_room *room, size_t s)
{
    struct rps_shard *shard = &room->table->shards[s];
    const size_t start = room->starts[s];
    const size_t count = room->starts[s + 1] - start;
    struct rps_promises *promises = &room->promises[s];
    bool there = rps_shard_promise_anywhere_locked(shard, count);

    if (!there) {
        promises->by_part = true;
        there = rps_shard_promise_locked(shard, count, room->hashes + start);
    }
    promises->left = there ? count : 0;
    return there;
}

static bool
promise(struct rps_room *room)
{
    bool there = true;

    for (size_t s = 0; there && s < room->table->shard_count; s++) {
        struct rps_shard *shard = &room->table->shards[s];
        if (room->starts[s] < room->starts[s + 1]) {
            rps_shard_lock(shard);
            there = promise_locked(room, s);
            pthread_mutex_unlock(&shard->lock);
        }
    }
    if (!there) {
        release(room);
    }
    return there;
}

#define AHEAD 16u /* lines asked for before they are needed */

static void
ask_for_lines(
        const struct rps_room *room, const struct rps_shard *shard, size_t i)
{
    const size_t left = room->starts[shard - room->table->shards + 1] - i;
    struct rps_index_line *lines[AHEAD];

    rps_index_homes(&shard->index, left < AHEAD ? left : AHEAD,
            room->hashes + i, lines);
}

static bool
is_admitted_locked(
        const struct rps_room *room, const struct rps_shard *shard, size_t i)
{
    return room->uses == NULL ||
           rps_admitted_locked(room->table, shard, room->hashes[i],
                   room->keys[i], room->uses[i]);
}

/* True: try again. The shard's keys are guarded before the first of others
 * gives way to one. */
static bool
make_way_locked(struct rps_room *room, size_t s, size_t i)
{
    struct rps_shard *shard = &room->table->shards[s];
    const size_t start = room->starts[s];

    if (rps_compact_stop_locked(room->table, shard)) {
        return true; /* nobody needs to go for the rows of its chunks */
    }
    if (room->table->spec.on_full == RPS_ON_FULL_REFUSE &&
            !room->table->tiered) {
        return false;
    }
    if (room->guard.bits == NULL &&
            !rps_guard_init(&room->guard, room->starts[s + 1] - start,
                    room->hashes + start)) {
        return false;
    }
    return rps_evict_for_locked(
            room->table, shard, room->hashes[i], &room->guard);
}

/* Whether the key's segment is as full as it should be, and cannot grow. */
static bool
is_crowded_locked(struct rps_shard *shard, uint64_t hash)
{
    const struct rps_segment *segment = rps_index_segment(&shard->index, hash);

    return segment->count >= rps_segment_full(segment) &&
           rps_index_grow(&shard->index, hash,
                   rps_shard_kept_locked(shard, segment)) != RPS_OK;
}

static rps_status
make_row_locked(struct rps_room *room, size_t s, size_t i)
{
    struct rps_shard *shard = &room->table->shards[s];
    struct rps_index_place place;
    rps_status status = RPS_OK;

    if (room->table->spec.on_full != RPS_ON_FULL_REFUSE &&
            !room->table->tiered && is_crowded_locked(shard, room->hashes[i])) {
        (void)make_way_locked(room, s, i);
    }
    do {
        status = rps_table_new_row_locked(room->table, shard, room->hashes[i],
                room->keys[i], false, &place);
    } while (status != RPS_OK && make_way_locked(room, s, i));
    if (status == RPS_E_LIMIT) { /* others have all memory that there is */
        status = rps_table_new_row_on_disk_locked(
                room->table, shard, room->hashes[i], room->keys[i], &place);
    }
    if (status == RPS_OK) {
        room->made[i] = RPS_MADE_NEW;
    } else if (room->drop_new) {
        room->made[i] = RPS_MADE_DROPPED;
        status = RPS_OK;
    }
    return status;
}

static rps_status
make_shard(struct rps_room *room, size_t s)
{
    struct rps_shard *shard = &room->table->shards[s];
    const size_t end = room->starts[s + 1];
    rps_status status = RPS_OK;

    rps_shard_lock(shard);
    for (size_t i = room->starts[s]; status == RPS_OK && i < end; i++) {
        if ((i - room->starts[s]) % AHEAD == 0) {
            ask_for_lines(room, shard, i);
        }
        if (rps_index_find(&shard->index, room->hashes[i], room->keys[i]).row ==
                        0 &&
                is_admitted_locked(room, shard, i)) {
            status = make_row_locked(room, s, i);
        }
    }
    pthread_mutex_unlock(&shard->lock);
    rps_guard_finish(&room->guard);
    return status;
}

bool
rps_room_refuse_locked(struct rps_room *room, size_t shard_index, size_t i)
{
    struct rps_shard *shard = &room->table->shards[shard_index];
    struct rps_index_place place;

    if (!rps_room_made(room, i)) {
        return false;
    }
    /* it stays where another call has stepped it meanwhile, which leaves uses;
     * assigns and erasers wait for `making` */
    place = rps_index_find(&shard->index, room->hashes[i], room->keys[i]);
    if (place.line->meta[place.lane] != 0) {
        room->made[i] = 0;
        return false;
    }
    rps_table_erase_row_locked(room->table, shard, place);
    atomic_fetch_sub_explicit(&room->table->inserted, 1, memory_order_relaxed);
    room->made[i] = RPS_MADE_DROPPED;
    return true;
}

static void
unmake(struct rps_room *room)
{
    for (size_t s = 0; s < room->table->shard_count; s++) {
        struct rps_shard *shard = &room->table->shards[s];
        rps_shard_lock(shard);
        for (size_t i = room->starts[s]; i < room->starts[s + 1]; i++) {
            (void)rps_room_refuse_locked(room, s, i);
        }
        pthread_mutex_unlock(&shard->lock);
    }
}

/* New keys of a request that is refused whole; each as often as it has it. */
static uint64_t
missing(const struct rps_room *room)
{
    uint64_t count = 0;

    for (size_t s = 0; s < room->table->shard_count; s++) {
        struct rps_shard *shard = &room->table->shards[s];
        rps_shard_lock(shard);
        for (size_t i = room->starts[s]; i < room->starts[s + 1]; i++) {
            const struct rps_index_place place = rps_index_find(
                    &shard->index, room->hashes[i], room->keys[i]);
            if (place.row == 0 && is_admitted_locked(room, shard, i)) {
                count++;
            }
        }
        pthread_mutex_unlock(&shard->lock);
    }
    return count;
}

/* The lock is held until the end: no one erases what was made. */
static rps_status
make(struct rps_room *room)
{
    rps_status status = RPS_OK;

    room->making = true;
    pthread_mutex_lock(&room->table->making);
    for (size_t s = 0; status == RPS_OK && s < room->table->shard_count; s++) {
        status = make_shard(room, s);
    }
    if (status != RPS_OK) {
        unmake(room);
    }
    if (status == RPS_E_LIMIT) {
        rps_count(&room->table->dropped, missing(room));
    }
    return status;
}

rps_status
rps_room_begin(struct rps_room *room)
{
    const size_t shards = room->table->shard_count;
    const size_t bytes =
            shards * sizeof(*room->promises) + room->starts[shards];

    room->promises = calloc(1, bytes);
    if (room->promises == NULL) {
        return RPS_E_NOMEM;
    }
    room->made = (uint8_t *)(room->promises + shards);
    return promise(room) ? RPS_OK : make(room);
}

/* One is the key's now, if it was not before. */
static void
use_promise_locked(struct rps_room *room, size_t shard_index, size_t i)
{
    struct rps_promises *promises = &room->promises[shard_index];

    assert(promises->left > 0);
    if (!promises->by_part) {
        rps_shard_settle_locked(
                &room->table->shards[shard_index], room->hashes[i]);
    }
    promises->left--;
    room->made[i] = RPS_MADE_LATER;
}

enum rps_room_answer
rps_room_create_locked(struct rps_room *room, size_t shard_index, size_t i,
        struct rps_index_place *place_out)
{
    struct rps_shard *shard = &room->table->shards[shard_index];
    rps_status status = RPS_OK;

    if (room->making) {
        return room->made[i] == RPS_MADE_NONE ? RPS_ROOM_UNADMITTED
                                              : RPS_ROOM_DROPPED;
    }
    if (!is_admitted_locked(room, shard, i)) {
        return RPS_ROOM_UNADMITTED;
    }
    assert(room->made[i] == RPS_MADE_NONE);
    use_promise_locked(room, shard_index, i);
    status = (room->bare ? rps_table_bare_row_locked
                         : rps_table_new_row_locked)(room->table, shard,
            room->hashes[i], room->keys[i], true, place_out);
    assert(status == RPS_OK);
    (void)status;
    return RPS_ROOM_CREATED;
}

struct rps_index_place
rps_room_place_locked(struct rps_room *room, size_t shard_index, size_t i)
{
    struct rps_shard *shard = &room->table->shards[shard_index];
    struct rps_index_place place =
            rps_index_find(&shard->index, room->hashes[i], room->keys[i]);

    assert(room->uses == NULL && !room->drop_new);

    if (place.row == 0) {
        const enum rps_room_answer answer =
                rps_room_create_locked(room, shard_index, i, &place);
        assert(answer == RPS_ROOM_CREATED);
        (void)answer;
    }
    return place;
}

void
rps_room_end(struct rps_room *room)
{
    if (room->making) {
        pthread_mutex_unlock(&room->table->making);
    } else if (room->promises != NULL) {
        release(room);
    }
    free(room->promises);
    room->promises = NULL;
    room->made = NULL;
    room->making = false;
}
