/* SPDX-License-Identifier: Apache-2.0 */
/* The pool's figures, for people and for programs. */
#include "base/json.h"
#include "base/text.h"
#include "client/npu/pool_impl.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

/* What has now, peak and total. */
static const struct {
    const char *name;
    size_t at;
    bool bytes;
} figures[] = {
        {"requested", offsetof(rps_npu_pool_stats, requested), true},
        {"allocated", offsetof(rps_npu_pool_stats, allocated), true},
        {"active", offsetof(rps_npu_pool_stats, active), true},
        {"reserved", offsetof(rps_npu_pool_stats, reserved), true},
        {"blocks", offsetof(rps_npu_pool_stats, blocks), false},
        {"segments", offsetof(rps_npu_pool_stats, segments), false},
};

static const struct {
    const char *name;
    const char *words;
    size_t at;
    bool bytes;
} numbers[] = {
        {"held", "held by compiled steps", offsetof(rps_npu_pool_stats, held),
                true},
        {"largest_free", "largest free block",
                offsetof(rps_npu_pool_stats, largest_free), true},
        {"requests", "requests", offsetof(rps_npu_pool_stats, requests), false},
        {"reused", "of them, without a new segment",
                offsetof(rps_npu_pool_stats, reused), false},
        {"trimmed", "segments given back",
                offsetof(rps_npu_pool_stats, trimmed), false},
        {"out_of_memory", "requests that failed",
                offsetof(rps_npu_pool_stats, out_of_memory), false},
};

#define FIGURES (sizeof(figures) / sizeof(figures[0]))
#define NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

void
rps_pool_add(rps_npu_figure *figure, uint64_t n)
{
    figure->now += n;
    figure->total += n;
    if (figure->now > figure->peak) {
        figure->peak = figure->now;
    }
}

static uint64_t
largest_free(const struct rps_pool_arena *arena)
{
    uint64_t bytes = 0;

    for (int small = 0; small < 2; small++) {
        const struct rps_tree_node *node =
                rps_tree_greatest(arena->free[small]);

        if (node != NULL && node->first > bytes) {
            bytes = node->first;
        }
    }
    return bytes;
}

void
rps_pool_stats_locked(struct rps_npu_pool *pool, rps_npu_pool_stats *stats)
{
    const struct rps_pool_arena *arena;
    uint64_t free_bytes;

    *stats = pool->stats;
    stats->largest_free = largest_free(&pool->idle);
    for (arena = pool->arenas; arena != NULL; arena = arena->next) {
        const uint64_t bytes = largest_free(arena);

        if (bytes > stats->largest_free) {
            stats->largest_free = bytes;
        }
    }
    free_bytes = stats->reserved.now - stats->active.now - stats->held;
    stats->fragmentation = free_bytes > 0 ? 1.0 - (double)stats->largest_free /
                                                            (double)free_bytes
                                          : 0.0;
}

void
rps_pool_read_stats(struct rps_npu_pool *pool, rps_npu_pool_stats *stats)
{
    pthread_mutex_lock(&pool->lock);
    rps_pool_collect_locked(pool);
    rps_pool_stats_locked(pool, stats);
    pthread_mutex_unlock(&pool->lock);
}

void
rps_pool_reset_peaks(struct rps_npu_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    for (size_t i = 0; i < FIGURES; i++) {
        rps_npu_figure *figure = (void *)((char *)&pool->stats + figures[i].at);

        figure->peak = figure->now;
    }
    pthread_mutex_unlock(&pool->lock);
}

static const rps_npu_figure *
figure_of(const rps_npu_pool_stats *stats, size_t i)
{
    return (const void *)((const char *)stats + figures[i].at);
}

static uint64_t
number_of(const rps_npu_pool_stats *stats, size_t i)
{
    const uint64_t *number =
            (const void *)((const char *)stats + numbers[i].at);

    return *number;
}

json_t *
rps_pool_stats_json(const rps_npu_pool_stats *stats)
{
    json_t *object = json_object();
    bool failed = object == NULL;

    for (size_t i = 0; i < FIGURES; i++) {
        const rps_npu_figure *figure = figure_of(stats, i);

        failed |= json_object_set_new(object, figures[i].name,
                json_pack("{sIsIsI}", "now", (json_int_t)figure->now, "peak",
                        (json_int_t)figure->peak, "total",
                        (json_int_t)figure->total));
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        failed |= json_object_set_new(object, numbers[i].name,
                json_integer((json_int_t)number_of(stats, i)));
    }
    failed |= json_object_set_new(
            object, "fragmentation", json_real(stats->fragmentation));
    if (failed) {
        json_decref(object);
        object = NULL;
    }
    return object;
}

static void
add_cell(struct rps_text *text, uint64_t value, bool bytes)
{
    char words[32];

    if (bytes) {
        rps_text_add(text, "%12s", rps_format_bytes(value, words));
    } else {
        rps_text_add(text, "%12" PRIu64, value);
    }
}

static char *
report_table(const rps_npu_pool_stats *stats, uint32_t id)
{
    struct rps_text text = {.bytes = NULL};

    rps_text_add(&text, "npu %-30" PRIu32 "%12s%12s%12s\n", id, "now", "peak",
            "total");
    for (size_t i = 0; i < FIGURES; i++) {
        const rps_npu_figure *figure = figure_of(stats, i);

        rps_text_add(&text, "%-34s", figures[i].name);
        add_cell(&text, figure->now, figures[i].bytes);
        add_cell(&text, figure->peak, figures[i].bytes);
        add_cell(&text, figure->total, figures[i].bytes);
        rps_text_add(&text, "\n");
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        rps_text_add(&text, "%-34s", numbers[i].words);
        add_cell(&text, number_of(stats, i), numbers[i].bytes);
        rps_text_add(&text, "\n");
    }
    rps_text_add(&text, "%-34s%10.1f %%\n", "fragmentation",
            100.0 * stats->fragmentation);
    if (text.failed) {
        rps_text_finish(&text);
    }
    return text.bytes;
}

static char *
report_json(const rps_npu_pool_stats *stats, uint32_t id)
{
    json_t *object = rps_pool_stats_json(stats);

    if (object == NULL || json_object_set_new(object, "device",
                                  json_integer((json_int_t)id)) != 0) {
        json_decref(object);
        return NULL;
    }
    return rps_json_text(object);
}

char *
rps_pool_report(const rps_npu_pool_stats *stats, uint32_t id,
        enum rps_npu_format format)
{
    return format == RPS_NPU_JSON ? report_json(stats, id)
                                  : report_table(stats, id);
}
