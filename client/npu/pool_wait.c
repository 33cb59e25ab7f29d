/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks that were freed while other streams use them. Each such stream gets a
 * mark at the free; marks of a stream are done in their order, so asking its
 * oldest one is enough.
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
        struct rps_pool_stream *stream)
{
    struct rps_pool_use *use = calloc(1, sizeof(*use));

    if (use == NULL || pool->driver.mark_create(
                               pool->driver.context, &use->mark) != RPS_OK) {
        free(use);
        return false;
    }
    use->stream = stream;
    use->block = block;
    use->next = block->uses;
    block->uses = use;
    stream->references++;
    return true;
}

void
rps_pool_use_destroy(struct rps_npu_pool *pool, struct rps_pool_use *use)
{
    struct rps_pool_stream *stream = use->stream;

    pool->driver.mark_destroy(pool->driver.context, use->mark);
    free(use);
    rps_pool_stream_release_locked(pool, stream);
}

static bool
try_record(struct rps_npu_pool *pool, struct rps_pool_use *use)
{
    if (!use->recorded) {
        use->recorded = pool->driver.mark_record(
                pool->driver.context, use->mark, use->stream->stream);
    }
    return use->recorded;
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
    try_record(pool, use);
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

/* The stream's oldest use is over. */
static void
end_first(struct rps_npu_pool *pool, struct rps_pool_stream *stream)
{
    struct rps_pool_use *use = stream->first_use;
    struct rps_pool_block *block = use->block;

    stream->first_use = use->next;
    if (stream->first_use == NULL) {
        stream->last_use = NULL;
    }
    assert(block->state == RPS_POOL_WAITING && block->waits > 0);
    block->waits--;
    if (block->waits == 0) {
        rps_pool_return_locked(pool, block);
    }
    use->block = NULL;
    if (use->waiters == 0) {
        rps_pool_use_destroy(pool, use);
    }
}

void
rps_pool_finish_uses_locked(
        struct rps_npu_pool *pool, struct rps_pool_stream *stream)
{
    while (stream->first_use != NULL) {
        end_first(pool, stream);
    }
}

void
rps_pool_collect_locked(struct rps_npu_pool *pool)
{
    struct rps_pool_stream *stream;

    for (stream = pool->streams; stream != NULL; stream = stream->next) {
        while (stream->first_use != NULL &&
                try_record(pool, stream->first_use) &&
                pool->driver.mark_done(
                        pool->driver.context, stream->first_use->mark)) {
            end_first(pool, stream);
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

        if (use != NULL && use->recorded && use->number <= number) {
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
        use->waiters++;
        pthread_mutex_unlock(&pool->lock);
        pool->driver.mark_wait(pool->driver.context, use->mark);
        pthread_mutex_lock(&pool->lock);
        use->waiters--;
        if (use->block == NULL && use->waiters == 0) {
            rps_pool_use_destroy(pool, use);
        }
        rps_pool_collect_locked(pool);
    }
}
