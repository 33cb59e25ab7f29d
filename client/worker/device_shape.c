/* SPDX-License-Identifier: Apache-2.0 */
/* What a training step is compiled for; pure. */
#include "client/worker/device_impl.h"

#include <assert.h>
#include <string.h>

bool
rps_device_shape_fits(const struct rps_device_shape *shape,
        const struct rps_model *model, const struct rps_turn *turn)
{
    bool fits = shape->rows == turn->batch.rows;

    for (uint32_t t = 0; t < model->table_count; t++) {
        fits = fits && turn->bags[t].key_count <= shape->tokens[t] &&
               turn->slots[t].count <= shape->distinct[t];
    }
    return fits;
}

const char *
rps_device_shape_lacks(const struct rps_device_shape *shape,
        const struct rps_model *model, const struct rps_turn *turn)
{
    if (turn->batch.rows != shape->rows) {
        return "or fewer rows";
    }
    for (uint32_t t = 0; t < model->table_count; t++) {
        if (turn->bags[t].key_count > shape->tokens[t]) {
            return "tokens";
        }
    }
    return "distinct keys";
}

/* A quarter more than there is, so that most batches fit; but not more than
 * there can be. */
static uint64_t
capacity(uint64_t now, uint64_t count, uint64_t max)
{
    uint64_t wanted = (count + count / 4 + 63) / 64 * 64;

    wanted = wanted < max ? wanted : max;
    wanted = wanted > 0 ? wanted : 1;
    return wanted > now ? wanted : now;
}

static uint64_t
place(uint64_t *end, uint64_t bytes)
{
    const uint64_t at = *end;

    *end = rps_device_align(at + bytes);
    return at;
}

/* Where a table's rows come from in `in`. */
static void
lay_out_rows(struct rps_device_shape *shape,
        const struct rps_model_table *table, uint32_t t, uint64_t *in)
{
    if (!shape->cached) {
        shape->rows_at[t] =
                place(in, shape->distinct[t] * table->dim * sizeof(float));
        return;
    }
    shape->header_at[t] = place(in, 2 * sizeof(int32_t));
    shape->places_at[t] = place(in, shape->distinct[t] * sizeof(int32_t));
    shape->slots_at[t] = place(in, shape->tokens[t] * sizeof(int32_t));
    shape->packed_floats += shape->distinct[t] * table->dim;
}

static void
lay_out(struct rps_device_shape *shape, const struct rps_model *model)
{
    const uint64_t rows = shape->rows;
    uint64_t set = 0, in = 0, out = 0;

    (void)place(&set, rows * model->shape.dense * sizeof(float));
    shape->labels_at = place(&set, rows * model->labels * sizeof(float));
    (void)place(&in, 4 * sizeof(double));
    (void)place(&out, sizeof(double));
    shape->packed_floats = 0;
    for (uint32_t t = 0; t < model->table_count; t++) {
        const struct rps_model_table *table = &model->tables[t];

        shape->starts_at[t] =
                place(&set, (rows * table->bags + 1) * sizeof(int32_t));
        if (!shape->cached) {
            shape->slots_at[t] =
                    place(&set, shape->tokens[t] * sizeof(int32_t));
        }
        lay_out_rows(shape, table, t, &in);
        shape->gradients_at[t] = place(
                &out, rows * rps_model_pooled_floats(table) * sizeof(float));
    }
    shape->set_bytes = set;
    shape->in_bytes = in;
    shape->out_bytes = out;
}

void
rps_device_shape_grow(struct rps_device_shape *shape,
        const struct rps_model *model, const struct rps_turn *turn)
{
    shape->rows = turn->batch.rows;
    for (uint32_t t = 0; t < model->table_count; t++) {
        const struct rps_bags *bags = &turn->bags[t];

        /* a key a bag: so it is in every batch, as a rule */
        shape->tokens[t] = capacity(shape->tokens[t], bags->key_count,
                bags->one_each ? bags->key_count : UINT64_MAX);
        shape->distinct[t] = capacity(
                shape->distinct[t], turn->slots[t].count, shape->tokens[t]);
    }
    lay_out(shape, model);
}

void
rps_device_shape_pack(const struct rps_device_shape *shape,
        const struct rps_model *model, const struct rps_turn *turn, char *set)
{
    const struct rps_batch *batch = &turn->batch;

    assert(rps_device_shape_fits(shape, model, turn));
    if (model->shape.dense > 0) {
        memcpy(set, batch->dense,
                batch->rows * model->shape.dense * sizeof(float));
    }
    memcpy(set + shape->labels_at, batch->labels,
            batch->rows * model->labels * sizeof(float));
    for (uint32_t t = 0; t < model->table_count; t++) {
        const struct rps_bags *bags = &turn->bags[t];

        memcpy(set + shape->starts_at[t], bags->offsets,
                (bags->bag_count + 1) * sizeof(int32_t));
        if (!shape->cached) {
            memcpy(set + shape->slots_at[t], turn->slots[t].slots,
                    bags->key_count * sizeof(int32_t));
        }
    }
}
