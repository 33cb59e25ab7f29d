/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/table/model.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#define HOT_DOUBLE UINT64_MAX /* key of the hot row's double */

const struct rps_update bench_update = {
        .step = 1, .t = 1, .learning_rate = 0x1p-8f, .scale = 1};

void
bench_gradient(uint64_t row, uint32_t dim, float *out)
{
    static const float values[] = {-1.0f, -0.5f, 0.5f, 1.0f};
    const uint64_t kind = row % BENCH_GRADIENT_CLASSES;

    for (uint32_t j = 0; j < dim; j++) {
        out[j] = values[rps_mix64(kind << 32 | j) % 4];
    }
}

rps_status
bench_model_init(struct bench_model *model, const rps_table_spec *spec,
        size_t room, size_t hot_places, struct rps_error *error)
{
    *model = (struct bench_model){
            .dim = spec->dim, .room = room, .hot_factor = (float)hot_places};
    model->keys = calloc(room, sizeof(*model->keys));
    model->chosen = calloc(room, sizeof(*model->chosen));
    model->gradients = calloc(room * spec->dim, sizeof(*model->gradients));
    if (model->keys == NULL || model->chosen == NULL ||
            model->gradients == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < room; i++) {
        model->keys[i] = i;
    }
    return rps_table_create(&model->table, spec, 0, error);
}

void
bench_model_finish(struct bench_model *model)
{
    rps_table_destroy(model->table);
    free(model->keys);
    free(model->chosen);
    free(model->gradients);
    *model = (struct bench_model){0};
}

static rps_status
push(struct bench_model *model, size_t n, struct rps_error *error)
{
    const struct rps_contribution contribution = {
            .count = n, .keys = model->chosen, .gradients = model->gradients};
    struct rps_apply_report report;
    const rps_status status = rps_table_apply(
            model->table, &bench_update, &contribution, 1, &report);

    return status == RPS_OK ? RPS_OK
                            : rps_fail(error, status, "the model's push");
}

/* One push more of each row that had so many. Returns their number. */
static size_t
choose(struct bench_model *model, const struct bench_past *past, uint32_t round)
{
    size_t n = 0;

    for (size_t i = 0; i < past->n; i++) {
        const bool hot = model->hot_factor > 0 && past->rows[i] == 0;
        if (past->counts[i] >= round && !hot) {
            model->chosen[n] = i;
            bench_gradient(past->rows[i], model->dim,
                    model->gradients + n * model->dim);
            n++;
        }
    }
    return n;
}

/* The hot row keeps its double: it may have taken many thousand pushes. */
static rps_status
advance_hot(struct bench_model *model, const struct bench_past *past, size_t at,
        float *wanted, struct rps_error *error)
{
    const struct rps_read read = {.count = 1, .keys = model->chosen};
    rps_status status = RPS_OK;

    model->chosen[0] = HOT_DOUBLE;
    bench_gradient(0, model->dim, model->gradients);
    for (uint32_t j = 0; j < model->dim; j++) {
        model->gradients[j] *= model->hot_factor;
    }
    if (model->hot_applied == 0) {
        status = rps_table_assign(model->table, 1, model->chosen,
                past->starts + at * model->dim, NULL, NULL, error);
    }
    while (status == RPS_OK && model->hot_applied < past->counts[at]) {
        status = push(model, 1, error);
        model->hot_applied++;
    }
    rps_table_lookup(model->table, &read, wanted + at * model->dim,
            model->dim * sizeof(float));
    return status;
}

rps_status
bench_model_expect(struct bench_model *model, const struct bench_past *past,
        float *wanted, struct rps_error *error)
{
    const struct rps_read read = {.count = past->n, .keys = model->keys};
    rps_status status = rps_table_assign(model->table, past->n, model->keys,
            past->starts, NULL, NULL, error);

    for (uint32_t round = 1; status == RPS_OK; round++) {
        const size_t n = choose(model, past, round);
        if (n == 0) {
            break;
        }
        status = push(model, n, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    rps_table_lookup(model->table, &read, wanted, model->dim * sizeof(*wanted));
    for (size_t i = 0; i < past->n && status == RPS_OK; i++) {
        if (model->hot_factor > 0 && past->rows[i] == 0) {
            status = advance_hot(model, past, i, wanted, error);
        }
    }
    return status;
}
