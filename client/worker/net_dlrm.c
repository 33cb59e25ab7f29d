/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlrm.c on a device. The vectors of all rows stand in one tensor
 * [rows][n][width]: the bottom MLP and the bags write into its slices, the
 * dots read it whole.
 */
#include "client/worker/net.h"

#include <string.h>

#define BOTTOM 0
#define TOP    1

struct dlrm {
    rps_npu_tensor vectors;   /* [rows][n][width] */
    rps_npu_tensor top_input; /* [rows][width + n (n - 1) / 2] */
    /* of tables with a projection: [rows][bags][dim] */
    rps_npu_tensor pooled[RPS_MODEL_TABLES_MAX];
    struct rps_net_tape bottom, top;
    uint32_t n, width, top_in;
};

static void
dlrm_init(struct rps_net *net)
{
    const struct rps_model *model = net->model;
    const struct rps_model_shape *shape = &model->shape;
    const uint32_t width = shape->bottom.widths[shape->bottom.count - 1];
    uint32_t n = 1, variable = 0;

    rps_net_mlp_init(net, &net->mlps[BOTTOM], "bot", shape->dense,
            &shape->bottom, true, &variable);
    for (uint32_t t = 0; t < model->table_count; t++) {
        n += model->tables[t].bags;
        if (model->tables[t].dim != width) {
            net->projections[t] = ++variable;
        }
    }
    rps_net_mlp_init(net, &net->mlps[TOP], "top", width + n * (n - 1) / 2,
            &shape->top, false, &variable);
}

static struct dlrm
dlrm_of(const struct rps_net *net)
{
    const struct rps_net_mlp *bottom = &net->mlps[BOTTOM];
    struct dlrm dlrm = {
            .n = 1, .width = bottom->layers[bottom->layer_count - 1].out};

    for (uint32_t t = 0; t < net->model->table_count; t++) {
        dlrm.n += net->model->tables[t].bags;
    }
    dlrm.top_in = net->mlps[TOP].layers[0].in;
    return dlrm;
}

static void
finish(struct dlrm *dlrm)
{
    rps_npu_tensor_release(&dlrm->vectors);
    rps_npu_tensor_release(&dlrm->top_input);
    for (uint32_t t = 0; t < RPS_MODEL_TABLES_MAX; t++) {
        rps_npu_tensor_release(&dlrm->pooled[t]);
    }
    rps_net_tape_finish(&dlrm->bottom);
    rps_net_tape_finish(&dlrm->top);
}

/* The first vector of each row, [rows][width]. */
static rps_npu_tensor
first_vectors(const rps_npu_tensor *vectors)
{
    rps_npu_tensor view = rps_npu_tensor_retain(vectors);

    view.ndim = 2;
    view.shape[1] = vectors->shape[2];
    view.strides[1] = vectors->strides[2];
    return view;
}

/* --- projections ---------------------------------------------------------- */

/* [rows][bags][width] as [rows * bags][width]. */
static rps_npu_tensor
flat(const rps_npu_tensor *cube)
{
    const uint64_t shape[] = {cube->shape[0] * cube->shape[1], cube->shape[2]};

    return rps_net_view(cube, 0, RPS_NPU_F32, 2, shape);
}

/* Y = X W^T, then into the vectors. */
static rps_status
project(struct rps_net *net, uint32_t t, const rps_npu_tensor *pooled,
        const rps_npu_tensor *slice)
{
    rps_npu_tensor weight = rps_net_variable(net, net->projections[t] - 1);
    rps_npu_tensor output = {0}, x = flat(pooled), y = {0};
    rps_npu_linear linear = {.x = &x, .weight = &weight, .y = &y};
    rps_status status = rps_net_cube(
            net, slice->shape[0], slice->shape[1], slice->shape[2], &output);

    if (status == RPS_OK) {
        y = flat(&output);
        status = rps_npu_linear_forward(
                rps_net_named(net, net->model->tables[t].name), &linear);
    }
    if (status == RPS_OK) {
        status = rps_npu_cast(&net->ops, &output, slice);
    }
    rps_npu_tensor_release(&y);
    rps_npu_tensor_release(&x);
    rps_npu_tensor_release(&output);
    rps_npu_tensor_release(&weight);
    return status;
}

/* dW = dY^T X, dX = dY W: straight to where it is wanted. */
static rps_status
project_backward(struct rps_net *net, const struct rps_net_part *part,
        uint32_t t, const rps_npu_tensor *pooled, const rps_npu_tensor *slice)
{
    const uint32_t variable = net->projections[t] - 1;
    rps_npu_tensor weight = rps_net_variable(net, variable);
    rps_npu_tensor dweight = rps_net_gradient(net, variable);
    rps_npu_tensor x = flat(pooled), dx = flat(&part->tables[t].gradient);
    rps_npu_tensor side_by_side = {0}, dy = {0};
    rps_npu_linear_gradient gradient = {
            .x = &x,
            .weight = &weight,
            .dy = &dy,
            .dx = &dx,
            .dweight = &dweight,
            .accumulate = part->accumulate,
    };
    rps_status status =
            rps_npu_tensor_contiguous(net->stream, slice, &side_by_side);

    if (status == RPS_OK) {
        dy = flat(&side_by_side);
        status = rps_npu_linear_backward(
                rps_net_named(net, net->model->tables[t].name), &gradient);
    }
    rps_npu_tensor_release(&dy);
    rps_npu_tensor_release(&side_by_side);
    rps_npu_tensor_release(&dx);
    rps_npu_tensor_release(&x);
    rps_npu_tensor_release(&dweight);
    rps_npu_tensor_release(&weight);
    return status;
}

/* --- forward -------------------------------------------------------------- */

static rps_status
put_bags(struct rps_net *net, const struct rps_net_part *part, uint32_t t,
        const rps_npu_tensor *slice, struct dlrm *dlrm)
{
    const struct rps_model_table *table = &net->model->tables[t];
    rps_npu_tensor *pooled = &dlrm->pooled[t];
    rps_status status;

    if (net->projections[t] == 0) {
        return rps_net_pool(net, part, t, slice);
    }
    status = rps_net_cube(net, part->rows, table->bags, table->dim, pooled);
    if (status == RPS_OK) {
        status = rps_net_pool(net, part, t, pooled);
    }
    return status == RPS_OK ? project(net, t, pooled, slice) : status;
}

/* What is done for each table's slice of the vectors. */
typedef rps_status (*slice_fn)(struct rps_net *net,
        const struct rps_net_part *part, uint32_t t,
        const rps_npu_tensor *slice, struct dlrm *dlrm);

static rps_status
each_slice(struct rps_net *net, const struct rps_net_part *part,
        const rps_npu_tensor *vectors, slice_fn function, struct dlrm *dlrm)
{
    uint32_t first = 1;
    rps_status status = RPS_OK;

    for (uint32_t t = 0; status == RPS_OK && t < net->model->table_count; t++) {
        const uint32_t bags = net->model->tables[t].bags;
        rps_npu_tensor slice = {0};

        status = rps_npu_tensor_slice(vectors, 1, first, bags, &slice);
        if (status == RPS_OK) {
            status = function(net, part, t, &slice, dlrm);
        }
        rps_npu_tensor_release(&slice);
        first += bags;
    }
    return status;
}

static rps_status
gather(struct rps_net *net, const struct rps_net_part *part, bool trains,
        struct dlrm *dlrm)
{
    const rps_npu_tensor *x = net->model->shape.dense > 0 ? &part->dense : NULL;
    rps_npu_tensor bottom = {0};
    rps_status status =
            rps_net_cube(net, part->rows, dlrm->n, dlrm->width, &dlrm->vectors);

    if (status == RPS_OK) {
        bottom = first_vectors(&dlrm->vectors);
        status = rps_net_mlp_forward(net, &net->mlps[BOTTOM], part, x, &bottom,
                trains, &dlrm->bottom);
    }
    rps_npu_tensor_release(&bottom);
    return status == RPS_OK
                   ? each_slice(net, part, &dlrm->vectors, put_bags, dlrm)
                   : status;
}

static rps_status
join_dots(
        struct rps_net *net, const struct rps_net_part *part, struct dlrm *dlrm)
{
    rps_status status =
            rps_net_matrix(net, part->rows, dlrm->top_in, &dlrm->top_input);

    return status == RPS_OK ? rps_npu_dots(rps_net_named(net, "interaction"),
                                      &dlrm->vectors, true, &dlrm->top_input)
                            : status;
}

static rps_status
forward(struct rps_net *net, const struct rps_net_part *part, bool trains,
        const rps_npu_tensor *logits, struct dlrm *dlrm)
{
    rps_status status = gather(net, part, trains, dlrm);

    if (status == RPS_OK) {
        status = join_dots(net, part, dlrm);
    }
    if (status == RPS_OK) {
        status = rps_net_mlp_forward(net, &net->mlps[TOP], part,
                &dlrm->top_input, logits, trains, &dlrm->top);
    }
    if (net->options.recompute) {
        rps_npu_tensor_release(&dlrm->top_input);
    }
    return status;
}

static rps_status
dlrm_predict(struct rps_net *net, const struct rps_net_part *part,
        const rps_npu_tensor *probabilities)
{
    struct dlrm dlrm = dlrm_of(net);
    rps_npu_tensor logits = {0};
    rps_status status = rps_net_matrix(net, part->rows, 1, &logits);

    if (status == RPS_OK) {
        status = forward(net, part, false, &logits, &dlrm);
    }
    if (status == RPS_OK) {
        status = rps_net_probabilities(net, &logits, probabilities);
    }
    finish(&dlrm);
    rps_npu_tensor_release(&logits);
    return status;
}

/* --- backward ------------------------------------------------------------- */

static rps_status
take_bags(struct rps_net *net, const struct rps_net_part *part, uint32_t t,
        const rps_npu_tensor *slice, struct dlrm *dlrm)
{
    return net->projections[t] == 0
                   ? rps_npu_cast(
                             rps_net_named(net, net->model->tables[t].name),
                             slice, &part->tables[t].gradient)
                   : project_backward(net, part, t, &dlrm->pooled[t], slice);
}

/* dT, from that of the top MLP's input. */
static rps_status
scatter(struct rps_net *net, const struct rps_net_part *part,
        const rps_npu_tensor *dvectors, struct dlrm *dlrm)
{
    const rps_npu_tensor *x = net->model->shape.dense > 0 ? &part->dense : NULL;
    rps_npu_tensor bottom = first_vectors(dvectors);
    rps_status status = rps_net_mlp_backward(
            net, &net->mlps[BOTTOM], part, x, &bottom, NULL, &dlrm->bottom);

    rps_npu_tensor_release(&bottom);
    return status == RPS_OK ? each_slice(net, part, dvectors, take_bags, dlrm)
                            : status;
}

static rps_status
backward(struct rps_net *net, const struct rps_net_part *part,
        const rps_npu_tensor *dlogits, struct dlrm *dlrm)
{
    rps_npu_tensor dinput = {0}, dvectors = {0};
    rps_status status = RPS_OK;

    if (net->options.recompute) {
        status = join_dots(net, part, dlrm);
    }
    if (status == RPS_OK) {
        status = rps_net_matrix(net, part->rows, dlrm->top_in, &dinput);
    }
    if (status == RPS_OK) {
        status = rps_net_mlp_backward(net, &net->mlps[TOP], part,
                &dlrm->top_input, dlogits, &dinput, &dlrm->top);
    }
    rps_npu_tensor_release(&dlrm->top_input);
    if (status == RPS_OK) {
        status = rps_net_cube(net, part->rows, dlrm->n, dlrm->width, &dvectors);
    }
    if (status == RPS_OK) {
        status = rps_npu_dots_backward(rps_net_named(net, "interaction"),
                &dlrm->vectors, true, &dinput, &dvectors);
    }
    rps_npu_tensor_release(&dinput);
    if (status == RPS_OK) {
        status = scatter(net, part, &dvectors, dlrm);
    }
    rps_npu_tensor_release(&dvectors);
    return status;
}

static rps_status
dlrm_train(struct rps_net *net, const struct rps_net_part *part)
{
    struct dlrm dlrm = dlrm_of(net);
    rps_npu_tensor logits = {0}, dlogits = {0};
    rps_status status = rps_net_matrix(net, part->rows, 1, &logits);

    if (status == RPS_OK) {
        status = rps_net_matrix(net, part->rows, 1, &dlogits);
    }
    if (status == RPS_OK) {
        status = forward(net, part, true, &logits, &dlrm);
    }
    if (status == RPS_OK) {
        status = rps_net_loss(net, part, &logits, &dlogits);
    }
    if (status == RPS_OK) {
        status = backward(net, part, &dlogits, &dlrm);
    }
    finish(&dlrm);
    rps_npu_tensor_release(&logits);
    rps_npu_tensor_release(&dlogits);
    return status;
}

const struct rps_net_kind rps_net_dlrm = {
        .init = dlrm_init,
        .train = dlrm_train,
        .predict = dlrm_predict,
};
