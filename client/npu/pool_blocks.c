/* SPDX-License-Identifier: Apache-2.0 */
/* Segments and the blocks that they are cut into. */
#include "client/npu/pool_impl.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

static struct rps_pool_block *
block_of(struct rps_tree_node *node)
{
    _Static_assert(offsetof(struct rps_pool_block, node) == 0,
            "a node is its block's first field");
    return (struct rps_pool_block *)(void *)node;
}

struct rps_pool_arena *
rps_pool_arena_locked(struct rps_npu_pool *pool, struct rps_pool_stream *stream,
        struct rps_pool_private *private)
{
    struct rps_pool_arena **list =
            private != NULL ? &private->arenas : &pool->arenas;
    struct rps_pool_arena *arena = *list;

    /* where a step's segments go in the end is there from the start */
    if (private != NULL && rps_pool_arena_locked(pool, stream, NULL) == NULL) {
        return NULL;
    }
    while (arena != NULL && arena->stream != stream) {
        arena = arena->next;
    }
    if (arena == NULL) {
        arena = calloc(1, sizeof(*arena));
        if (arena != NULL) {
            arena->stream = stream;
            arena->private = private;
            stream->references += private != NULL;
            arena->next = *list;
            *list = arena;
        }
    }
    return arena;
}

struct rps_pool_block *
rps_pool_best_fit_locked(
        struct rps_pool_arena *arena, bool small, uint64_t bytes)
{
    struct rps_tree_node *node =
            rps_tree_at_least(arena->free[small], bytes, 0);

    return node != NULL ? block_of(node) : NULL;
}

struct rps_pool_block *
rps_pool_next_fit_locked(
        struct rps_pool_arena *arena, const struct rps_pool_block *block)
{
    struct rps_tree_node *node =
            rps_tree_at_least(arena->free[block->segment->small], block->bytes,
                    block->address + 1);

    return node != NULL ? block_of(node) : NULL;
}

bool
rps_pool_is_whole(const struct rps_pool_block *block)
{
    return block->state == RPS_POOL_FREE &&
           block->bytes == block->segment->bytes;
}

static void
put_free(struct rps_npu_pool *pool, struct rps_pool_block *block)
{
    struct rps_pool_arena *arena = block->segment->arena;

    if (arena->private != NULL) {
        pool->stats.held += block->bytes;
    }
    block->state = RPS_POOL_FREE;
    block->requested = 0;
    rps_tree_insert(&arena->free[block->segment->small], &block->node,
            block->bytes, block->address);
}

static void
take_free(struct rps_npu_pool *pool, struct rps_pool_block *block)
{
    struct rps_pool_arena *arena = block->segment->arena;

    assert(block->state == RPS_POOL_FREE);
    if (arena->private != NULL) {
        pool->stats.held -= block->bytes;
    }
    rps_tree_remove(&arena->free[block->segment->small], &block->node);
}

static void
link_segment(struct rps_pool_arena *arena, struct rps_pool_segment *segment)
{
    segment->arena = arena;
    segment->before = NULL;
    segment->after = arena->segments;
    if (arena->segments != NULL) {
        arena->segments->before = segment;
    }
    arena->segments = segment;
}

static void
unlink_segment(struct rps_pool_segment *segment)
{
    if (segment->before != NULL) {
        segment->before->after = segment->after;
    } else {
        segment->arena->segments = segment->after;
    }
    if (segment->after != NULL) {
        segment->after->before = segment->before;
    }
}

static uint64_t
round_to(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* The usual size. Of a small device one segment does not take all. */
static uint64_t
segment_bytes(const struct rps_npu_pool *pool, bool small, uint64_t bytes)
{
    const uint64_t share = round_to(
            pool->driver.capacity / RPS_POOL_SMALL_SHARE, RPS_POOL_PAGE);

    if (small && share > 0 && share < RPS_POOL_SMALL_SEGMENT) {
        return bytes < share ? share : round_to(bytes, RPS_POOL_PAGE);
    }
    if (small) {
        return RPS_POOL_SMALL_SEGMENT;
    }
    return bytes <= RPS_POOL_LARGE_MAX ? RPS_POOL_LARGE_SEGMENT
                                       : round_to(bytes, RPS_POOL_HUGE_ROUND);
}

/* The driver has no range of the usual size: what is asked for in whole units
 * that leave room for the next request, at last its pages alone. */
static rps_status
take_less(struct rps_npu_pool *pool, bool small, uint64_t bytes,
        uint64_t *taken, void **address_out, struct rps_error *error)
{
    const uint64_t units[] = {
            small ? RPS_POOL_SMALL_ROUND : RPS_POOL_HUGE_ROUND, RPS_POOL_PAGE};
    rps_status status = RPS_E_NOMEM;

    for (size_t i = 0; i < 2 && status == RPS_E_NOMEM; i++) {
        const uint64_t less = round_to(bytes, units[i]);

        if (less < *taken) {
            *taken = less;
            status = pool->driver.take(
                    pool->driver.context, less, address_out, error);
        }
    }
    return status;
}

rps_status
rps_pool_take_locked(struct rps_npu_pool *pool, struct rps_pool_arena *arena,
        bool small, uint64_t bytes, bool less,
        struct rps_pool_block **block_out, struct rps_error *error)
{
    struct rps_pool_segment *segment = calloc(1, sizeof(*segment));
    struct rps_pool_block *block = calloc(1, sizeof(*block));
    void *address = NULL;
    rps_status status = RPS_E_NOMEM;

    if (segment == NULL || block == NULL) {
        rps_fail(error, RPS_E_NOMEM, "no memory on the host for a segment");
        goto fail;
    }
    segment->bytes = segment_bytes(pool, small, bytes);
    status = pool->driver.take(
            pool->driver.context, segment->bytes, &address, error);
    if (status == RPS_E_NOMEM && less) {
        status =
                take_less(pool, small, bytes, &segment->bytes, &address, error);
    }
    if (status != RPS_OK) {
        goto fail;
    }
    segment->address = (uint64_t)(uintptr_t)address;
    segment->small = small;
    segment->first = block;
    block->segment = segment;
    block->address = segment->address;
    block->bytes = segment->bytes;
    link_segment(arena, segment);
    rps_pool_add(&pool->stats.reserved, segment->bytes);
    rps_pool_add(&pool->stats.segments, 1);
    put_free(pool, block);
    *block_out = block;
    return RPS_OK;
fail:
    free(segment);
    free(block);
    return status;
}

/* What is left of a large block is worth a block of its own where it serves
 * more than the small pool would. */
static bool
worth_a_cut(const struct rps_pool_block *block, uint64_t bytes)
{
    const uint64_t left = block->bytes - bytes;

    return block->segment->small ? left >= RPS_POOL_ALIGN
                                 : left > RPS_POOL_SMALL_MAX;
}

void
rps_pool_cut_locked(struct rps_npu_pool *pool, struct rps_pool_block *block,
        uint64_t bytes, uint64_t requested)
{
    struct rps_pool_block *rest = NULL;

    take_free(pool, block);
    if (worth_a_cut(block, bytes)) {
        rest = calloc(1, sizeof(*rest));
    }
    if (rest != NULL) {
        rest->segment = block->segment;
        rest->address = block->address + bytes;
        rest->bytes = block->bytes - bytes;
        rest->before = block;
        rest->after = block->after;
        if (rest->after != NULL) {
            rest->after->before = rest;
        }
        block->after = rest;
        block->bytes = bytes;
        put_free(pool, rest);
    }
    block->state = RPS_POOL_LIVE;
    block->requested = requested;
    rps_tree_insert(&pool->live, &block->node, block->address, 0);
}

/* `block` takes in the free one behind it. */
static void
swallow(struct rps_npu_pool *pool, struct rps_pool_block *block)
{
    struct rps_pool_block *gone = block->after;

    take_free(pool, gone);
    assert(block->address + block->bytes == gone->address);
    block->bytes += gone->bytes;
    block->after = gone->after;
    if (block->after != NULL) {
        block->after->before = block;
    }
    free(gone);
}

void
rps_pool_return_locked(struct rps_npu_pool *pool, struct rps_pool_block *block)
{
    struct rps_pool_block *before = block->before;

    pool->stats.active.now -= block->bytes;
    if (block->after != NULL && block->after->state == RPS_POOL_FREE) {
        swallow(pool, block);
    }
    put_free(pool, block);
    if (before != NULL && before->state == RPS_POOL_FREE) {
        take_free(pool, before);
        swallow(pool, before);
        put_free(pool, before);
    }
}

void
rps_pool_move_locked(struct rps_npu_pool *pool,
        struct rps_pool_segment *segment, struct rps_pool_arena *arena)
{
    struct rps_pool_block *block;

    for (block = segment->first; block != NULL; block = block->after) {
        if (block->state == RPS_POOL_FREE) {
            take_free(pool, block);
        }
    }
    unlink_segment(segment);
    link_segment(arena, segment);
    for (block = segment->first; block != NULL; block = block->after) {
        if (block->state == RPS_POOL_FREE) {
            put_free(pool, block);
        }
    }
}

void
rps_pool_unlink_locked(
        struct rps_npu_pool *pool, struct rps_pool_segment *segment)
{
    struct rps_pool_block *block = segment->first;

    while (block != NULL) {
        struct rps_pool_block *after = block->after;

        if (block->state == RPS_POOL_FREE) {
            take_free(pool, block);
        }
        free(block);
        block = after;
    }
    unlink_segment(segment);
    pool->stats.reserved.now -= segment->bytes;
    pool->stats.segments.now--;
}
