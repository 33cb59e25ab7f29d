/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/model.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

/* Keys of the table: row numbers for those that stay, */
#define HOT_DOUBLE UINT64_MAX   /* the hot row's double, */
#define PASSING    (1ull << 63) /* PASSING + place: for one call */

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
        size_t room, uint64_t rows, size_t hot_places, struct rps_error *error)
{
    *model = (struct bench_model){.dim = spec->dim,
            .room = room,
            .rows = rows,
            .hot_factor = (float)hot_places};
    model->replayed = calloc(rows > 0 ? rows : 1, sizeof(*model->replayed));
    model->keys = calloc(room, sizeof(*model->keys));
    model->left = calloc(room, sizeof(*model->left));
    model->todo = calloc(room, sizeof(*model->todo));
    model->chosen = calloc(room, sizeof(*model->chosen));
    model->gradients = calloc(room * spec->dim, sizeof(*model->gradients));
    if (model->replayed == NULL || model->keys == NULL || model->left == NULL ||
            model->todo == NULL || model->chosen == NULL ||
            model->gradients == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    return rps_table_create(&model->table, spec, 0, error);
}

void
bench_model_finish(struct bench_model *model)
{
    rps_table_destroy(model->table);
    free(model->replayed);
    free(model->keys);
    free(model->left);
    free(model->todo);
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

    model->pushed += n;
    return status == RPS_OK ? RPS_OK
                            : rps_fail(error, status, "the model's push");
}

static bool
is_hot(const struct bench_model *model, uint32_t row)
{
    return model->hot_factor > 0 && row == 0;
}

/* keys[i] and todo[i]; a row that is new to the table gets its start. A row
 * that stays and stands twice has its pushes at its first place. */
static rps_status
place(struct bench_model *model, const struct bench_past *past, size_t i,
        struct rps_error *error)
{
    const uint32_t row = past->rows[i];
    const uint32_t count = past->counts[i];
    const bool stays = past->keeps && count >= BENCH_KEPT_MIN &&
                       row < model->rows && !is_hot(model, row);
    const uint32_t done = stays ? model->replayed[row] : 0;

    model->keys[i] = stays ? row : PASSING + i;
    model->todo[i] = is_hot(model, row) ? 0 : count - done;
    if (stays) {
        model->replayed[row] = count;
    }
    return done > 0 ? RPS_OK
                    : rps_table_assign(model->table, 1, &model->keys[i],
                              past->starts + i * model->dim, NULL, NULL, error);
}

/* One push of each place that has some left; left[0 .. n - 1] become those
 * that still have. Returns their number. */
static size_t
push_round(struct bench_model *model, const struct bench_past *past, size_t n,
        rps_status *status, struct rps_error *error)
{
    size_t left = 0;

    for (size_t k = 0; k < n; k++) {
        const size_t i = model->left[k];
        model->chosen[k] = model->keys[i];
        bench_gradient(
                past->rows[i], model->dim, model->gradients + k * model->dim);
        model->todo[i]--;
        if (model->todo[i] > 0) {
            model->left[left++] = i;
        }
    }
    *status = push(model, n, error);
    return left;
}

static rps_status
replay(struct bench_model *model, const struct bench_past *past,
        struct rps_error *error)
{
    rps_status status = RPS_OK;
    size_t n = 0;

    for (size_t i = 0; i < past->n && status == RPS_OK; i++) {
        status = place(model, past, i, error);
        if (model->todo[i] > 0) {
            model->left[n++] = i;
        }
    }
    while (status == RPS_OK && n > 0) {
        n = push_round(model, past, n, &status, error);
    }
    return status;
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
    rps_status status = replay(model, past, error);

    if (status != RPS_OK) {
        return status;
    }
    rps_table_lookup(model->table, &read, wanted, model->dim * sizeof(*wanted));
    for (size_t i = 0; i < past->n && status == RPS_OK; i++) {
        if (is_hot(model, past->rows[i])) {
            status = advance_hot(model, past, i, wanted, error);
        }
    }
    return status;
}
