/* SPDX-License-Identifier: Apache-2.0 */
/* little_demo.c on a device: the bags are pooled side by side. */
#include "client/worker/net.h"

#include <string.h>

#define HEADS 2u
#define TRUNK 0
#define HEAD  1 /* and HEAD + 1 */

struct demo {
    rps_npu_tensor input;  /* [rows][in], after the ReLU */
    rps_npu_tensor hidden; /* [rows][width of the trunk] */
    struct rps_net_tape trunk;
    uint32_t in, width;
};

static void
demo_init(struct rps_net *net)
{
    static const struct rps_model_layers head = {.count = 1, .widths = {1}};
    static const char *const names[HEADS] = {"head_0", "head_1"};
    const struct rps_model *model = net->model;
    const struct rps_model_layers *trunk = &model->shape.trunk;
    uint32_t in = 0, variable = 0;

    for (uint32_t t = 0; t < model->table_count; t++) {
        in += (uint32_t)rps_model_pooled_floats(&model->tables[t]);
    }
    rps_net_mlp_init(net, &net->mlps[TRUNK], "mlp", in, trunk, true, &variable);
    for (uint32_t h = 0; h < HEADS; h++) {
        rps_net_mlp_init(net, &net->mlps[HEAD + h], names[h],
                trunk->widths[trunk->count - 1], &head, false, &variable);
    }
}

static struct demo
demo_of(const struct rps_net *net)
{
    const struct rps_net_mlp *trunk = &net->mlps[TRUNK];

    return (struct demo){
            .in = trunk->layers[0].in,
            .width = trunk->layers[trunk->layer_count - 1].out,
    };
}

static void
finish(struct demo *demo)
{
    rps_npu_tensor_release(&demo->input);
    rps_npu_tensor_release(&demo->hidden);
    rps_net_tape_finish(&demo->trunk);
}

/* Table t's columns of [rows][in], as [rows][bags][dim]. */
static rps_npu_tensor
columns_of(const struct rps_net *net, const rps_npu_tensor *x, uint32_t t,
        uint64_t first)
{
    const struct rps_model_table *table = &net->model->tables[t];
    rps_npu_tensor view = rps_npu_tensor_retain(x);

    view.offset += first * sizeof(float);
    view.ndim = 3;
    view.shape[1] = table->bags;
    view.shape[2] = table->dim;
    view.strides[1] = table->dim;
    view.strides[2] = 1;
    return view;
}

/* Column h of [rows][labels], as [rows][1]. */
static rps_npu_tensor
column_of(const rps_npu_tensor *x, uint32_t h)
{
    rps_npu_tensor view = rps_npu_tensor_retain(x);

    view.offset += h * sizeof(float);
    view.shape[1] = 1;
    return view;
}

static rps_status
join(struct rps_net *net, const struct rps_net_part *part, struct demo *demo)
{
    uint64_t first = 0;
    rps_status status = rps_net_matrix(net, part->rows, demo->in, &demo->input);

    for (uint32_t t = 0; status == RPS_OK && t < net->model->table_count; t++) {
        rps_npu_tensor columns = columns_of(net, &demo->input, t, first);

        status = rps_net_pool(net, part, t, &columns);
        rps_npu_tensor_release(&columns);
        first += rps_model_pooled_floats(&net->model->tables[t]);
    }
    return status == RPS_OK ? rps_npu_apply(rps_net_named(net, "input"),
                                      RPS_NPU_RELU, &demo->input, &demo->input)
                            : status;
}

static rps_status
head_forward(struct rps_net *net, const struct rps_net_part *part, uint32_t h,
        const rps_npu_tensor *logits, struct demo *demo)
{
    struct rps_net_tape tape;
    rps_npu_tensor column = column_of(logits, h);
    rps_status status = rps_net_mlp_forward(net, &net->mlps[HEAD + h], part,
            &demo->hidden, &column, false, &tape);

    rps_net_tape_finish(&tape);
    rps_npu_tensor_release(&column);
    return status;
}

static rps_status
forward(struct rps_net *net, const struct rps_net_part *part, bool trains,
        const rps_npu_tensor *logits, struct demo *demo)
{
    rps_status status = join(net, part, demo);

    if (status == RPS_OK) {
        status = rps_net_matrix(net, part->rows, demo->width, &demo->hidden);
    }
    if (status == RPS_OK) {
        status = rps_net_mlp_forward(net, &net->mlps[TRUNK], part, &demo->input,
                &demo->hidden, trains, &demo->trunk);
    }
    for (uint32_t h = 0; status == RPS_OK && h < HEADS; h++) {
        status = head_forward(net, part, h, logits, demo);
    }
    return status;
}

static rps_status
demo_predict(struct rps_net *net, const struct rps_net_part *part,
        const rps_npu_tensor *probabilities)
{
    struct demo demo = demo_of(net);
    rps_npu_tensor logits = {0};
    rps_status status = rps_net_matrix(net, part->rows, HEADS, &logits);

    if (status == RPS_OK) {
        status = forward(net, part, false, &logits, &demo);
    }
    if (status == RPS_OK) {
        status = rps_net_probabilities(net, &logits, probabilities);
    }
    finish(&demo);
    rps_npu_tensor_release(&logits);
    return status;
}

/* --- backward ------------------------------------------------------------- */

/* Head h's part of the trunk's gradient. Its only layer has no ReLU, so its
 * output is not needed. */
static rps_status
head_backward(struct rps_net *net, const struct rps_net_part *part, uint32_t h,
        const rps_npu_tensor *dlogits, const rps_npu_tensor *dhidden,
        struct demo *demo)
{
    struct rps_net_tape tape = {0};
    rps_npu_tensor column = column_of(dlogits, h);
    rps_status status = rps_net_mlp_backward(net, &net->mlps[HEAD + h], part,
            &demo->hidden, &column, dhidden, &tape);

    rps_npu_tensor_release(&column);
    return status;
}

static rps_status
heads_backward(struct rps_net *net, const struct rps_net_part *part,
        const rps_npu_tensor *dlogits, const rps_npu_tensor *sum,
        struct demo *demo)
{
    rps_npu_tensor other = {0};
    rps_status status = head_backward(net, part, 0, dlogits, sum, demo);

    for (uint32_t h = 1; status == RPS_OK && h < HEADS; h++) {
        status = rps_net_matrix(net, part->rows, demo->width, &other);
        if (status == RPS_OK) {
            status = head_backward(net, part, h, dlogits, &other, demo);
        }
        if (status == RPS_OK) {
            status = rps_npu_add(rps_net_named(net, "heads"), sum, &other, sum);
        }
        rps_npu_tensor_release(&other);
    }
    return status;
}

static rps_status
put_gradients(struct rps_net *net, const struct rps_net_part *part,
        const rps_npu_tensor *dx)
{
    uint64_t first = 0;
    rps_status status = RPS_OK;

    for (uint32_t t = 0; status == RPS_OK && t < net->model->table_count; t++) {
        rps_npu_tensor columns = columns_of(net, dx, t, first);

        status = rps_npu_cast(rps_net_named(net, net->model->tables[t].name),
                &columns, &part->tables[t].gradient);
        rps_npu_tensor_release(&columns);
        first += rps_model_pooled_floats(&net->model->tables[t]);
    }
    return status;
}

static rps_status
backward(struct rps_net *net, const struct rps_net_part *part,
        const rps_npu_tensor *dlogits, struct demo *demo)
{
    rps_npu_tensor dhidden = {0}, dx = {0};
    rps_status status = rps_net_matrix(net, part->rows, demo->width, &dhidden);

    if (status == RPS_OK) {
        status = heads_backward(net, part, dlogits, &dhidden, demo);
    }
    if (status == RPS_OK) {
        status = rps_net_matrix(net, part->rows, demo->in, &dx);
    }
    if (status == RPS_OK) {
        status = rps_net_mlp_backward(net, &net->mlps[TRUNK], part,
                &demo->input, &dhidden, &dx, &demo->trunk);
    }
    rps_npu_tensor_release(&dhidden);
    if (status == RPS_OK) {
        status = rps_npu_apply_backward(rps_net_named(net, "input"),
                RPS_NPU_RELU, &demo->input, &dx, &dx);
    }
    if (status == RPS_OK) {
        status = put_gradients(net, part, &dx);
    }
    rps_npu_tensor_release(&dx);
    return status;
}

static rps_status
demo_train(struct rps_net *net, const struct rps_net_part *part)
{
    struct demo demo = demo_of(net);
    rps_npu_tensor logits = {0}, dlogits = {0};
    rps_status status = rps_net_matrix(net, part->rows, HEADS, &logits);

    if (status == RPS_OK) {
        status = rps_net_matrix(net, part->rows, HEADS, &dlogits);
    }
    if (status == RPS_OK) {
        status = forward(net, part, true, &logits, &demo);
    }
    if (status == RPS_OK) {
        status = rps_net_loss(net, part, &logits, &dlogits);
    }
    if (status == RPS_OK) {
        status = backward(net, part, &dlogits, &demo);
    }
    finish(&demo);
    rps_npu_tensor_release(&logits);
    rps_npu_tensor_release(&dlogits);
    return status;
}

const struct rps_net_kind rps_net_little_demo = {
        .init = demo_init,
        .train = demo_train,
        .predict = demo_predict,
};
