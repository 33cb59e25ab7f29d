/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/npu/model.h"

#include "base/hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static uint64_t
out_of(const struct bench_npu_model *model, uint32_t layer)
{
    return layer + 1 < BENCH_NPU_LAYERS ? model->width : 1;
}

static rps_status
make(const struct bench_npu_model *model, uint64_t rows, uint64_t columns,
        rps_npu_tensor *tensor)
{
    const uint64_t shape[2] = {rows, columns};

    return rps_npu_tensor_create(model->stream, RPS_NPU_F32, 2, shape, tensor);
}

static rps_status
make_row(const struct bench_npu_model *model, enum rps_npu_dtype dtype,
        uint64_t count, rps_npu_tensor *tensor)
{
    return rps_npu_tensor_create(model->stream, dtype, 1, &count, tensor);
}

/* Variables first: what lives long lies together. */
static rps_status
make_variables(struct bench_npu_model *model)
{
    rps_status status = RPS_OK;

    for (uint32_t l = 0; l < BENCH_NPU_LAYERS && status == RPS_OK; l++) {
        struct bench_npu_layer *layer = &model->layers[l];
        const uint64_t out = out_of(model, l);

        status = make(model, out, model->width, &layer->weight);
        if (status == RPS_OK) {
            status = make_row(model, RPS_NPU_F32, out, &layer->bias);
        }
    }
    return status;
}

static rps_status
make_values(struct bench_npu_model *model)
{
    rps_status status = RPS_OK;

    for (uint32_t l = 0; l < BENCH_NPU_LAYERS && status == RPS_OK; l++) {
        struct bench_npu_layer *layer = &model->layers[l];
        const uint64_t out = out_of(model, l);

        status = make(model, model->batch, out, &layer->y);
        if (status == RPS_OK) {
            status = make(model, model->batch, out, &layer->dy);
        }
        if (status == RPS_OK) {
            status = make(model, out, model->width, &layer->dweight);
        }
        if (status == RPS_OK) {
            status = make_row(model, RPS_NPU_F32, out, &layer->dbias);
        }
    }
    return status;
}

/* A view on `count` floats of the input, as rows. */
static rps_status
view(const struct bench_npu_model *model, uint64_t first, uint64_t columns,
        rps_npu_tensor *view_out)
{
    const uint64_t shape[2] = {model->batch, columns};
    rps_npu_tensor slice;
    rps_status status = rps_npu_tensor_slice(
            &model->input, 0, first, model->batch * columns, &slice);

    if (status == RPS_OK) {
        status = rps_npu_tensor_reshape(&slice, 2, shape, view_out);
        rps_npu_tensor_release(&slice);
    }
    return status;
}

static rps_status
make_input(struct bench_npu_model *model)
{
    rps_status status =
            make_row(model, RPS_NPU_F32, model->input_floats, &model->input);

    if (status == RPS_OK) {
        status = view(model, 0, model->width, &model->x);
    }
    return status == RPS_OK
                   ? view(model, model->batch * model->width, 1, &model->labels)
                   : status;
}

static rps_status
make_numbers(struct bench_npu_model *model)
{
    rps_status status = make_row(model, RPS_NPU_F64, 1, &model->rate);

    if (status == RPS_OK) {
        status = make_row(model, RPS_NPU_F64, 1, &model->loss);
    }
    return status == RPS_OK ? make_row(model, RPS_NPU_F64, 2, &model->scale)
                            : status;
}

rps_status
bench_npu_model_init(struct bench_npu_model *model, rps_npu_stream *stream,
        uint64_t batch, uint64_t width)
{
    rps_status status;

    memset(model, 0, sizeof(*model));
    model->batch = batch;
    model->width = width;
    model->input_floats = batch * width + batch;
    model->stream = stream;
    status = make_variables(model);
    if (status == RPS_OK) {
        status = make_numbers(model);
    }
    if (status == RPS_OK) {
        status = make_input(model);
    }
    return status == RPS_OK ? make_values(model) : status;
}

void
bench_npu_model_finish(struct bench_npu_model *model)
{
    for (uint32_t l = 0; l < BENCH_NPU_LAYERS; l++) {
        struct bench_npu_layer *layer = &model->layers[l];

        rps_npu_tensor_release(&layer->weight);
        rps_npu_tensor_release(&layer->bias);
        rps_npu_tensor_release(&layer->y);
        rps_npu_tensor_release(&layer->dy);
        rps_npu_tensor_release(&layer->dweight);
        rps_npu_tensor_release(&layer->dbias);
    }
    rps_npu_tensor_release(&model->x);
    rps_npu_tensor_release(&model->labels);
    rps_npu_tensor_release(&model->input);
    rps_npu_tensor_release(&model->rate);
    rps_npu_tensor_release(&model->loss);
    rps_npu_tensor_release(&model->scale);
}

/* Uniform in [-1, 1), a function of what is given. */
static float
draw(uint64_t seed, uint64_t at)
{
    return (float)((double)(rps_mix64(rps_mix64(seed) ^ at) >> 40) / 0x1p23 -
                   1.0);
}

static rps_status
put(const struct bench_npu_model *model, const rps_npu_tensor *tensor,
        const void *values)
{
    rps_status status = rps_npu_tensor_from_host(model->stream, tensor, values);

    return status == RPS_OK ? rps_npu_stream_synchronize(model->stream)
                            : status;
}

static rps_status
start_variable(const struct bench_npu_model *model,
        const rps_npu_tensor *tensor, uint64_t seed)
{
    const uint64_t count = rps_npu_tensor_elements(tensor);
    const float bound = 1.0f / sqrtf((float)model->width);
    float *values = malloc(count * sizeof(*values));
    rps_status status = RPS_E_NOMEM;

    for (uint64_t i = 0; values != NULL && i < count; i++) {
        values[i] = bound * draw(seed, i);
    }
    if (values != NULL) {
        status = put(model, tensor, values);
    }
    free(values);
    return status;
}

rps_status
bench_npu_model_reset(struct bench_npu_model *model, uint64_t seed)
{
    const double rate = 0.05, loss = 0.0;
    const double scale[2] = {
            1.0 / (double)model->batch, 1.0 / (double)model->batch};
    rps_status status = put(model, &model->rate, &rate);

    if (status == RPS_OK) {
        status = put(model, &model->loss, &loss);
    }
    if (status == RPS_OK) {
        status = put(model, &model->scale, scale);
    }
    for (uint32_t l = 0; l < BENCH_NPU_LAYERS && status == RPS_OK; l++) {
        const struct bench_npu_layer *layer = &model->layers[l];

        status = start_variable(model, &layer->weight, seed + 2 * l);
        if (status == RPS_OK) {
            status = start_variable(model, &layer->bias, seed + 2 * l + 1);
        }
    }
    return status;
}

/* --- a step --------------------------------------------------------------- */

static const rps_npu_tensor *
input_of(const struct bench_npu_model *model, uint32_t layer)
{
    return layer == 0 ? &model->x : &model->layers[layer - 1].y;
}

static enum rps_npu_activation
activation_of(uint32_t layer)
{
    return layer + 1 < BENCH_NPU_LAYERS ? RPS_NPU_ACTIVATION_RELU
                                        : RPS_NPU_ACTIVATION_NONE;
}

static rps_status
forward(const struct bench_npu_model *model, const rps_npu_ops *ops)
{
    rps_status status = RPS_OK;

    for (uint32_t l = 0; l < BENCH_NPU_LAYERS && status == RPS_OK; l++) {
        const struct bench_npu_layer *layer = &model->layers[l];
        const rps_npu_linear linear = {
                .x = input_of(model, l),
                .weight = &layer->weight,
                .bias = &layer->bias,
                .activation = activation_of(l),
                .y = &layer->y,
        };

        status = rps_npu_linear_forward(ops, &linear);
    }
    return status;
}

static rps_status
loss(const struct bench_npu_model *model, const rps_npu_ops *ops)
{
    const struct bench_npu_layer *last = &model->layers[BENCH_NPU_LAYERS - 1];
    const rps_npu_bce bce = {
            .logits = &last->y,
            .labels = &model->labels,
            .scale = &model->scale,
            .loss = &model->loss,
            .dlogits = &last->dy,
    };

    return rps_npu_bce_with_logits(ops, &bce);
}

static rps_status
backward(const struct bench_npu_model *model, const rps_npu_ops *ops)
{
    rps_status status = RPS_OK;

    for (uint32_t l = BENCH_NPU_LAYERS; l-- > 0 && status == RPS_OK;) {
        const struct bench_npu_layer *layer = &model->layers[l];
        const rps_npu_linear_gradient gradient = {
                .x = input_of(model, l),
                .weight = &layer->weight,
                .activation = activation_of(l),
                .kept = &layer->y,
                .dy = &layer->dy,
                .dx = l > 0 ? &model->layers[l - 1].dy : NULL,
                .dweight = &layer->dweight,
                .dbias = &layer->dbias,
        };

        status = rps_npu_linear_backward(ops, &gradient);
    }
    return status;
}

static rps_status
optimize(const struct bench_npu_model *model, const rps_npu_ops *ops)
{
    rps_npu_optimizer sgd;
    rps_status status = RPS_OK;

    rps_npu_optimizer_init(&sgd, RPS_NPU_SGD);
    sgd.learning_rate = &model->rate;
    for (uint32_t l = 0; l < BENCH_NPU_LAYERS && status == RPS_OK; l++) {
        const struct bench_npu_layer *layer = &model->layers[l];

        status = rps_npu_optimizer_step(
                ops, &sgd, &layer->weight, &layer->dweight, NULL, NULL);
        if (status == RPS_OK) {
            status = rps_npu_optimizer_step(
                    ops, &sgd, &layer->bias, &layer->dbias, NULL, NULL);
        }
    }
    return status;
}

rps_status
bench_npu_model_step(const struct bench_npu_model *model, rps_npu_queue *queue)
{
    rps_npu_ops ops = {.stream = model->stream};
    void *const to[1] = {rps_npu_tensor_address(&model->input)};
    rps_status status = RPS_OK;

    rps_npu_ops_options_init(&ops.options);
    ops.options.deterministic = true;
    if (queue != NULL) {
        status = rps_npu_queue_take(model->stream, queue, to);
    }
    if (status == RPS_OK) {
        status = forward(model, &ops);
    }
    if (status == RPS_OK) {
        status = loss(model, &ops);
    }
    if (status == RPS_OK) {
        status = backward(model, &ops);
    }
    return status == RPS_OK ? optimize(model, &ops) : status;
}

/* --- in and out ----------------------------------------------------------- */

static rps_status
add_to_digest(const struct bench_npu_model *model, const rps_npu_tensor *tensor,
        XXH3_state_t *state)
{
    const uint64_t bytes = rps_npu_tensor_elements(tensor) * sizeof(float);
    void *values = malloc(bytes);
    rps_status status = RPS_E_NOMEM;

    if (values != NULL) {
        status = rps_npu_tensor_to_host(model->stream, tensor, values);
    }
    if (status == RPS_OK) {
        status = rps_npu_stream_synchronize(model->stream);
    }
    if (status == RPS_OK) {
        XXH3_64bits_update(state, values, bytes);
    }
    free(values);
    return status;
}

rps_status
bench_npu_model_digest(const struct bench_npu_model *model,
        uint64_t *digest_out, double *loss_out)
{
    XXH3_state_t *state = XXH3_createState();
    rps_status status = state == NULL ? RPS_E_NOMEM : RPS_OK;

    if (status == RPS_OK) {
        XXH3_64bits_reset(state);
    }
    for (uint32_t l = 0; l < BENCH_NPU_LAYERS && status == RPS_OK; l++) {
        status = add_to_digest(model, &model->layers[l].weight, state);
        if (status == RPS_OK) {
            status = add_to_digest(model, &model->layers[l].bias, state);
        }
    }
    if (status == RPS_OK) {
        *digest_out = XXH3_64bits_digest(state);
        status = rps_npu_tensor_to_host(model->stream, &model->loss, loss_out);
    }
    if (status == RPS_OK) {
        status = rps_npu_stream_synchronize(model->stream);
    }
    XXH3_freeState(state);
    return status;
}

void
bench_npu_model_fill(const struct bench_npu_model *model, uint64_t seed,
        uint64_t step, float *floats)
{
    float *labels = floats + model->batch * model->width;

    for (uint64_t r = 0; r < model->batch; r++) {
        float sum = 0.0f;

        for (uint64_t c = 0; c < model->width; c++) {
            const uint64_t at = r * model->width + c;

            floats[at] = draw(seed + step, at);
            sum += c % 3 == 0 ? floats[at] : 0.0f;
        }
        labels[r] = sum > 0.0f ? 1.0f : 0.0f;
    }
}
