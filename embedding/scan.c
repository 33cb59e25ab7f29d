/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scanning keys in an order that nothing but the keys decides: by shard,
 * then by the hash turned so that what names the segment comes first, then
 * by key. So a scan that goes on behind the last key misses and repeats
 * nothing, whatever became of segments meanwhile. One segment is read at a
 * time: the least keys behind the cursor, in a heap whose top is the largest.
 */
#include "base/hash.h"
#include "embedding/table_impl.h"

#define HEAP_KEYS 1024u /* of a segment in one go: 24 KiB of stack */

struct item {
    uint64_t turned; /* the hash */
    uint64_t key;
    uint32_t meta;
};

struct heap {
    size_t count;
    size_t room; /* <= HEAP_KEYS */
    struct item items[HEAP_KEYS];
};

static uint64_t
turned(const struct rps_index *index, uint64_t hash)
{
    return hash << index->skip | hash >> (64 - index->skip);
}

static uint64_t
turned_back(const struct rps_index *index, uint64_t value)
{
    return value >> index->skip | value << (64 - index->skip);
}

static bool
less(const struct item *a, const struct item *b)
{
    return a->turned != b->turned ? a->turned < b->turned : a->key < b->key;
}

static void
swap(struct item *a, struct item *b)
{
    const struct item item = *a;

    *a = *b;
    *b = item;
}

static void
sift_up(struct heap *heap, size_t at)
{
    while (at > 0 && less(&heap->items[(at - 1) / 2], &heap->items[at])) {
        swap(&heap->items[(at - 1) / 2], &heap->items[at]);
        at = (at - 1) / 2;
    }
}

/* Of the first `count` items, the one at 0 may be too small. */
static void
sift_down(struct heap *heap, size_t count)
{
    size_t at = 0;

    for (;;) {
        size_t most = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2; child++) {
            if (child < count &&
                    less(&heap->items[most], &heap->items[child])) {
                most = child;
            }
        }
        if (most == at) {
            return;
        }
        swap(&heap->items[most], &heap->items[at]);
        at = most;
    }
}

static void
offer(struct heap *heap, const struct item *item)
{
    if (heap->count < heap->room) {
        heap->items[heap->count] = *item;
        sift_up(heap, heap->count);
        heap->count++;
    } else if (less(item, &heap->items[0])) {
        heap->items[0] = *item;
        sift_down(heap, heap->count);
    }
}

static void
sort(struct heap *heap)
{
    for (size_t count = heap->count; count > 1; count--) {
        swap(&heap->items[0], &heap->items[count - 1]);
        sift_down(heap, count - 1);
    }
}

static bool
is_behind(const struct rps_scan_cursor *cursor, const struct item *item)
{
    const struct item at = {.turned = cursor->hash, .key = cursor->key};

    return cursor->place % 2 == 0 ? item->turned >= cursor->hash
                                  : less(&at, item);
}

/* The cursor's segment; returns where the next one begins, 0: there is none. */
static uint64_t
read_segment_locked(const struct rps_index *index,
        const struct rps_scan_cursor *cursor, struct heap *heap)
{
    const struct rps_segment *segment =
            rps_index_segment(index, turned_back(index, cursor->hash));

    for (uint32_t i = 0; i < segment->line_count; i++) {
        const struct rps_index_line *line = &segment->lines[i];
        for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
            if (line->rows[lane] != 0) {
                const struct item item = {
                        .turned = turned(index, rps_key_hash(line->keys[lane],
                                                        index->job_seed)),
                        .key = line->keys[lane],
                        .meta = line->meta[lane]};
                if (is_behind(cursor, &item)) {
                    offer(heap, &item);
                }
            }
        }
    }
    return ((uint64_t)segment->first + 1) << (63 - segment->depth) << 1;
}

/* Take what is next of one segment and move the cursor. */
static void
scan_segment(struct rps_table *table, struct rps_scan_cursor *cursor,
        struct heap *heap)
{
    const uint64_t shard_index = cursor->place / 2;
    struct rps_shard *shard = &table->shards[shard_index];
    uint64_t end = 0;

    heap->count = 0;
    pthread_mutex_lock(&shard->lock);
    end = read_segment_locked(&shard->index, cursor, heap);
    pthread_mutex_unlock(&shard->lock);
    sort(heap);
    if (heap->count == heap->room) {
        const struct item *last = &heap->items[heap->count - 1];
        *cursor = (struct rps_scan_cursor){.place = shard_index * 2 + 1,
                .hash = last->turned,
                .key = last->key};
    } else {
        *cursor = (struct rps_scan_cursor){
                .place = (shard_index + (end == 0)) * 2, .hash = end};
    }
}

size_t
rps_table_scan(struct rps_table *table, struct rps_scan_cursor *cursor,
        size_t max, uint64_t *keys, uint32_t *meta)
{
    struct heap heap;
    size_t found = 0;

    while (found < max && cursor->place / 2 < table->shard_count) {
        heap.room = max - found < HEAP_KEYS ? max - found : HEAP_KEYS;
        scan_segment(table, cursor, &heap);
        for (size_t i = 0; i < heap.count; i++) {
            keys[found] = heap.items[i].key;
            if (meta != NULL) {
                meta[found] = heap.items[i].meta;
            }
            found++;
        }
    }
    return found;
}
