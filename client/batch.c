/* SPDX-License-Identifier: Apache-2.0 */
#include "client/batch.h"

#include <math.h>
#include <string.h>

#define FLAGS_KNOWN (RPS_READ_ONLY | RPS_PADDED | RPS_POOL_ON_SERVER)

static rps_status
check_offsets(const struct rps_batch *batch, const char *what, size_t index)
{
    size_t bag;

    if (batch->offsets[0] != 0 ||
            batch->offsets[batch->bag_count] != batch->key_count) {
        return rps_client_fail(RPS_E_INVAL,
                "%s[%zu].offsets: the first is %u and the last %u, must be 0 "
                "and key_count (%zu)",
                what, index, batch->offsets[0],
                batch->offsets[batch->bag_count], batch->key_count);
    }
    for (bag = 0; bag < batch->bag_count; bag++) {
        if (batch->offsets[bag] > batch->offsets[bag + 1]) {
            return rps_client_fail(RPS_E_INVAL,
                    "%s[%zu].offsets[%zu] = %u is above the next, %u", what,
                    index, bag, batch->offsets[bag], batch->offsets[bag + 1]);
        }
    }
    return RPS_OK;
}

static rps_status
check_bags(const struct rps_batch *batch, const char *what, size_t index)
{
    bool pooled = batch->pooling == RPS_POOLING_SUM ||
                  batch->pooling == RPS_POOLING_MEAN ||
                  batch->pooling == RPS_POOLING_SQRTN;

    if (!pooled && batch->pooling != RPS_POOLING_NONE) {
        return rps_client_fail(RPS_E_INVAL, "%s[%zu].pooling: unknown (%d)",
                what, index, (int)batch->pooling);
    }
    if (pooled != (batch->offsets != NULL)) {
        return rps_client_fail(RPS_E_INVAL,
                "%s[%zu].pooling: %s (offsets say where bags are, pooling "
                "how a bag becomes a row; both or none)",
                what, index,
                pooled ? "set, but offsets is NULL" : "none, with offsets");
    }
    return pooled ? check_offsets(batch, what, index) : RPS_OK;
}

static rps_status
check_shape(struct rps_batch *batch, const char *what, size_t index)
{
    size_t row_bytes = (size_t)batch->table->spec.dim * sizeof(float);
    size_t rows = batch->offsets != NULL ? batch->bag_count : batch->key_count;

    if (batch->value != RPS_VALUE_F32) {
        return rps_client_fail(RPS_E_UNSUPPORTED,
                "%s[%zu].value: only RPS_VALUE_F32 is built", what, index);
    }
    if ((unsigned)batch->wire > RPS_VALUE_I8) {
        return rps_client_fail(RPS_E_INVAL,
                "%s[%zu].wire: no such value type (%d)", what, index,
                (int)batch->wire);
    }
    if (batch->stride == 0) {
        batch->stride = row_bytes;
    }
    if (batch->stride < row_bytes || batch->stride % sizeof(float) != 0) {
        return rps_client_fail(RPS_E_INVAL,
                "%s[%zu]: a stride of %zu bytes; must hold a row of %s, %zu "
                "bytes, and be a multiple of 4",
                what, index, batch->stride, batch->table->spec.name, row_bytes);
    }
    if (batch->key_count > 0 && batch->keys == NULL) {
        return rps_client_fail(
                RPS_E_INVAL, "%s[%zu].keys is NULL", what, index);
    }
    if (rows > 0 && batch->array == NULL) {
        return rps_client_fail(RPS_E_INVAL, "%s[%zu].%s is NULL", what, index,
                strcmp(what, "pushes") == 0 ? "gradients" : "rows");
    }
    return RPS_OK;
}

rps_status
rps_batch_check(const rps_client *client, struct rps_batch *batch,
        const char *what, size_t index)
{
    rps_status status;

    if (batch->table == NULL || batch->table->client != client) {
        return rps_client_fail(RPS_E_INVAL, "%s[%zu].table: %s", what, index,
                batch->table == NULL ? "is NULL" : "is of another client");
    }
    if (batch->table->retired) {
        return rps_client_fail(RPS_E_NOT_FOUND,
                "%s[%zu].table: %s was dropped; open it again", what, index,
                batch->table->spec.name);
    }
    if ((batch->flags & ~FLAGS_KNOWN) != 0) {
        return rps_client_fail(RPS_E_INVAL, "%s[%zu].flags: unknown bits 0x%x",
                what, index, batch->flags & ~FLAGS_KNOWN);
    }
    if (batch->key_count > RPS_DEDUP_KEYS_MAX) {
        return rps_client_fail(RPS_E_LIMIT,
                "%s[%zu].key_count: %zu, at most %u in one call", what, index,
                batch->key_count, RPS_DEDUP_KEYS_MAX);
    }
    status = check_bags(batch, what, index);
    return status == RPS_OK ? check_shape(batch, what, index) : status;
}

rps_status
rps_batch_dedup(const rps_client *client, const struct rps_batch *batch,
        struct rps_dedup *dedup)
{
    bool padded = (batch->flags & RPS_PADDED) != 0;

    if (rps_dedup_init(dedup, batch->keys, batch->key_count,
                padded ? &batch->padding_key : NULL, &client->route,
                client->job_seed) != RPS_OK) {
        return rps_client_nomem();
    }
    return RPS_OK;
}

/* Keys of the bag that count. */
static uint32_t
bag_size(const struct rps_batch *batch, const struct rps_dedup *dedup,
        size_t bag)
{
    uint32_t n = 0;
    uint32_t i;

    for (i = batch->offsets[bag]; i < batch->offsets[bag + 1]; i++) {
        n += dedup->index[i] != RPS_DEDUP_PADDING;
    }
    return n;
}

static float
divisor(enum rps_pooling pooling, uint32_t n)
{
    switch (pooling) {
    case RPS_POOLING_MEAN:
        return (float)n;
    case RPS_POOLING_SQRTN:
        return sqrtf((float)n);
    default:
        return 1.0f;
    }
}

void
rps_batch_add(float *into, const float *row, uint32_t dim, bool is_first)
{
    uint32_t i;

    if (is_first) {
        memcpy(into, row, dim * sizeof(float)); /* keeps -0.0 */
        return;
    }
    for (i = 0; i < dim; i++) {
        into[i] += row[i];
    }
}

static void
divide(float *row, uint32_t dim, float by)
{
    uint32_t i;

    if (by != 1.0f) {
        for (i = 0; i < dim; i++) {
            row[i] /= by;
        }
    }
}

void
rps_batch_divide(float *row, uint32_t dim, enum rps_pooling pooling, uint32_t n)
{
    divide(row, dim, divisor(pooling, n));
}

void
rps_batch_pool(const struct rps_batch *batch, const struct rps_dedup *dedup,
        const float *distinct, void *rows)
{
    uint32_t dim = batch->table->spec.dim;
    size_t bag;

    for (bag = 0; bag < batch->bag_count; bag++) {
        float *row = (float *)(void *)((char *)rows + bag * batch->stride);
        uint32_t n = 0;
        uint32_t i;

        memset(row, 0, dim * sizeof(float));
        for (i = batch->offsets[bag]; i < batch->offsets[bag + 1]; i++) {
            uint32_t index = dedup->index[i];

            if (index != RPS_DEDUP_PADDING) {
                rps_batch_add(row, distinct + (size_t)index * dim, dim, n == 0);
                n++;
            }
        }
        if (n > 0) {
            rps_batch_divide(row, dim, batch->pooling, n);
        }
    }
}

/* Into the sum of the key at this position. */
static void
sum_at(const struct rps_batch *batch, const struct rps_dedup *dedup,
        size_t position, const float *gradient, float *sums)
{
    uint32_t index = dedup->index[position];
    uint32_t dim = batch->table->spec.dim;

    if (index != RPS_DEDUP_PADDING) {
        rps_batch_add(sums + (size_t)index * dim, gradient, dim,
                dedup->first[index] == position);
    }
}

/* The key at this position is padding, or single. */
static bool
has_no_sum(const struct rps_batch *batch, const struct rps_dedup *dedup,
        size_t position)
{
    const uint32_t index = dedup->index[position];

    return index == RPS_DEDUP_PADDING ||
           rps_batch_is_single(batch, dedup, index);
}

void
rps_batch_sum(const struct rps_batch *batch, const struct rps_dedup *dedup,
        const void *gradients, float *sums)
{
    uint32_t dim = batch->table->spec.dim;
    float scaled[RPS_DIM_MAX];
    size_t row;
    size_t rows = batch->offsets != NULL ? batch->bag_count : batch->key_count;

    for (row = 0; row < rows; row++) {
        uint32_t i;

        if (batch->offsets == NULL && has_no_sum(batch, dedup, row)) {
            continue;
        }
        /* the caller's stride need not keep floats aligned */
        memcpy(scaled, (const char *)gradients + row * batch->stride,
                dim * sizeof(float));
        if (batch->offsets == NULL) {
            sum_at(batch, dedup, row, scaled, sums);
            continue;
        }
        divide(scaled, dim,
                divisor(batch->pooling, bag_size(batch, dedup, row)));
        for (i = batch->offsets[row]; i < batch->offsets[row + 1]; i++) {
            sum_at(batch, dedup, i, scaled, sums);
        }
    }
}
