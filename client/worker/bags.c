/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/bags.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void
rps_bags_work_finish(struct rps_bags_work *work)
{
    free(work->gradients);
    free(work->pooled);
    free(work->pooled_gradients);
    free(work->late);
    *work = (struct rps_bags_work){0};
}

float *
rps_bags_work_reserve(float **floats, size_t *capacity, size_t count)
{
    if (*floats == NULL || count > *capacity) {
        free(*floats);
        *capacity = count + count / 4 + 1;
        *floats = malloc(*capacity * sizeof(**floats));
    }
    return *floats;
}

/* How the profile calls them: after the table. */
static void
name_operators(struct rps_bags *bags)
{
    const enum rps_pooling pooling = bags->table.pooling;

    rps_operator_init(&bags->pool,
            pooling == RPS_POOLING_MEAN  ? "mean_pooling"
            : pooling == RPS_POOLING_SUM ? "sum_pooling"
                                         : "sqrtn_pooling",
            bags->table.name);
    rps_operator_init(&bags->spread,
            pooling == RPS_POOLING_MEAN  ? "mean_pooling_backward"
            : pooling == RPS_POOLING_SUM ? "sum_pooling_backward"
                                         : "sqrtn_pooling_backward",
            bags->table.name);
}

/* Rows in, bags out, or the other way. */
static uint64_t
moved_bytes(const struct rps_bags *bags)
{
    return (uint64_t)(bags->key_count + bags->bag_count) * bags->table.dim *
           sizeof(float);
}

void
rps_bags_init(struct rps_bags *bags, const struct rps_model_table *table,
        struct rps_bags_work *work)
{
    memset(bags, 0, sizeof(*bags));
    bags->table = *table;
    bags->work = work;
    name_operators(bags);
    bags->in_order = true;
    for (uint32_t i = 0; i < table->bag_starts[table->bags]; i++) {
        bags->in_order =
                bags->in_order && table->fields[i] == table->fields[0] + i;
    }
}

static void
keys_free(struct rps_bags *bags)
{
    free(bags->keys);
    free(bags->rows);
    bags->keys = NULL;
    bags->rows = NULL;
    bags->key_capacity = 0;
}

static void
bags_free(struct rps_bags *bags)
{
    free(bags->offsets);
    bags->offsets = NULL;
    bags->bag_capacity = 0;
}

void
rps_bags_finish(struct rps_bags *bags)
{
    keys_free(bags);
    bags_free(bags);
}

static bool
reserve_bags(struct rps_bags *bags, size_t count)
{
    if (count <= bags->bag_capacity && bags->offsets != NULL) {
        return true;
    }
    bags_free(bags);
    bags->offsets = calloc(count + 1, sizeof(*bags->offsets));
    bags->bag_capacity = count;
    return bags->offsets != NULL;
}

static bool
reserve_keys(struct rps_bags *bags, size_t count)
{
    const size_t dim = bags->table.dim;

    if (count <= bags->key_capacity && bags->keys != NULL) {
        return true;
    }
    keys_free(bags);
    count += count / 4 + 1;
    bags->keys = calloc(count, sizeof(*bags->keys));
    bags->rows = calloc(count * dim, sizeof(float));
    bags->key_capacity = count;
    return bags->keys != NULL && bags->rows != NULL;
}

static size_t
count_keys(const struct rps_bags *bags, const struct rps_batch *batch)
{
    const struct rps_model_table *table = &bags->table;
    const uint32_t field_count = table->bag_starts[table->bags];
    size_t count = 0;

    for (size_t r = 0; r < batch->rows; r++) {
        const uint32_t *at = batch->offsets + r * batch->shape.fields;

        if (bags->in_order) {
            at += table->fields[0];
            count += at[field_count] - at[0];
            continue;
        }
        for (uint32_t i = 0; i < field_count; i++) {
            const uint32_t field = table->fields[i];

            count += at[field + 1] - at[field];
        }
    }
    return count;
}

/* A row whose bags' keys stand side by side. Returns where they end. */
static size_t
take_row(struct rps_bags *bags, const struct rps_batch *batch, size_t row,
        size_t n)
{
    const struct rps_model_table *table = &bags->table;
    const uint32_t *at =
            batch->offsets + row * batch->shape.fields + table->fields[0];
    uint32_t *offset = bags->offsets + row * table->bags;
    const uint32_t first = at[0], base = (uint32_t)n - first;
    uint32_t begin = first;

    for (uint32_t b = 1; b <= table->bags; b++) {
        const uint32_t end = at[table->bag_starts[b]];

        bags->one_each = bags->one_each && end - begin == 1;
        bags->divides = bags->divides || end - begin > 1;
        offset[b] = base + end;
        begin = end;
    }
    memcpy(bags->keys + n, batch->keys + first,
            (begin - first) * sizeof(*bags->keys));
    return n + (begin - first);
}

/* The keys of one bag, from place n on. Returns where they end. */
static size_t
take_bag(struct rps_bags *bags, const struct rps_batch *batch, size_t row,
        uint32_t bag, size_t n)
{
    const struct rps_model_table *table = &bags->table;
    const uint32_t *at = batch->offsets + row * batch->shape.fields;

    for (uint32_t i = table->bag_starts[bag]; i < table->bag_starts[bag + 1];
            i++) {
        const uint32_t field = table->fields[i];

        for (uint32_t k = at[field]; k < at[field + 1]; k++) {
            bags->keys[n++] = batch->keys[k];
        }
    }
    return n;
}

/* A row's keys from place n on, bag by bag. Returns where they end. */
static size_t
take_bags(struct rps_bags *bags, const struct rps_batch *batch, size_t row,
        size_t n)
{
    uint32_t *offset = bags->offsets + row * bags->table.bags;

    for (uint32_t b = 0; b < bags->table.bags; b++) {
        const size_t end = take_bag(bags, batch, row, b, n);

        bags->one_each = bags->one_each && end - n == 1;
        bags->divides = bags->divides || end - n > 1;
        offset[b + 1] = (uint32_t)end;
        n = end;
    }
    return n;
}

rps_status
rps_bags_take(struct rps_bags *bags, const struct rps_batch *batch,
        struct rps_error *error)
{
    const struct rps_model_table *table = &bags->table;
    size_t n = 0;

    bags->bag_count = batch->rows * table->bags;
    bags->key_count = count_keys(bags, batch);
    bags->one_each = bags->key_count == bags->bag_count;
    bags->divides = false;
    if (!reserve_bags(bags, bags->bag_count) ||
            !reserve_keys(bags, bags->key_count)) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for a batch's keys");
    }
    bags->offsets[0] = 0;
    for (size_t r = 0; r < batch->rows; r++) {
        n = bags->in_order ? take_row(bags, batch, r, n)
                           : take_bags(bags, batch, r, n);
    }
    bags->divides = bags->divides && table->pooling != RPS_POOLING_SUM;
    return RPS_OK;
}

/* What a bag of n > 0 keys is divided by. */
static float
divisor(const struct rps_bags *bags, uint32_t n)
{
    return bags->table.pooling == RPS_POOLING_MEAN ? (float)n : sqrtf((float)n);
}

/* Divide each bag's row by what its number of keys asks. */
static void
divide_bags(const struct rps_bags *bags, float *rows)
{
    const size_t dim = bags->table.dim;

    for (size_t b = 0; b < bags->bag_count; b++) {
        const uint32_t n = bags->offsets[b + 1] - bags->offsets[b];
        const float by = n > 1 ? divisor(bags, n) : 1.0f;

        for (size_t k = 0; n > 1 && k < dim; k++) {
            rows[b * dim + k] /= by;
        }
    }
}

static bool
reserve_pooled(struct rps_bags *bags)
{
    struct rps_bags_work *work = bags->work;
    const size_t floats = bags->bag_count * bags->table.dim;

    return rps_bags_work_reserve(&work->pooled_gradients,
                   &work->pooled_gradients_capacity, floats) != NULL &&
           (bags->one_each || rps_bags_work_reserve(&work->pooled,
                                      &work->pooled_capacity, floats) != NULL);
}

rps_status
rps_bags_prepare(struct rps_bags *bags, bool pools, struct rps_error *error)
{
    struct rps_bags_work *work = bags->work;
    bool good = !pools || reserve_pooled(bags);

    if (!bags->one_each) {
        good = good && rps_bags_work_reserve(&work->gradients,
                               &work->gradients_capacity,
                               bags->key_count * bags->table.dim) != NULL;
    }
    return good ? RPS_OK
                : rps_fail(error, RPS_E_NOMEM, "no memory for a batch's rows");
}

static void
pool(struct rps_bags *bags, float *pooled)
{
    const size_t dim = bags->table.dim;

    memset(pooled, 0, bags->bag_count * dim * sizeof(float));
    for (size_t b = 0; b < bags->bag_count; b++) {
        float *sum = pooled + b * dim;

        for (size_t i = bags->offsets[b]; i < bags->offsets[b + 1]; i++) {
            const float *row = bags->rows + i * dim;

            for (size_t k = 0; k < dim; k++) {
                sum[k] += row[k];
            }
        }
    }
    if (bags->divides) {
        divide_bags(bags, pooled);
    }
}

const float *
rps_bags_pool(struct rps_bags *bags)
{
    const uint64_t begun = rps_operator_begin(&bags->pool);

    if (bags->one_each) {
        return bags->rows;
    }
    pool(bags, bags->work->pooled);
    bags->pool.bytes = moved_bytes(bags);
    rps_operator_end(&bags->pool, begun);
    return bags->work->pooled;
}

float *
rps_bags_gradient(struct rps_bags *bags)
{
    return bags->work->pooled_gradients;
}

static void
spread(struct rps_bags *bags, float *pooled_gradients)
{
    float *gradients = bags->work->gradients;
    const size_t dim = bags->table.dim;

    if (bags->divides) {
        divide_bags(bags, pooled_gradients);
    }
    for (size_t b = 0; b < bags->bag_count; b++) {
        const float *gradient = pooled_gradients + b * dim;

        for (size_t i = bags->offsets[b]; i < bags->offsets[b + 1]; i++) {
            memcpy(gradients + i * dim, gradient, dim * sizeof(float));
        }
    }
}

const float *
rps_bags_spread(struct rps_bags *bags, float *pooled_gradients)
{
    const uint64_t begun = rps_operator_begin(&bags->spread);

    if (bags->one_each) {
        return pooled_gradients;
    }
    spread(bags, pooled_gradients);
    bags->spread.bytes = moved_bytes(bags);
    rps_operator_end(&bags->spread, begun);
    return bags->work->gradients;
}
