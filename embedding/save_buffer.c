/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the blocks of rows that a cut kept. */
#include "embedding/save_buffer.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SPARE_MIN    8u  /* blocks that are kept for the next rows */
#define READY_BLOCKS 16u /* of a slice */

struct list {
    struct rps_kept_block *first, *last;
    size_t row_bytes;
};

struct rps_save_buffer {
    struct rps_budget *budget; /* NULL: none */
    /* read before the lock is taken: a cut begins while nobody changes rows,
     * so that relaxed shows it to who does later */
    _Atomic bool open;
    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t space;
    struct list *lists; /* [list_count] */
    size_t list_count;
    struct rps_spare_blocks spare;
    bool served;
    rps_status state;
    uint64_t reserved;
    uint32_t waiting;
    struct rps_save_figures figures;
};

struct rps_save_buffer *
rps_save_buffer_create(void)
{
    struct rps_save_buffer *buffer = calloc(1, sizeof(*buffer));

    if (buffer == NULL) {
        return NULL;
    }
    if (pthread_mutex_init(&buffer->lock, NULL) != 0) {
        free(buffer);
        return NULL;
    }
    if (pthread_cond_init(&buffer->space, NULL) != 0) {
        pthread_mutex_destroy(&buffer->lock);
        free(buffer);
        return NULL;
    }
    return buffer;
}

void
rps_save_buffer_set_budget(
        struct rps_save_buffer *buffer, struct rps_budget *budget)
{
    buffer->budget = budget;
}

void
rps_save_buffer_destroy(struct rps_save_buffer *buffer)
{
    if (buffer == NULL) {
        return;
    }
    buffer->spare.wanted = 0;
    rps_save_buffer_close(buffer);
    pthread_cond_destroy(&buffer->space);
    pthread_mutex_destroy(&buffer->lock);
    free(buffer);
}

rps_status
rps_save_buffer_open(struct rps_save_buffer *buffer, uint64_t limit,
        const size_t *row_bytes, size_t count)
{
    struct list *lists = calloc(count + 1, sizeof(*lists));

    if (lists == NULL) {
        return RPS_E_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        lists[i].row_bytes = row_bytes[i];
    }
    pthread_mutex_lock(&buffer->lock);
    assert(buffer->lists == NULL);
    buffer->lists = lists;
    buffer->list_count = count;
    buffer->served = false;
    buffer->state = RPS_OK;
    buffer->figures = (struct rps_save_figures){.limit = limit};
    atomic_store_explicit(&buffer->open, true, memory_order_relaxed);
    pthread_mutex_unlock(&buffer->lock);
    return RPS_OK;
}

/* Its memory is not the cut's any more. */
static void
give_room_locked(struct rps_save_buffer *buffer, size_t room)
{
    buffer->figures.used -= room;
    if (buffer->budget != NULL) {
        rps_budget_give(buffer->budget, room);
    }
    pthread_cond_broadcast(&buffer->space);
}

/* A few of them stay while a cut is at hand, in any case. */
static uint32_t
spare_max_locked(const struct rps_save_buffer *buffer)
{
    const uint32_t least = buffer->lists != NULL ? SPARE_MIN : 0;

    return buffer->spare.wanted > least ? buffer->spare.wanted : least;
}

/* Its rows are not needed any more. False: it is a spare block now; true: the
 * caller destroys it, without the lock, where others wait for it. */
static bool
let_go_locked(struct rps_save_buffer *buffer, struct rps_kept_block *block)
{
    const bool keeps = block->bytes != NULL &&
                       block->room == RPS_KEPT_BLOCK_BYTES &&
                       buffer->spare.count < spare_max_locked(buffer);

    if (block->bytes != NULL) {
        give_room_locked(buffer, block->room);
    }
    if (keeps) {
        rps_spare_blocks_add(&buffer->spare, block);
    }
    return !keeps;
}

static void
drop_all_locked(struct rps_save_buffer *buffer)
{
    for (size_t i = 0; i < buffer->list_count; i++) {
        struct list *list = &buffer->lists[i];
        while (list->first != NULL) {
            struct rps_kept_block *block = list->first;
            list->first = block->next;
            if (let_go_locked(buffer, block)) {
                rps_kept_block_destroy(block);
            }
        }
        list->last = NULL;
    }
}

/* Its writer may be reading blocks: they stay until it closes the buffer. */
static void
fail_locked(struct rps_save_buffer *buffer, rps_status status)
{
    if (buffer->state == RPS_OK) {
        buffer->state = status;
        pthread_cond_broadcast(&buffer->space);
    }
}

void
rps_save_buffer_close(struct rps_save_buffer *buffer)
{
    pthread_mutex_lock(&buffer->lock);
    atomic_store_explicit(&buffer->open, false, memory_order_relaxed);
    drop_all_locked(buffer);
    free(buffer->lists);
    buffer->lists = NULL;
    rps_spare_blocks_trim(&buffer->spare, spare_max_locked(buffer));
    buffer->list_count = 0;
    buffer->figures.limit = 0;
    pthread_cond_broadcast(&buffer->space);
    pthread_mutex_unlock(&buffer->lock);
}

void
rps_save_buffer_serve(struct rps_save_buffer *buffer)
{
    pthread_mutex_lock(&buffer->lock);
    buffer->served = true;
    pthread_mutex_unlock(&buffer->lock);
}

static bool
is_active_locked(const struct rps_save_buffer *buffer)
{
    return buffer->lists != NULL && buffer->state == RPS_OK;
}

/* One who asks for more than there is ever is served alone. */
static bool
has_room_locked(const struct rps_save_buffer *buffer, uint64_t bytes)
{
    const uint64_t taken = buffer->figures.used + buffer->reserved;

    return taken == 0 || taken + bytes <= buffer->figures.limit;
}

void
rps_save_buffer_reserve(struct rps_save_buffer *buffer, size_t list,
        size_t rows, uint64_t *bytes_out)
{
    bool waited = false;

    *bytes_out = 0;
    if (buffer == NULL ||
            !atomic_load_explicit(&buffer->open, memory_order_relaxed)) {
        return;
    }
    pthread_mutex_lock(&buffer->lock);
    while (is_active_locked(buffer)) {
        const uint64_t bytes =
                rows * rps_kept_stride(buffer->lists[list].row_bytes);
        if (has_room_locked(buffer, bytes)) {
            buffer->reserved += bytes;
            *bytes_out = bytes;
            break;
        }
        if (!buffer->served) {
            fail_locked(buffer, RPS_E_LIMIT);
            break;
        }
        buffer->figures.waits += !waited;
        waited = true;
        buffer->waiting++;
        pthread_cond_wait(&buffer->space, &buffer->lock);
        buffer->waiting--;
    }
    pthread_mutex_unlock(&buffer->lock);
}

void
rps_save_buffer_release(struct rps_save_buffer *buffer, uint64_t bytes)
{
    if (bytes > 0) {
        pthread_mutex_lock(&buffer->lock);
        buffer->reserved -= bytes;
        if (buffer->waiting > 0) {
            pthread_cond_broadcast(&buffer->space);
        }
        pthread_mutex_unlock(&buffer->lock);
    }
}

bool
rps_save_buffer_is_tight(struct rps_save_buffer *buffer)
{
    bool tight = false;

    if (buffer == NULL ||
            !atomic_load_explicit(&buffer->open, memory_order_relaxed)) {
        return false;
    }
    pthread_mutex_lock(&buffer->lock);
    tight = is_active_locked(buffer) &&
            buffer->figures.used > buffer->figures.limit / 4 * 3;
    pthread_mutex_unlock(&buffer->lock);
    return tight;
}

/* Empty; NULL: no memory. */
static struct rps_kept_block *
new_block_locked(struct rps_save_buffer *buffer, size_t room)
{
    struct rps_kept_block *block =
            room == RPS_KEPT_BLOCK_BYTES ? rps_spare_blocks_take(&buffer->spare)
                                         : NULL;

    return block != NULL ? block : rps_kept_block_create(room);
}

/* How many blocks a slice makes. */
static uint32_t
missing_locked(const struct rps_save_buffer *buffer)
{
    const uint32_t wanted = buffer->spare.wanted;
    const uint32_t have = buffer->spare.count;
    const uint32_t missing = have < wanted ? wanted - have : 0;

    return missing < READY_BLOCKS ? missing : READY_BLOCKS;
}

/* How many are to be made for it; with a cut at hand, none. */
static uint32_t
want(struct rps_save_buffer *buffer, uint64_t bytes)
{
    uint32_t missing = 0;

    pthread_mutex_lock(&buffer->lock);
    if (buffer->lists == NULL) {
        buffer->spare.wanted = (uint32_t)(bytes / RPS_KEPT_BLOCK_BYTES);
        rps_spare_blocks_trim(&buffer->spare, buffer->spare.wanted);
        missing = missing_locked(buffer);
    }
    pthread_mutex_unlock(&buffer->lock);
    return missing;
}

bool
rps_save_buffer_make_ready(struct rps_save_buffer *buffer, uint64_t bytes)
{
    struct rps_kept_block *blocks =
            rps_kept_blocks_create_written(want(buffer, bytes));
    bool more;

    if (blocks == NULL) {
        return false; /* as nearly always, or there is no memory */
    }
    pthread_mutex_lock(&buffer->lock);
    while (blocks != NULL) {
        struct rps_kept_block *block = blocks;
        blocks = block->next;
        rps_spare_blocks_add(&buffer->spare, block);
    }
    more = missing_locked(buffer) > 0;
    pthread_mutex_unlock(&buffer->lock);
    return more;
}

/* The block that a row of so many bytes goes to; NULL: no memory. */
static struct rps_kept_block *
open_block_locked(
        struct rps_save_buffer *buffer, struct list *list, size_t stride)
{
    struct rps_kept_block *block = list->last;

    if (block != NULL && block->bytes != NULL &&
            block->room - block->used >= stride) {
        return block;
    }
    block = new_block_locked(buffer,
            stride > RPS_KEPT_BLOCK_BYTES ? stride : RPS_KEPT_BLOCK_BYTES);
    if (block == NULL) {
        return NULL;
    }
    if (list->last == NULL) {
        list->first = block;
    } else {
        list->last->next = block;
    }
    list->last = block;
    buffer->figures.used += block->room;
    if (buffer->figures.used > buffer->figures.peak) {
        buffer->figures.peak = buffer->figures.used;
    }
    if (buffer->budget != NULL) {
        rps_budget_add(buffer->budget, block->room);
    }
    return block;
}

/* Who adds a row adds others soon; what it writes over is in nobody's cache. */
static void
ask_for_next(const struct rps_kept_block *block, size_t stride)
{
    const size_t left = block->room - block->used;
    const size_t n = stride < left ? stride : left;

    for (size_t at = 0; at < n; at += 64) {
        __builtin_prefetch(block->bytes + block->used + at, 1);
    }
}

void
rps_save_buffer_add(struct rps_save_buffer *buffer, size_t list_index,
        const struct rps_kept_row *kept, const void *row)
{
    struct rps_kept_block *block = NULL;
    struct list *list = NULL;

    pthread_mutex_lock(&buffer->lock);
    if (is_active_locked(buffer)) {
        list = &buffer->lists[list_index];
        block = open_block_locked(
                buffer, list, rps_kept_stride(list->row_bytes));
        if (block == NULL) {
            fail_locked(buffer, RPS_E_NOMEM);
        } else {
            char *to = block->bytes + block->used;
            memcpy(to, kept, sizeof(*kept));
            memcpy(to + sizeof(*kept), row, list->row_bytes);
            block->used += rps_kept_stride(list->row_bytes);
            buffer->figures.rows++;
            ask_for_next(block, rps_kept_stride(list->row_bytes));
        }
    }
    pthread_mutex_unlock(&buffer->lock);
}

rps_status
rps_save_buffer_state(struct rps_save_buffer *buffer)
{
    rps_status status;

    pthread_mutex_lock(&buffer->lock);
    status = buffer->state;
    pthread_mutex_unlock(&buffer->lock);
    return status;
}

struct rps_kept_block *
rps_save_buffer_take(
        struct rps_save_buffer *buffer, size_t list_index, bool all)
{
    struct rps_kept_block *block = NULL;

    pthread_mutex_lock(&buffer->lock);
    if (buffer->lists != NULL) {
        struct list *list = &buffer->lists[list_index];
        block = list->first;
        if (block != NULL && block->next == NULL && !all &&
                buffer->waiting == 0) {
            block = NULL; /* rows are still added to it */
        }
        if (block != NULL) {
            list->first = block->next;
            list->last = list->first == NULL ? NULL : list->last;
        }
    }
    pthread_mutex_unlock(&buffer->lock);
    return block;
}

void
rps_save_buffer_drop(
        struct rps_save_buffer *buffer, struct rps_kept_block *block)
{
    bool over;

    pthread_mutex_lock(&buffer->lock);
    over = let_go_locked(buffer, block);
    pthread_mutex_unlock(&buffer->lock);
    if (over) {
        rps_kept_block_destroy(block);
    }
}

/* The first block of the list in memory to which no row is added any more. */
static struct rps_kept_block *
full_block_locked(const struct list *list)
{
    struct rps_kept_block *block = list->first;

    while (block != NULL && (block->bytes == NULL || block->next == NULL)) {
        block = block->next;
    }
    return block;
}

/* NULL: it is not more than half full, or nothing can go. */
static struct rps_kept_block *
next_to_put_away(struct rps_save_buffer *buffer, size_t list)
{
    struct rps_kept_block *block = NULL;

    pthread_mutex_lock(&buffer->lock);
    if (is_active_locked(buffer) &&
            (buffer->waiting > 0 ||
                    buffer->figures.used > buffer->figures.limit / 2)) {
        for (size_t i = 0; block == NULL && i < buffer->list_count; i++) {
            block = i == list ? NULL : full_block_locked(&buffer->lists[i]);
        }
    }
    pthread_mutex_unlock(&buffer->lock);
    return block;
}

/* Only this thread takes blocks or drops them as long as the cut holds: the
 * block stays while put() reads it. */
rps_status
rps_save_buffer_put_away(struct rps_save_buffer *buffer, size_t list,
        rps_put_away_fn *put, void *context)
{
    struct rps_kept_block *block = NULL;
    rps_status status = RPS_OK;

    while (status == RPS_OK &&
            (block = next_to_put_away(buffer, list)) != NULL) {
        status = put(context, block->bytes, block->used, &block->offset);
        if (status == RPS_OK) {
            char *bytes = block->bytes;
            pthread_mutex_lock(&buffer->lock);
            buffer->figures.put_away += block->used;
            block->bytes = NULL;
            give_room_locked(buffer, block->room);
            pthread_mutex_unlock(&buffer->lock);
            free(bytes);
        }
    }
    return status;
}

void
rps_save_buffer_figures(
        struct rps_save_buffer *buffer, struct rps_save_figures *out)
{
    pthread_mutex_lock(&buffer->lock);
    *out = buffer->figures;
    out->ready = (uint64_t)buffer->spare.count * RPS_KEPT_BLOCK_BYTES;
    pthread_mutex_unlock(&buffer->lock);
}
