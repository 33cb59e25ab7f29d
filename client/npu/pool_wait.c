/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks that were freed while other streams use them. Each such stream gets a
 * mark at the free; marks of a stream are passed in their order, so asking for
 * its oldest one is enough.
 */
#include "client/npu/pool_impl.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct rps_pool_stream *
rps_pool_stream_locked(struct rps_npu_pool *pool, rps_npu_stream *stream)
{
    struct rps_pool_stream *entry = pool->streams;

    while (entry != NULL && entry->stream != stream) {
        entry = entry->next;
    }
    if (entry == NULL) {
        entry = calloc(1, sizeof(*entry));
        if (entry != NULL) {
            entry->stream = stream;
            snprintf(entry->name, sizeof(entry->name), "%s",
                    pool->driver.stream_name(pool->driver.context, stream));
            entry->next = pool->streams;
            pool->streams = entry;
        }
    }
    return entry;
}

void
rps_pool_stream_release_locked(
        struct rps_npu_pool *pool, struct rps_pool_stream *stream)
{
    struct rps_pool_stream **at = &pool->streams;

    stream->references--;
    if (stream->references > 0 || stream->stream != NULL) {
        return;
    }
    while (*at != stream) {
        at = &(*at)->next;
    }
    *at = stream->next;
    free(stream);
}

bool
rps_pool_use_locked(struct rps_npu_pool *pool, struct rps_pool_block *block,
        struct rps_pool_stream *stream, uint64_t place)
{
    struct rps_pool_use *use = block->uses;

    while (use != NULL && use->stream != stream) {
        use = use->next;
    }
    if (use != NULL) {
        use->place = place > use->place ? place : use->place;
        return true;
    }
    use = calloc(1, sizeof(*use));
    if (use == NULL) {
        return false;
    }
    use->stream = stream;
    use->block = block;
    use->place = place;
    use->next = block->uses;
    block->uses = use;
    stream->references++;
    return true;
}

void
rps_pool_use_destroy(struct rps_npu_pool *pool, struct rps_pool_use *use)
{
    struct rps_pool_stream *stream = use->stream;

    free(use);
    rps_pool_stream_release_locked(pool, stream);
}

static bool
try_mark(struct rps_npu_pool *pool, struct rps_pool_use *use)
{
    if (!use->marked) {
        use->marked = pool->driver.mark(
                pool->driver.context, use->stream->stream, &use->position);
    }
    return use->marked;
}

static bool
is_passed(struct rps_npu_pool *pool, struct rps_pool_use *use)
{
    return try_mark(pool, use) && pool->driver.passed(pool->driver.context,
                                          use->stream->stream, use->position);
}

/* Nothing to wait for: a stream that is gone; in its own capture, the block's
 * own stream, behind whose work the next user's will stand. */
static bool
is_over(const struct rps_pool_use *use, const struct rps_pool_arena *arena)
{
    return use->stream->stream == NULL ||
           (use->stream == arena->stream && arena->private != NULL &&
                   arena->private->open);
}

static void
push_use(struct rps_npu_pool *pool, struct rps_pool_use *use)
{
    struct rps_pool_stream *stream = use->stream;

    use->next = NULL;
    use->number = ++pool->waits_ever;
    if (stream->last_use != NULL) {
        stream->last_use->next = use;
    } else {
        stream->first_use = use;
    }
    stream->last_use = use;
    use->block->waits++;
    (void)try_mark(pool, use);
}

void
rps_pool_wait_locked(struct rps_npu_pool *pool, struct rps_pool_block *block)
{
    struct rps_pool_use *use = block->uses;

    block->uses = NULL;
    block->state = RPS_POOL_WAITING;
    while (use != NULL) {
        struct rps_pool_use *next = use->next;

        if (is_over(use, block->segment->arena)) {
            rps_pool_use_destroy(pool, use);
        } else {
            push_use(pool, use);
        }
        use = next;
    }
    if (block->waits == 0) {
        rps_pool_return_locked(pool, block);
    }
}

/* The use behind `before` (NULL: the stream's oldest) is over. */
static void
end_use(struct rps_npu_pool *pool, struct rps_pool_stream *stream,
        struct rps_pool_use *before)
{
    struct rps_pool_use *use =
            before != NULL ? before->next : stream->first_use;
    struct rps_pool_block *block = use->block;

    if (before != NULL) {
        before->next = use->next;
    } else {
        stream->first_use = use->next;
    }
    if (stream->last_use == use) {
        stream->last_use = before;
    }
    assert(block->state == RPS_POOL_WAITING && block->waits > 0);
    block->waits--;
    if (block->waits == 0) {
        rps_pool_return_locked(pool, block);
    }
    rps_pool_use_destroy(pool, use);
}

void
rps_pool_finish_uses_locked(
        struct rps_npu_pool *pool, struct rps_pool_stream *stream)
{
    while (stream->first_use != NULL) {
        end_use(pool, stream, NULL);
    }
}

static bool
is_followed(const struct rps_npu_pool *pool, const struct rps_pool_use *use,
        const struct rps_pool_arena *arena)
{
    return !use->marked && use->place != RPS_POOL_NO_PLACE &&
           use->block->segment->arena == arena &&
           pool->driver.follows(pool->driver.context, arena->stream->stream,
                   use->stream->stream, use->place);
}

void
rps_pool_follow_locked(
        struct rps_npu_pool *pool, const struct rps_pool_arena *arena)
{
    struct rps_pool_stream *stream;

    for (stream = pool->streams; stream != NULL; stream = stream->next) {
        struct rps_pool_use *before = NULL;
        struct rps_pool_use *use = stream->first_use;

        while (use != NULL) {
            struct rps_pool_use *next = use->next;

            if (is_followed(pool, use, arena)) {
                end_use(pool, stream, before);
            } else {
                before = use;
            }
            use = next;
        }
    }
}

void
rps_pool_collect_locked(struct rps_npu_pool *pool)
{
    struct rps_pool_stream *stream;

    for (stream = pool->streams; stream != NULL; stream = stream->next) {
        while (stream->first_use != NULL &&
                is_passed(pool, stream->first_use)) {
            end_use(pool, stream, NULL);
        }
    }
}

/* A use with a mark to wait for, no younger than `number`. */
static struct rps_pool_use *
oldest_use(const struct rps_npu_pool *pool, uint64_t number)
{
    const struct rps_pool_stream *stream;

    for (stream = pool->streams; stream != NULL; stream = stream->next) {
        struct rps_pool_use *use = stream->first_use;

        if (use != NULL && use->marked && use->number <= number) {
            return use;
        }
    }
    return NULL;
}

void
rps_pool_settle_locked(struct rps_npu_pool *pool)
{
    const uint64_t number = pool->waits_ever;
    struct rps_pool_use *use;

    rps_pool_collect_locked(pool);
    /* each turn ends one use at least, and no new one is waited for */
    while ((use = oldest_use(pool, number)) != NULL) {
        struct rps_pool_stream *stream = use->stream;
        const uint64_t position = use->position; /* the use may go meanwhile */

        stream->waiters++;
        pthread_mutex_unlock(&pool->lock);
        pool->driver.wait(pool->driver.context, stream->stream, position);
        pthread_mutex_lock(&pool->lock);
        stream->waiters--;
        pthread_cond_broadcast(&pool->changed);
        rps_pool_collect_locked(pool);
    }
}
