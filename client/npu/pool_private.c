/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that changes hands: of compiled steps, and of streams that are gone.
 */
#include "client/npu/pool_impl.h"

#include <stdlib.h>

struct rps_pool_private *
rps_pool_private_create(struct rps_npu_pool *pool)
{
    struct rps_pool_private *private = calloc(1, sizeof(*private));

    if (private != NULL) {
        private->open = true;
        pthread_mutex_lock(&pool->lock);
        private->number = ++pool->privates_ever;
        private->next = pool->privates;
        pool->privates = private;
        pthread_mutex_unlock(&pool->lock);
    }
    return private;
}

static void
unlink_private(
        struct rps_npu_pool *pool, const struct rps_pool_private *private)
{
    struct rps_pool_private **at = &pool->privates;

    while (*at != private) {
        at = &(*at)->next;
    }
    *at = private->next;
}

uint64_t
rps_pool_private_number(const struct rps_pool_private *private)
{
    return private->number;
}

void
rps_pool_private_close(
        struct rps_npu_pool *pool, struct rps_pool_private *private)
{
    pthread_mutex_lock(&pool->lock);
    private->open = false;
    pthread_mutex_unlock(&pool->lock);
}

uint64_t
rps_pool_private_bytes(
        struct rps_npu_pool *pool, const struct rps_pool_private *private)
{
    const struct rps_pool_arena *arena;
    const struct rps_pool_segment *segment;
    uint64_t bytes = 0;

    pthread_mutex_lock(&pool->lock);
    for (arena = private->arenas; arena != NULL; arena = arena->next) {
        for (segment = arena->segments; segment != NULL;
                segment = segment->after) {
            bytes += segment->bytes;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return bytes;
}

static void
move_all(struct rps_npu_pool *pool, struct rps_pool_arena *from,
        struct rps_pool_arena *to)
{
    while (from->segments != NULL) {
        rps_pool_move_locked(pool, from->segments, to);
    }
}

/* A segment with a block in use keeps its stream, in whose queue may stand
 * what uses the block when it is freed. One without is idle: the step is over,
 * and what was freed after its capture has waited for its stream. */
static void
give_up(struct rps_npu_pool *pool, struct rps_pool_arena *arena)
{
    struct rps_pool_segment *segment = arena->segments;

    while (segment != NULL) {
        struct rps_pool_segment *after = segment->after;

        if (rps_pool_is_whole(segment->first)) {
            rps_pool_move_locked(pool, segment, &pool->idle);
        }
        segment = after;
    }
    move_all(pool, arena,
            arena->stream->stream != NULL
                    ? rps_pool_arena_locked(pool, arena->stream, NULL)
                    : &pool->idle);
}

void
rps_pool_private_destroy(
        struct rps_npu_pool *pool, struct rps_pool_private *private)
{
    if (private == NULL) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    rps_pool_collect_locked(pool);
    while (private->arenas != NULL) {
        struct rps_pool_arena *arena = private->arenas;

        private->arenas = arena->next;
        give_up(pool, arena);
        rps_pool_stream_release_locked(pool, arena->stream);
        free(arena);
    }
    unlink_private(pool, private);
    pthread_mutex_unlock(&pool->lock);
    free(private);
}

/* Its blocks, live ones too, may have any owner: who uses them on another
 * stream has recorded that. */
static void
drop_arena(struct rps_npu_pool *pool, struct rps_pool_stream *stream)
{
    struct rps_pool_arena **at = &pool->arenas;

    while (*at != NULL && (*at)->stream != stream) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        struct rps_pool_arena *arena = *at;

        *at = arena->next;
        move_all(pool, arena, &pool->idle);
        free(arena);
    }
}

void
rps_pool_forget_stream(struct rps_npu_pool *pool, rps_npu_stream *stream)
{
    struct rps_pool_stream *entry;

    pthread_mutex_lock(&pool->lock);
    entry = pool->streams;
    while (entry != NULL && entry->stream != stream) {
        entry = entry->next;
    }
    if (entry != NULL) {
        entry->references++; /* this function's */
        while (entry->waiters > 0) {
            pthread_cond_wait(&pool->changed, &pool->lock);
        }
        rps_pool_finish_uses_locked(pool, entry);
        drop_arena(pool, entry);
        entry->stream = NULL;
        rps_pool_stream_release_locked(pool, entry);
    }
    pthread_mutex_unlock(&pool->lock);
}
