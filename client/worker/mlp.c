/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/mlp.h"

#include <assert.h>
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TILE ((blasint)RPS_MODEL_TILE)

/*
 * The law of PyTorch's nn.Linear for weights and biases. sqrt is exact to the
 * last bit everywhere, so the values are the same on every machine. A layer
 * without input, the bias of a constant, is taken as one of one input: at
 * zeros no unit of it, or above it, would ever have a gradient.
 */
static float
start_bound(uint32_t fan_in)
{
    return (float)(1.0 / sqrt(fan_in > 0 ? (double)fan_in : 1.0));
}

static rps_status
layer_init(struct rps_mlp_layer *layer, struct rps_model *model,
        const char *prefix, uint32_t index, struct rps_error *error)
{
    char name[RPS_VARIABLE_NAME_BYTES];
    const float bound = start_bound(layer->in);
    size_t cells = (size_t)RPS_MODEL_TILE * layer->out;

    if (layer->in > 0) {
        snprintf(name, sizeof(name), "%s.%u.weight", prefix, 2 * index);
        layer->weight = rps_model_add_variable(
                model, name, layer->out, layer->in, bound);
    }
    snprintf(name, sizeof(name), "%s.%u.bias", prefix, 2 * index);
    layer->bias = rps_model_add_variable(model, name, layer->out, 0, bound);
    layer->output = calloc(cells, sizeof(float));
    layer->gradient = calloc(cells, sizeof(float));
    if (layer->output == NULL || layer->gradient == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for layer %s", name);
    }
    return RPS_OK;
}

/* How the profile calls it: "top.2", as its variables. */
static void
name_layer(struct rps_mlp_layer *layer, const char *prefix, uint32_t index)
{
    const uint64_t in = layer->in, out = layer->out;
    char part[RPS_VARIABLE_NAME_BYTES];

    (void)snprintf(part, sizeof(part), "%s.%u", prefix, 2 * index);
    rps_operator_init(
            &layer->forward, layer->relu ? "linear_relu" : "linear", part);
    rps_operator_init(&layer->backward, "linear_backward", part);
    (void)snprintf(layer->forward.shapes, sizeof(layer->forward.shapes),
            "[%u,%u] [%u,%u]", RPS_MODEL_TILE, layer->in, layer->out,
            layer->in);
    memcpy(layer->backward.shapes, layer->forward.shapes,
            sizeof(layer->backward.shapes));
    if (layer->in > 0) { /* else there is nothing but a bias */
        layer->forward.holds =
                layer->relu ? "linear + bias + relu" : "linear + bias";
    }
    layer->forward.flops = 2 * RPS_MODEL_TILE * in * out;
    layer->backward.flops = 2 * layer->forward.flops;
    layer->forward.bytes =
            (RPS_MODEL_TILE * (in + out) + in * out + out) * sizeof(float);
    layer->backward.bytes =
            (2 * RPS_MODEL_TILE * (in + out) + 3 * in * out + 2 * out) *
            sizeof(float);
}

rps_status
rps_mlp_init(struct rps_mlp *mlp, struct rps_model *model, const char *prefix,
        uint32_t in, const struct rps_model_layers *layers, bool relu_last,
        struct rps_error *error)
{
    const uint32_t count = layers->count;

    assert(count > 0 && count <= RPS_MODEL_LAYERS_MAX);
    memset(mlp, 0, sizeof(*mlp));
    mlp->layer_count = count;
    for (uint32_t l = 0; l < count; l++) {
        struct rps_mlp_layer *layer = &mlp->layers[l];
        rps_status status;

        layer->in = l == 0 ? in : layers->widths[l - 1];
        layer->out = layers->widths[l];
        layer->relu = l + 1 < count || relu_last;
        name_layer(layer, prefix, l);
        status = layer_init(layer, model, prefix, l, error);
        if (status != RPS_OK) {
            return status;
        }
    }
    return RPS_OK;
}

void
rps_mlp_finish(struct rps_mlp *mlp)
{
    for (uint32_t l = 0; l < mlp->layer_count; l++) {
        free(mlp->layers[l].output);
        free(mlp->layers[l].gradient);
    }
    memset(mlp, 0, sizeof(*mlp));
}

/* --- computing ------------------------------------------------------------ */

static void
layer_forward(const struct rps_mlp_layer *layer, const float *x)
{
    const size_t cells = (size_t)RPS_MODEL_TILE * layer->out;
    float *y = layer->output;

    rps_operator_part_begin(&layer->parts.bias);
    for (uint32_t r = 0; r < RPS_MODEL_TILE; r++) {
        memcpy(y + (size_t)r * layer->out, layer->bias->values,
                layer->out * sizeof(float));
    }
    rps_operator_part_end(&layer->parts.bias);
    if (layer->in > 0) {
        rps_operator_part_begin(&layer->parts.product);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, TILE,
                (blasint)layer->out, (blasint)layer->in, 1.0f, x,
                (blasint)layer->in, layer->weight->values, (blasint)layer->in,
                1.0f, y, (blasint)layer->out);
        rps_operator_part_end(&layer->parts.product);
    }
    if (layer->relu) { /* a NaN stays one, so that the loss shows it */
        rps_operator_part_begin(&layer->parts.relu);
        for (size_t i = 0; i < cells; i++) {
            y[i] = y[i] <= 0.0f ? 0.0f : y[i];
        }
        rps_operator_part_end(&layer->parts.relu);
    }
}

const float *
rps_mlp_forward(struct rps_mlp *mlp, const float *x)
{
    for (uint32_t l = 0; l < mlp->layer_count; l++) {
        const uint64_t begun = rps_operator_begin(&mlp->layers[l].forward);

        layer_forward(&mlp->layers[l], x);
        rps_operator_end(&mlp->layers[l].forward, begun);
        x = mlp->layers[l].output;
    }
    return x;
}

float *
rps_mlp_output_gradient(struct rps_mlp *mlp)
{
    return mlp->layers[mlp->layer_count - 1].gradient;
}

static void
layer_backward(
        const struct rps_mlp_layer *layer, const float *x, float *x_gradient)
{
    const size_t cells = (size_t)RPS_MODEL_TILE * layer->out;
    const blasint out = (blasint)layer->out, in = (blasint)layer->in;
    float *dy = layer->gradient;

    if (layer->relu) {
        rps_operator_part_begin(&layer->parts.relu_backward);
        for (size_t i = 0; i < cells; i++) {
            dy[i] = layer->output[i] <= 0.0f ? 0.0f : dy[i];
        }
        rps_operator_part_end(&layer->parts.relu_backward);
    }
    rps_operator_part_begin(&layer->parts.dbias);
    for (uint32_t r = 0; r < RPS_MODEL_TILE; r++) {
        for (uint32_t o = 0; o < layer->out; o++) {
            layer->bias->gradients[o] += dy[(size_t)r * layer->out + o];
        }
    }
    rps_operator_part_end(&layer->parts.dbias);
    if (layer->in == 0) {
        return;
    }
    rps_operator_part_begin(&layer->parts.dweight);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, TILE, 1.0f,
            dy, out, x, in, 1.0f, layer->weight->gradients, in);
    rps_operator_part_end(&layer->parts.dweight);
    if (x_gradient != NULL) {
        rps_operator_part_begin(&layer->parts.dx);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, TILE, in, out,
                1.0f, dy, out, layer->weight->values, in, 0.0f, x_gradient, in);
        rps_operator_part_end(&layer->parts.dx);
    }
}

void
rps_mlp_backward(struct rps_mlp *mlp, const float *x, float *x_gradient)
{
    for (uint32_t l = mlp->layer_count; l-- > 0;) {
        const float *input = l > 0 ? mlp->layers[l - 1].output : x;
        float *gradient = l > 0 ? mlp->layers[l - 1].gradient : x_gradient;
        const uint64_t begun = rps_operator_begin(&mlp->layers[l].backward);

        layer_backward(&mlp->layers[l], input, gradient);
        rps_operator_end(&mlp->layers[l].backward, begun);
    }
}
