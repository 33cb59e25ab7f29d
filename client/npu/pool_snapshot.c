/* SPDX-License-Identifier: Apache-2.0 */
/* Every segment and block of one moment. `recps npu memory` draws it
 * (docs/NPU.md has the form). */
#include "base/json.h"
#include "client/npu/pool_impl.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct listing {
    const struct rps_pool_segment **segments;
    size_t count;
};

static void
list_arena(struct listing *listing, const struct rps_pool_arena *arena)
{
    const struct rps_pool_segment *segment = arena->segments;

    for (; segment != NULL; segment = segment->after) {
        listing->segments[listing->count] = segment;
        listing->count++;
    }
}

static void
list_arenas(struct listing *listing, const struct rps_pool_arena *arena)
{
    for (; arena != NULL; arena = arena->next) {
        list_arena(listing, arena);
    }
}

static int
by_address(const void *a, const void *b)
{
    const struct rps_pool_segment *const *left = a;
    const struct rps_pool_segment *const *right = b;

    return ((*left)->address > (*right)->address) -
           ((*left)->address < (*right)->address);
}

static bool
list_segments(const struct rps_npu_pool *pool, struct listing *listing)
{
    const size_t most = (size_t)pool->stats.segments.now;
    const struct rps_pool_private *private;

    listing->count = 0;
    listing->segments = calloc(most + 1, sizeof(*listing->segments));
    if (listing->segments == NULL) {
        return false;
    }
    list_arenas(listing, pool->arenas);
    list_arena(listing, &pool->idle);
    for (private = pool->privates; private != NULL; private = private->next) {
        list_arenas(listing, private->arenas);
    }
    assert(listing->count == most);
    qsort(listing->segments, listing->count, sizeof(*listing->segments),
            by_address);
    return true;
}

static void
see_segment(const struct rps_pool_segment *segment,
        void (*see)(void *context, const struct rps_pool_seen *block),
        void *context)
{
    const struct rps_pool_arena *arena = segment->arena;
    struct rps_pool_seen seen = {
            .segment = segment->address,
            .segment_bytes = segment->bytes,
            .small = segment->small,
            .step = arena->private != NULL ? arena->private->number : 0,
            .stream = arena->stream != NULL ? arena->stream->name : NULL,
    };
    const struct rps_pool_block *block = segment->first;

    for (; block != NULL; block = block->after) {
        seen.address = block->address;
        seen.bytes = block->bytes;
        seen.requested = block->requested;
        seen.state = block->state;
        see(context, &seen);
    }
}

static bool
walk_locked(struct rps_npu_pool *pool,
        void (*see)(void *context, const struct rps_pool_seen *block),
        void *context)
{
    struct listing listing;

    if (!list_segments(pool, &listing)) {
        return false;
    }
    for (size_t i = 0; i < listing.count; i++) {
        see_segment(listing.segments[i], see, context);
    }
    free(listing.segments);
    return true;
}

bool
rps_pool_walk(struct rps_npu_pool *pool,
        void (*see)(void *context, const struct rps_pool_seen *block),
        void *context)
{
    bool seen;

    pthread_mutex_lock(&pool->lock);
    rps_pool_collect_locked(pool);
    seen = walk_locked(pool, see, context);
    pthread_mutex_unlock(&pool->lock);
    return seen;
}

/* --- as JSON -------------------------------------------------------------- */

struct drawing {
    json_t *segments; /* borrowed */
    json_t *blocks;   /* of the last segment; borrowed */
    uint64_t segment; /* its address */
    bool failed;
};

/* Addresses are text: they exceed what a double holds. */
static json_t *
address_value(uint64_t address)
{
    char text[32];

    snprintf(text, sizeof(text), "0x%" PRIx64, address);
    return json_string(text);
}

/* A new segment in the list; its blocks follow. */
static void
add_segment(struct drawing *drawing, const struct rps_pool_seen *seen)
{
    json_t *blocks = json_array();
    json_t *segment = json_pack("{sosIssss?sIsO}", "address",
            address_value(seen->segment), "bytes",
            (json_int_t)seen->segment_bytes, "pool",
            seen->small ? "small" : "large", "stream", seen->stream, "step",
            (json_int_t)seen->step, "blocks", blocks);

    json_decref(blocks); /* the segment's */
    drawing->segment = seen->segment;
    drawing->failed |= json_array_append_new(drawing->segments, segment) != 0;
    drawing->blocks = drawing->failed ? NULL : blocks;
}

static void
add_block(void *context, const struct rps_pool_seen *seen)
{
    static const char *const states[] = {
            [RPS_POOL_FREE] = "free",
            [RPS_POOL_LIVE] = "allocated",
            [RPS_POOL_WAITING] = "waiting",
    };
    struct drawing *drawing = context;

    if (drawing->blocks == NULL || drawing->segment != seen->segment) {
        add_segment(drawing, seen);
    }
    if (!drawing->failed) {
        drawing->failed |=
                json_array_append_new(drawing->blocks,
                        json_pack("{sosIsIss}", "address",
                                address_value(seen->address), "bytes",
                                (json_int_t)seen->bytes, "requested",
                                (json_int_t)seen->requested, "state",
                                states[seen->state])) != 0;
    }
}

char *
rps_pool_snapshot(
        struct rps_npu_pool *pool, uint32_t id, uint64_t capacity_bytes)
{
    json_t *segments = json_array();
    struct drawing drawing = {.segments = segments};
    rps_npu_pool_stats stats;
    json_t *object;

    drawing.failed = segments == NULL;
    pthread_mutex_lock(&pool->lock);
    rps_pool_collect_locked(pool);
    rps_pool_stats_locked(pool, &stats);
    drawing.failed |= !walk_locked(pool, add_block, &drawing);
    pthread_mutex_unlock(&pool->lock);
    object = json_pack("{sIsIsoso}", "device", (json_int_t)id, "capacity",
            (json_int_t)capacity_bytes, "statistics",
            rps_pool_stats_json(&stats), "segments", segments);
    if (drawing.failed) {
        json_decref(object);
        return NULL;
    }
    return object != NULL ? rps_json_text(object) : NULL;
}
