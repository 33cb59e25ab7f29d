/* SPDX-License-Identifier: Apache-2.0 */
/* Layers y = relu(x W^T + b), dropout behind the hidden ones, and the three
 * ways to have their outputs again. */
#include "client/worker/net.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
rps_net_mlp_init(struct rps_net *net, struct rps_net_mlp *mlp,
        const char *prefix, uint32_t in, const struct rps_model_layers *layers,
        bool relu_last, uint32_t *variable)
{
    mlp->layer_count = layers->count;
    for (uint32_t l = 0; l < layers->count; l++) {
        struct rps_net_layer *layer = &mlp->layers[l];

        layer->in = l == 0 ? in : layers->widths[l - 1];
        layer->out = layers->widths[l];
        layer->relu = l + 1 < layers->count || relu_last;
        if (layer->in > 0) {
            layer->weight = (*variable)++;
        }
        layer->bias = (*variable)++;
        (void)snprintf(
                layer->name, sizeof(layer->name), "%s.%u", prefix, 2 * l);
        assert(net->model->variables[layer->bias].shape[0] == layer->out);
    }
}

/* --- forward -------------------------------------------------------------- */

static bool
has_dropout(
        const struct rps_net *net, const struct rps_net_mlp *mlp, uint32_t l)
{
    return net->options.dropout > 0.0 && l + 1 < mlp->layer_count;
}

/* In place; forward and backward are one. */
static rps_status
drop(struct rps_net *net, const struct rps_net_layer *layer,
        const struct rps_net_part *part, const rps_npu_tensor *x)
{
    const rps_npu_dropout dropout = {
            .rate = net->options.dropout,
            .seed = net->options.seed,
            .site = layer->bias,
            .step = &part->step,
            .first = part->first * layer->out,
    };

    return rps_npu_dropout_apply(
            rps_net_named(net, layer->name), &dropout, x, x);
}

static rps_status
layer_forward(struct rps_net *net, const struct rps_net_layer *layer,
        const rps_npu_tensor *x, const rps_npu_tensor *y)
{
    rps_npu_tensor weight = {0};
    rps_npu_tensor bias = rps_net_variable(net, layer->bias);
    rps_npu_linear linear = {
            .bias = &bias,
            .activation = layer->relu ? RPS_NPU_ACTIVATION_RELU
                                      : RPS_NPU_ACTIVATION_NONE,
            .y = y,
    };
    rps_status status;

    if (layer->in > 0) {
        weight = rps_net_variable(net, layer->weight);
        linear.x = x;
        linear.weight = &weight;
    }
    status = rps_npu_linear_forward(rps_net_named(net, layer->name), &linear);
    rps_npu_tensor_release(&weight);
    rps_npu_tensor_release(&bias);
    return status;
}

/* Output l into the tape; trains: as training has it, with dropout. */
static rps_status
compute_output(struct rps_net *net, const struct rps_net_mlp *mlp,
        const struct rps_net_part *part, uint32_t l, const rps_npu_tensor *x,
        bool trains, struct rps_net_tape *tape)
{
    const struct rps_net_layer *layer = &mlp->layers[l];
    rps_npu_tensor *y = &tape->outputs[l];
    rps_status status = RPS_OK;

    if (y->storage == NULL) {
        status = rps_net_matrix(net, part->rows, layer->out, y);
    }
    if (status == RPS_OK) {
        status =
                layer_forward(net, layer, l > 0 ? &tape->outputs[l - 1] : x, y);
    }
    return status == RPS_OK && trains && has_dropout(net, mlp, l)
                   ? drop(net, layer, part, y)
                   : status;
}

/* --- recompute ------------------------------------------------------------ */

/* ceil(sqrt(layers)): so many outputs are kept, and so many between two. */
static uint32_t
stretch_of(const struct rps_net_mlp *mlp)
{
    uint32_t n = 1;

    while (n * n < mlp->layer_count) {
        n++;
    }
    return n;
}

static bool
is_forgotten(
        const struct rps_net *net, const struct rps_net_mlp *mlp, uint32_t l)
{
    return net->options.recompute && l + 1 < mlp->layer_count &&
           (l + 1) % stretch_of(mlp) != 0;
}

/* From the nearest output below that is there, or the input. */
static rps_status
recompute(struct rps_net *net, const struct rps_net_mlp *mlp,
        const struct rps_net_part *part, uint32_t l, const rps_npu_tensor *x,
        struct rps_net_tape *tape)
{
    uint32_t from = l;
    rps_status status = RPS_OK;

    while (from > 0 && tape->outputs[from - 1].storage == NULL) {
        from--;
    }
    for (; status == RPS_OK && from <= l; from++) {
        status = compute_output(net, mlp, part, from, x, true, tape);
    }
    return status;
}

/* --- offload -------------------------------------------------------------- */

/* What `stream` has to do by now is done before `other` goes on. */
static rps_status
join(struct rps_net *net, rps_npu_stream *stream, rps_npu_stream *other,
        rps_npu_event **event_out)
{
    rps_npu_event *event = NULL;
    rps_status status = rps_npu_event_create(net->npu, &event);

    if (status == RPS_OK) {
        status = rps_npu_event_record(event, stream);
    }
    if (status == RPS_OK && other != NULL) {
        status = rps_npu_stream_wait(other, event);
    }
    if (event_out != NULL && status == RPS_OK) {
        *event_out = event;
    } else {
        rps_npu_event_destroy(event);
    }
    return status;
}

static struct rps_net_kept *
make_kept(struct rps_net *net, uint64_t bytes)
{
    struct rps_net_kept *kept = calloc(1, sizeof(*kept));

    if (kept == NULL) {
        return NULL;
    }
    kept->bytes = malloc(bytes > 0 ? bytes : 1);
    if (kept->bytes == NULL) {
        free(kept);
        return NULL;
    }
    kept->next = net->kept;
    net->kept = kept;
    return kept;
}

static rps_status
call_moved(void *context)
{
    const struct rps_net_moved *moved = context;

    moved->net->moved(moved->net->moved_context, moved);
    return RPS_OK;
}

/* Who looks is told when the copy is done. */
static rps_status
tell(struct rps_net *net, const char *name, const rps_npu_tensor *y,
        const struct rps_net_kept *kept, struct rps_net_moved *moved)
{
    if (net->moved == NULL) {
        return RPS_OK;
    }
    *moved = (struct rps_net_moved){
            .net = net,
            .shape = {y->shape[0], y->shape[1]},
            .address = (uint64_t)(uintptr_t)rps_npu_tensor_address(y),
            .bytes = kept->bytes,
            .back = moved == &kept->returned,
    };
    (void)snprintf(moved->name, sizeof(moved->name), "%s", name);
    return rps_npu_call_async(net->copies, "moved", call_moved, moved);
}

/* Output l, which the stream has used, to the host; its memory is free as soon
 * as the stream knows that it is there. */
static rps_status
send_away(struct rps_net *net, const struct rps_net_mlp *mlp,
        struct rps_net_tape *tape, uint32_t l)
{
    rps_npu_tensor *y = &tape->outputs[l];
    struct rps_net_kept *kept =
            make_kept(net, rps_npu_tensor_elements(y) * sizeof(float));
    rps_status status;

    if (kept == NULL) {
        return RPS_E_NOMEM;
    }
    tape->kept[l] = kept;
    status = join(net, net->stream, net->copies, NULL);
    if (status == RPS_OK) {
        status = rps_npu_tensor_to_host(net->copies, y, kept->bytes);
    }
    if (status == RPS_OK) {
        status = tell(net, mlp->layers[l].name, y, kept, &kept->sent);
    }
    return status == RPS_OK ? join(net, net->copies, NULL, &tape->back)
                            : status;
}

/* The stream waits for the copy of output l that was sent away last. */
static rps_status
end_sending(struct rps_net *net, struct rps_net_tape *tape, uint32_t l)
{
    rps_status status = rps_npu_stream_wait(net->stream, tape->back);

    rps_npu_event_destroy(tape->back);
    tape->back = NULL;
    rps_npu_tensor_release(&tape->outputs[l]);
    return status;
}

/* Begin to bring output l back. */
static rps_status
call_back(struct rps_net *net, const struct rps_net_mlp *mlp,
        const struct rps_net_part *part, struct rps_net_tape *tape, uint32_t l)
{
    rps_npu_tensor *y = &tape->outputs[l];
    rps_status status = rps_net_matrix(net, part->rows, mlp->layers[l].out, y);

    if (status == RPS_OK) { /* what had the memory before is over */
        status = join(net, net->stream, net->copies, NULL);
    }
    if (status == RPS_OK) {
        status = rps_npu_tensor_from_host(net->copies, y, tape->kept[l]->bytes);
    }
    if (status == RPS_OK) {
        status = tell(net, mlp->layers[l].name, y, tape->kept[l],
                &tape->kept[l]->returned);
    }
    if (status == RPS_OK) {
        status = join(net, net->copies, NULL, &tape->back);
        tape->coming = l;
    }
    return status;
}

/* --- having an output ----------------------------------------------------- */

/* Forward has computed output l: what it does not need any more goes. */
static rps_status
let_go(struct rps_net *net, const struct rps_net_mlp *mlp, uint32_t l,
        bool trains, struct rps_net_tape *tape)
{
    rps_status status = RPS_OK;

    if (l == 0) {
        return RPS_OK;
    }
    if (!trains || is_forgotten(net, mlp, l - 1)) {
        rps_npu_tensor_release(&tape->outputs[l - 1]);
        return RPS_OK;
    }
    if (!net->options.offload) {
        return RPS_OK;
    }
    if (l > 1) {
        status = end_sending(net, tape, l - 2);
    }
    if (status == RPS_OK) {
        status = send_away(net, mlp, tape, l - 1);
    }
    if (status == RPS_OK && l + 1 == mlp->layer_count) {
        status = end_sending(net, tape, l - 1);
    }
    return status;
}

/* Backward needs output l now, and soon the one below. */
static rps_status
have_output(struct rps_net *net, const struct rps_net_mlp *mlp,
        const struct rps_net_part *part, uint32_t l, const rps_npu_tensor *x,
        struct rps_net_tape *tape)
{
    rps_status status = RPS_OK;

    if (net->options.offload && tape->kept[l] != NULL) {
        if (tape->back == NULL) {
            status = call_back(net, mlp, part, tape, l);
        }
        if (status != RPS_OK) {
            return status;
        }
        assert(tape->coming == l);
        status = rps_npu_stream_wait(net->stream, tape->back);
        rps_npu_event_destroy(tape->back);
        tape->back = NULL;
        return status == RPS_OK && l > 0
                       ? call_back(net, mlp, part, tape, l - 1)
                       : status;
    }
    return tape->outputs[l].storage == NULL
                   ? recompute(net, mlp, part, l, x, tape)
                   : RPS_OK;
}

void
rps_net_tape_finish(struct rps_net_tape *tape)
{
    for (uint32_t l = 0; l < RPS_MODEL_LAYERS_MAX; l++) {
        rps_npu_tensor_release(&tape->outputs[l]);
    }
    rps_npu_event_destroy(tape->back);
    *tape = (struct rps_net_tape){0};
}

/* --- whole ---------------------------------------------------------------- */

rps_status
rps_net_mlp_forward(struct rps_net *net, const struct rps_net_mlp *mlp,
        const struct rps_net_part *part, const rps_npu_tensor *x,
        const rps_npu_tensor *y, bool trains, struct rps_net_tape *tape)
{
    rps_status status = RPS_OK;

    *tape = (struct rps_net_tape){0};
    tape->outputs[mlp->layer_count - 1] = rps_npu_tensor_retain(y);
    for (uint32_t l = 0; status == RPS_OK && l < mlp->layer_count; l++) {
        status = compute_output(net, mlp, part, l, x, trains, tape);
        if (status == RPS_OK) {
            status = let_go(net, mlp, l, trains, tape);
        }
    }
    return status;
}

static rps_status
layer_backward(struct rps_net *net, const struct rps_net_layer *layer,
        const struct rps_net_part *part, const rps_npu_tensor *x,
        const rps_npu_tensor *y, const rps_npu_tensor *dy,
        const rps_npu_tensor *dx)
{
    rps_npu_tensor weight = {0}, dweight = {0};
    rps_npu_tensor dbias = rps_net_gradient(net, layer->bias);
    rps_npu_linear_gradient gradient = {
            .activation = layer->relu ? RPS_NPU_ACTIVATION_RELU
                                      : RPS_NPU_ACTIVATION_NONE,
            .kept = layer->relu ? y : NULL,
            .dy = dy,
            .dbias = &dbias,
            .accumulate = part->accumulate,
    };
    rps_status status;

    if (layer->in > 0) {
        weight = rps_net_variable(net, layer->weight);
        dweight = rps_net_gradient(net, layer->weight);
        gradient.x = x;
        gradient.weight = &weight;
        gradient.dweight = &dweight;
        gradient.dx = dx;
    }
    status =
            rps_npu_linear_backward(rps_net_named(net, layer->name), &gradient);
    rps_npu_tensor_release(&weight);
    rps_npu_tensor_release(&dweight);
    rps_npu_tensor_release(&dbias);
    return status;
}

/* Layer l, whose gradient is *dy; *dy becomes that of the layer below. */
static rps_status
step_down(struct rps_net *net, const struct rps_net_mlp *mlp,
        const struct rps_net_part *part, uint32_t l, const rps_npu_tensor *x,
        rps_npu_tensor *dy, const rps_npu_tensor *dx, struct rps_net_tape *tape)
{
    const struct rps_net_layer *layer = &mlp->layers[l];
    rps_npu_tensor below = {0};
    rps_status status = RPS_OK;

    if (l > 0) {
        status = have_output(net, mlp, part, l - 1, x, tape);
        if (status == RPS_OK) {
            status = rps_net_matrix(net, part->rows, layer->in, &below);
        }
    }
    if (status == RPS_OK && has_dropout(net, mlp, l)) {
        status = drop(net, layer, part, dy);
    }
    if (status == RPS_OK) {
        status = layer_backward(net, layer, part,
                l > 0 ? &tape->outputs[l - 1] : x, &tape->outputs[l], dy,
                l > 0 ? &below : dx);
    }
    rps_npu_tensor_release(&tape->outputs[l]);
    rps_npu_tensor_release(dy);
    *dy = below;
    return status;
}

rps_status
rps_net_mlp_backward(struct rps_net *net, const struct rps_net_mlp *mlp,
        const struct rps_net_part *part, const rps_npu_tensor *x,
        const rps_npu_tensor *dy, const rps_npu_tensor *dx,
        struct rps_net_tape *tape)
{
    rps_npu_tensor gradient = rps_npu_tensor_retain(dy);
    rps_status status = RPS_OK;

    for (uint32_t l = mlp->layer_count; status == RPS_OK && l-- > 0;) {
        status = step_down(net, mlp, part, l, x, &gradient, dx, tape);
    }
    rps_npu_tensor_release(&gradient);
    rps_net_tape_finish(tape);
    return status;
}
