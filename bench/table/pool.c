/* SPDX-License-Identifier: Apache-2.0 */
/* The batches that a thread goes through, made before the clock starts. */
#include "bench/check.h"
#include "bench/model.h"
#include "bench/table/threads.h"

#include <stdlib.h>
#include <string.h>

/* As many keys as a fast thread takes in the time, within reason. */
static size_t
batches_for(const struct bench_table_args *args)
{
    const double keys = args->seconds * 3e7;
    const size_t wanted =
            keys < BENCH_POOL_KEYS_MAX ? (size_t)keys : BENCH_POOL_KEYS_MAX;
    const size_t batches = wanted / args->batch;

    return batches < 4 ? 4 : batches;
}

static rps_status
pool_init(struct bench_pool *pool, const struct bench_fixture *fixture)
{
    *pool = (struct bench_pool){.batch = fixture->args->batch,
            .batches = batches_for(fixture->args)};
    pool->rows = calloc(pool->batches * pool->batch, sizeof(*pool->rows));
    pool->keys = calloc(pool->batches * pool->batch, sizeof(*pool->keys));
    if (pool->rows == NULL || pool->keys == NULL) {
        return RPS_E_NOMEM;
    }
    return bench_batch_init(&pool->out, pool->batch, fixture->dim);
}

static void
fill_keys(struct bench_pool *pool, const struct bench_fixture *fixture)
{
    for (size_t i = 0; i < pool->batches * pool->batch; i++) {
        pool->keys[i] = bench_keyset_key(fixture->set, pool->rows[i]);
    }
}

static rps_status
fill_addresses(struct bench_pool *pool, const struct bench_fixture *fixture,
        uint64_t seed)
{
    const struct bench_arrays *arrays = &fixture->arrays;
    const size_t n = pool->batches * pool->batch;
    float *row = malloc(fixture->dim * sizeof(*row));

    pool->firsts = calloc(n, sizeof(*pool->firsts));
    pool->row_at = calloc(n, sizeof(*pool->row_at));
    pool->line_at = calloc(n, sizeof(*pool->line_at));
    if (row == NULL || pool->firsts == NULL || pool->row_at == NULL ||
            pool->line_at == NULL) {
        free(row);
        return RPS_E_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        const uint64_t line =
                rps_mix64(seed ^ rps_mix64(i)) % arrays->line_count;
        bench_pattern(
                fixture->spec.value_dtype, pool->keys[i], 1, &pool->firsts[i]);
        pool->row_at[i] = arrays->rows + pool->rows[i] * arrays->row_bytes;
        pool->line_at[i] = arrays->lines + line * BENCH_LINE_BYTES;
    }
    free(row);
    return RPS_OK;
}

rps_status
bench_pool_init_reads(struct bench_pool *pool,
        const struct bench_fixture *fixture, const struct bench_dist_spec *spec,
        uint64_t seed)
{
    struct bench_dist dist = {0};
    rps_status status = pool_init(pool, fixture);

    if (status == RPS_OK &&
            !bench_dist_init(&dist, spec, fixture->set, seed, pool->batch)) {
        status = RPS_E_NOMEM;
    }
    for (size_t i = 0; i < pool->batches && status == RPS_OK; i++) {
        bench_dist_draw(
                &dist, pool->batch, false, pool->rows + i * pool->batch);
    }
    if (status == RPS_OK) {
        fill_keys(pool, fixture);
        status = fill_addresses(pool, fixture, seed);
    }
    bench_dist_finish(&dist);
    return status;
}

/* The places of one gradient class in one batch. */
static void
draw_class(struct bench_pool *pool, struct bench_dist *dist, uint32_t *bases,
        size_t which, size_t class_index)
{
    uint32_t *rows = pool->rows + which * pool->batch;
    const size_t n = (pool->batch - class_index + BENCH_GRADIENT_CLASSES - 1) /
                     BENCH_GRADIENT_CLASSES;

    bench_dist_draw(dist, n, true, bases);
    for (size_t i = 0; i < n; i++) {
        const size_t at = i * BENCH_GRADIENT_CLASSES + class_index;
        rows[at] = bases[i] * BENCH_GRADIENT_CLASSES + (uint32_t)class_index;
    }
}

static void
draw_pushes(struct bench_pool *pool, const struct bench_fixture *fixture,
        struct bench_dist *dist, uint32_t *bases)
{
    const struct bench_dist hot = {.spec = fixture->args->dist};

    for (size_t which = 0; which < pool->batches; which++) {
        for (size_t c = 0; c < BENCH_GRADIENT_CLASSES && c < pool->batch; c++) {
            draw_class(pool, dist, bases, which, c);
        }
        for (size_t i = 0; i < pool->batch && pool->hot; i++) {
            if (bench_dist_is_hot(&hot, pool->batch, i)) {
                pool->rows[which * pool->batch + i] = 0;
            }
        }
    }
    for (size_t i = 0; i < pool->batch; i++) {
        bench_gradient(pool->rows[i], fixture->dim,
                pool->gradients + i * fixture->dim);
    }
}

rps_status
bench_pool_init_pushes(struct bench_pool *pool,
        const struct bench_fixture *fixture, bool hot, uint64_t seed)
{
    /* hot:0 is uniform without row 0 */
    const struct bench_dist_spec uniform = {.kind = BENCH_DIST_HOT};
    const struct bench_keyset bases_set = {
            .rows = fixture->set->rows / BENCH_GRADIENT_CLASSES};
    struct bench_dist dist = {0};
    uint32_t *bases = NULL;
    rps_status status = pool_init(pool, fixture);

    pool->hot = hot;
    pool->gradients =
            calloc(pool->batch * fixture->dim, sizeof(*pool->gradients));
    bases = calloc(pool->batch, sizeof(*bases));
    if (pool->gradients == NULL || bases == NULL ||
            !bench_dist_init(&dist, &uniform, &bases_set, seed, pool->batch)) {
        status = RPS_E_NOMEM;
    }
    if (status == RPS_OK) {
        draw_pushes(pool, fixture, &dist, bases);
        fill_keys(pool, fixture);
    }
    bench_dist_finish(&dist);
    free(bases);
    return status;
}

void
bench_pool_finish(struct bench_pool *pool)
{
    free(pool->rows);
    free(pool->keys);
    free(pool->firsts);
    free(pool->row_at);
    free(pool->line_at);
    free(pool->gradients);
    bench_batch_finish(&pool->out);
    *pool = (struct bench_pool){0};
}

void
bench_pool_count(const struct bench_pool *pool, uint32_t *counts)
{
    for (size_t which = 0; which < pool->batches; which++) {
        const uint64_t turns =
                (pool->pushed + pool->batches - 1 - which) / pool->batches;
        const uint32_t *rows = pool->rows + which * pool->batch;
        for (size_t i = 0; i < pool->batch; i++) {
            counts[rows[i]] += rows[i] == 0 ? 0 : (uint32_t)turns;
        }
    }
    counts[0] += pool->hot ? (uint32_t)pool->pushed : 0;
}
