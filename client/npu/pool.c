/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: what is given out, taken back and, where there is no more, tried
 * again. */
#include "base/text.h"
#include "client/npu/pool_impl.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

/* No device has as much: rounding up cannot overflow. */
#define REQUEST_MAX (UINT64_C(1) << 47)

struct request {
    struct rps_pool_arena *arena;
    uint64_t bytes; /* rounded */
    uint64_t requested;
    bool small;
};

struct rps_npu_pool *
rps_pool_create(const struct rps_pool_driver *driver)
{
    struct rps_npu_pool *pool = calloc(1, sizeof(*pool));

    if (pool != NULL) {
        pthread_mutex_init(&pool->lock, NULL);
        pthread_cond_init(&pool->changed, NULL);
        pool->driver = *driver;
    }
    return pool;
}

/* Of live blocks: what waits is the streams'. */
static void
destroy_uses(struct rps_npu_pool *pool, struct rps_pool_use *use)
{
    while (use != NULL) {
        struct rps_pool_use *next = use->next;

        rps_pool_use_destroy(pool, use);
        use = next;
    }
}

static void
give_arena(struct rps_npu_pool *pool, struct rps_pool_arena *arena)
{
    while (arena->segments != NULL) {
        struct rps_pool_segment *segment = arena->segments;
        struct rps_pool_block *block;

        for (block = segment->first; block != NULL; block = block->after) {
            destroy_uses(pool, block->uses);
        }
        rps_pool_unlink_locked(pool, segment);
        pool->driver.give(
                pool->driver.context, (void *)(uintptr_t)segment->address);
        free(segment);
    }
}

void
rps_pool_destroy(struct rps_npu_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    for (struct rps_pool_stream *stream = pool->streams; stream != NULL;
            stream = stream->next) {
        stream->references++; /* the list is this function's */
        rps_pool_finish_uses_locked(pool, stream);
    }
    while (pool->arenas != NULL) {
        struct rps_pool_arena *arena = pool->arenas;

        pool->arenas = arena->next;
        give_arena(pool, arena);
        free(arena);
    }
    give_arena(pool, &pool->idle);
    while (pool->streams != NULL) {
        struct rps_pool_stream *stream = pool->streams;

        pool->streams = stream->next;
        free(stream);
    }
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

/* --- giving back to the driver -------------------------------------------- */

static struct rps_pool_segment *
unlink_whole(struct rps_npu_pool *pool, struct rps_pool_arena *arena,
        struct rps_pool_segment *list)
{
    struct rps_pool_segment *segment = arena->segments;

    while (segment != NULL) {
        struct rps_pool_segment *after = segment->after;

        if (rps_pool_is_whole(segment->first)) {
            rps_pool_unlink_locked(pool, segment);
            segment->after = list;
            list = segment;
        }
        segment = after;
    }
    return list;
}

/* The driver may wait for the device, and the device for a host function that
 * wants the pool: so without the lock. */
static uint64_t
give_list(struct rps_npu_pool *pool, struct rps_pool_segment *list)
{
    uint64_t bytes = 0;
    uint64_t count = 0;

    pool->giving++;
    pthread_mutex_unlock(&pool->lock);
    while (list != NULL) {
        struct rps_pool_segment *after = list->after;

        pool->driver.give(
                pool->driver.context, (void *)(uintptr_t)list->address);
        bytes += list->bytes;
        count++;
        free(list);
        list = after;
    }
    pthread_mutex_lock(&pool->lock);
    pool->stats.trimmed += count;
    pool->giving--;
    pthread_cond_broadcast(&pool->changed);
    return bytes;
}

static uint64_t
trim_locked(struct rps_npu_pool *pool)
{
    struct rps_pool_segment *list = unlink_whole(pool, &pool->idle, NULL);
    struct rps_pool_arena *arena;

    for (arena = pool->arenas; arena != NULL; arena = arena->next) {
        list = unlink_whole(pool, arena, list);
    }
    return give_list(pool, list);
}

uint64_t
rps_pool_trim(struct rps_npu_pool *pool)
{
    uint64_t bytes;

    pthread_mutex_lock(&pool->lock);
    rps_pool_collect_locked(pool);
    bytes = trim_locked(pool);
    pthread_mutex_unlock(&pool->lock);
    return bytes;
}

/* --- requests ------------------------------------------------------------- */

/* A block of a segment on which no work is pending; the segment is the
 * arena's then. A step takes only whole ones: what is live beside its blocks
 * would stay with it. */
static struct rps_pool_block *
take_over_idle(struct rps_npu_pool *pool, const struct request *request)
{
    struct rps_pool_block *block = rps_pool_best_fit_locked(
            &pool->idle, request->small, request->bytes);

    while (block != NULL && request->arena->private != NULL &&
            !rps_pool_is_whole(block)) {
        block = rps_pool_next_fit_locked(&pool->idle, block);
    }
    if (block != NULL) {
        rps_pool_move_locked(pool, block->segment, request->arena);
    }
    return block;
}

static struct rps_pool_block *
find(struct rps_npu_pool *pool, const struct request *request)
{
    struct rps_pool_block *block;

    rps_pool_collect_locked(pool);
    if (request->arena->private != NULL) {
        rps_pool_follow_locked(pool, request->arena);
    }
    block = rps_pool_best_fit_locked(
            request->arena, request->small, request->bytes);
    if (block == NULL) {
        block = take_over_idle(pool, request);
    }
    if (block != NULL) {
        pool->stats.reused++;
    }
    return block;
}

static rps_status
find_or_take(struct rps_npu_pool *pool, const struct request *request,
        bool less, struct rps_pool_block **block_out, struct rps_error *error)
{
    *block_out = find(pool, request);
    if (*block_out != NULL) {
        return RPS_OK;
    }
    return rps_pool_take_locked(pool, request->arena, request->small,
            request->bytes, less, block_out, error);
}

/* Every segment that is not in use goes back, and what other threads are just
 * giving back is waited for. */
static void
make_room(struct rps_npu_pool *pool)
{
    trim_locked(pool);
    while (pool->giving > 0) {
        pthread_cond_wait(&pool->changed, &pool->lock);
    }
}

static rps_status
refuse(struct rps_npu_pool *pool, const struct request *request,
        struct rps_error *error)
{
    const struct rps_error driver = *error;
    rps_npu_pool_stats stats;
    char words[7][32];

    pool->stats.out_of_memory++;
    rps_pool_stats_locked(pool, &stats);
    return rps_fail(error, RPS_E_NOMEM,
            "no device memory for %s (%" PRIu64 " bytes): the pool has "
            "allocated %s (%" PRIu64 " blocks), active %s, held by compiled "
            "steps %s, reserved %s (%" PRIu64
            " segments), largest free block %s, fragmentation %.1f %%, peak "
            "allocated %s; the device: %.300s; ask for less, release tensors, "
            "or open the device with more memory",
            rps_format_bytes(request->requested, words[0]), request->requested,
            rps_format_bytes(stats.allocated.now, words[1]), stats.blocks.now,
            rps_format_bytes(stats.active.now, words[2]),
            rps_format_bytes(stats.held, words[3]),
            rps_format_bytes(stats.reserved.now, words[4]), stats.segments.now,
            rps_format_bytes(stats.largest_free, words[5]),
            100.0 * stats.fragmentation,
            rps_format_bytes(stats.allocated.peak, words[6]), driver.text);
}

/* Three tries: as it is; with all that is free given back, and a smaller
 * segment if need be; with all that waits for other streams given back, too. */
static rps_status
serve(struct rps_npu_pool *pool, const struct request *request,
        struct rps_pool_block **block_out, struct rps_error *error)
{
    rps_status status = find_or_take(pool, request, false, block_out, error);

    if (status == RPS_E_NOMEM) {
        make_room(pool);
        status = find_or_take(pool, request, true, block_out, error);
    }
    if (status == RPS_E_NOMEM) {
        rps_pool_settle_locked(pool);
        make_room(pool);
        status = find_or_take(pool, request, true, block_out, error);
    }
    return status == RPS_E_NOMEM ? refuse(pool, request, error) : status;
}

static rps_status
alloc_locked(struct rps_npu_pool *pool, struct request *request,
        rps_npu_stream *stream, struct rps_pool_private *private,
        void **address_out, struct rps_error *error)
{
    struct rps_pool_stream *entry = rps_pool_stream_locked(pool, stream);
    struct rps_pool_block *block;
    rps_status status;

    request->arena =
            entry != NULL ? rps_pool_arena_locked(pool, entry, private) : NULL;
    if (request->arena == NULL) {
        return rps_fail(
                error, RPS_E_NOMEM, "no memory on the host for the pool");
    }
    pool->stats.requests++;
    status = serve(pool, request, &block, error);
    if (status != RPS_OK) {
        return status;
    }
    /* of a step: who frees it after the capture may have given its stream more
     * work, which the step's end does not wait for */
    if (private != NULL &&
            !rps_pool_use_locked(pool, block, entry, RPS_POOL_NO_PLACE)) {
        return rps_fail(
                error, RPS_E_NOMEM, "no memory on the host for the pool");
    }
    rps_pool_cut_locked(pool, block, request->bytes, request->requested);
    rps_pool_add(&pool->stats.requested, request->requested);
    rps_pool_add(&pool->stats.allocated, block->bytes);
    rps_pool_add(&pool->stats.active, block->bytes);
    rps_pool_add(&pool->stats.blocks, 1);
    *address_out = (void *)(uintptr_t)block->address;
    return RPS_OK;
}

rps_status
rps_pool_alloc(struct rps_npu_pool *pool, rps_npu_stream *stream,
        struct rps_pool_private *private, uint64_t bytes, void **address_out,
        struct rps_error *error)
{
    struct request request = {.requested = bytes};
    rps_status status;

    *address_out = NULL;
    if (bytes == 0) {
        return rps_fail(error, RPS_E_INVAL, "0 bytes of device memory");
    }
    if (bytes > REQUEST_MAX) {
        return rps_fail(error, RPS_E_NOMEM,
                "no device has %" PRIu64 " bytes of memory", bytes);
    }
    request.bytes =
            (bytes + RPS_POOL_ALIGN - 1) / RPS_POOL_ALIGN * RPS_POOL_ALIGN;
    request.small = request.bytes <= RPS_POOL_SMALL_MAX;
    pthread_mutex_lock(&pool->lock);
    status = alloc_locked(pool, &request, stream, private, address_out, error);
    pthread_mutex_unlock(&pool->lock);
    return status;
}

/* The live block that begins there, or NULL. */
static struct rps_pool_block *
find_live(
        struct rps_npu_pool *pool, const void *address, struct rps_error *error)
{
    const uint64_t key = (uint64_t)(uintptr_t)address;
    struct rps_tree_node *node = rps_tree_at_least(pool->live, key, 0);

    if (node == NULL || node->first != key) {
        rps_fail(error, RPS_E_INVAL,
                "%p is not the start of a block of the pool that is in use "
                "(freed already, or no pool memory)",
                address);
        return NULL;
    }
    return (struct rps_pool_block *)(void *)node;
}

uint64_t
rps_pool_left(struct rps_npu_pool *pool, const void *address)
{
    const uint64_t at = (uint64_t)(uintptr_t)address;
    const struct rps_pool_block *block = NULL;
    uint64_t left = 0;

    pthread_mutex_lock(&pool->lock);
    block = (struct rps_pool_block *)(void *)rps_tree_at_most(
            pool->live, at, 0);
    if (block != NULL && at - block->address < block->requested) {
        left = block->requested - (at - block->address);
    }
    pthread_mutex_unlock(&pool->lock);
    return left;
}

static void
free_locked(struct rps_npu_pool *pool, struct rps_pool_block *block)
{
    rps_tree_remove(&pool->live, &block->node);
    block->owned = false;
    pool->stats.requested.now -= block->requested;
    pool->stats.allocated.now -= block->bytes;
    pool->stats.blocks.now--;
    rps_pool_wait_locked(pool, block);
}

rps_status
rps_pool_free(
        struct rps_npu_pool *pool, const void *address, struct rps_error *error)
{
    struct rps_pool_block *block;
    rps_status status = RPS_E_INVAL;

    pthread_mutex_lock(&pool->lock);
    block = find_live(pool, address, error);
    if (block != NULL && block->owned) {
        rps_fail(error, RPS_E_INVAL,
                "the block at %p belongs to a tensor: "
                "rps_npu_tensor_release() of its last view gives it back",
                address);
    } else if (block != NULL) {
        free_locked(pool, block);
        status = RPS_OK;
    }
    pthread_mutex_unlock(&pool->lock);
    return status;
}

void
rps_pool_own(struct rps_npu_pool *pool, const void *address)
{
    struct rps_error error;
    struct rps_pool_block *block;

    pthread_mutex_lock(&pool->lock);
    block = find_live(pool, address, &error);
    assert(block != NULL && !block->owned);
    block->owned = true;
    pthread_mutex_unlock(&pool->lock);
}

void
rps_pool_free_owned(struct rps_npu_pool *pool, const void *address)
{
    struct rps_error error;
    struct rps_pool_block *block;

    pthread_mutex_lock(&pool->lock);
    block = find_live(pool, address, &error);
    assert(block != NULL && block->owned);
    free_locked(pool, block);
    pthread_mutex_unlock(&pool->lock);
}

static rps_status
add_use(struct rps_npu_pool *pool, struct rps_pool_block *block,
        rps_npu_stream *stream, uint64_t place, struct rps_error *error)
{
    struct rps_pool_stream *entry = rps_pool_stream_locked(pool, stream);

    if (entry != NULL &&
            (block->segment->arena->stream == entry ||
                    rps_pool_use_locked(pool, block, entry, place))) {
        return RPS_OK;
    }
    return rps_fail(
            error, RPS_E_NOMEM, "no memory on the host to record a stream");
}

rps_status
rps_pool_record_stream(struct rps_npu_pool *pool, const void *address,
        rps_npu_stream *stream, uint64_t place, struct rps_error *error)
{
    struct rps_pool_block *block;
    rps_status status = RPS_E_INVAL;

    pthread_mutex_lock(&pool->lock);
    block = find_live(pool, address, error);
    if (block != NULL) {
        status = add_use(pool, block, stream, place, error);
    }
    pthread_mutex_unlock(&pool->lock);
    return status;
}
