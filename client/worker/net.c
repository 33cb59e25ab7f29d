/* SPDX-License-Identifier: Apache-2.0 */
/* What both kinds share: variables on the device, views, pooling, loss. */
#include "client/worker/net.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const struct rps_net_kind *
kind_of(const struct rps_net *net)
{
    return net->model->ops->kind == RPS_MODEL_DLRM ? &rps_net_dlrm
                                                   : &rps_net_little_demo;
}

static rps_status
make_floats(struct rps_net *net, rps_npu_tensor *tensor)
{
    const uint64_t floats = net->model->variable_floats;
    rps_status status =
            rps_npu_tensor_create(net->stream, RPS_NPU_F32, 1, &floats, tensor);

    return status == RPS_OK ? rps_npu_fill_async(net->stream,
                                      rps_npu_tensor_address(tensor), 0,
                                      floats * sizeof(float))
                            : status;
}

rps_status
rps_net_init(struct rps_net *net, const struct rps_model *model,
        rps_npu_stream *stream, rps_npu_stream *copies,
        const struct rps_net_options *options, bool trains)
{
    rps_status status;

    memset(net, 0, sizeof(*net));
    net->model = model;
    net->npu = rps_npu_stream_device(stream);
    net->stream = stream;
    net->copies = copies;
    net->options = *options;
    net->ops.stream = stream;
    net->ops.options = options->ops;
    kind_of(net)->init(net);
    status = make_floats(net, &net->values);
    return status == RPS_OK && trains ? make_floats(net, &net->gradients)
                                      : status;
}

void
rps_net_drop_kept(struct rps_net *net)
{
    while (net->kept != NULL) {
        struct rps_net_kept *kept = net->kept;

        net->kept = kept->next;
        free(kept->bytes);
        free(kept);
    }
}

void
rps_net_finish(struct rps_net *net)
{
    rps_npu_tensor_release(&net->values);
    rps_npu_tensor_release(&net->gradients);
    rps_net_drop_kept(net);
}

rps_status
rps_net_train(struct rps_net *net, const struct rps_net_part *part)
{
    assert(net->gradients.storage != NULL);
    return kind_of(net)->train(net, part);
}

rps_status
rps_net_predict(struct rps_net *net, const struct rps_net_part *part,
        const rps_npu_tensor *probabilities)
{
    return kind_of(net)->predict(net, part, probabilities);
}

/* --- tensors -------------------------------------------------------------- */

rps_npu_tensor
rps_net_view(const rps_npu_tensor *tensor, uint64_t offset,
        enum rps_npu_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    rps_npu_tensor view = rps_npu_tensor_retain(tensor);
    uint64_t stride = 1;

    view.offset += offset;
    view.dtype = dtype;
    view.ndim = ndim;
    for (uint32_t i = ndim; i-- > 0;) {
        view.shape[i] = shape[i];
        view.strides[i] = stride;
        stride *= shape[i];
    }
    return view;
}

static rps_npu_tensor
variable_of(const struct rps_net *net, const rps_npu_tensor *of, uint32_t v)
{
    const struct rps_variable *variable = &net->model->variables[v];

    return rps_net_view(of, variable->first * sizeof(float), RPS_NPU_F32,
            variable->ndim, variable->shape);
}

rps_npu_tensor
rps_net_variable(const struct rps_net *net, uint32_t variable)
{
    return variable_of(net, &net->values, variable);
}

rps_npu_tensor
rps_net_gradient(const struct rps_net *net, uint32_t variable)
{
    return variable_of(net, &net->gradients, variable);
}

rps_status
rps_net_matrix(struct rps_net *net, uint64_t rows, uint64_t columns,
        rps_npu_tensor *tensor_out)
{
    const uint64_t shape[] = {rows, columns};

    return rps_npu_tensor_create(
            net->stream, RPS_NPU_F32, 2, shape, tensor_out);
}

rps_status
rps_net_cube(struct rps_net *net, uint64_t rows, uint64_t n, uint64_t width,
        rps_npu_tensor *tensor_out)
{
    const uint64_t shape[] = {rows, n, width};

    return rps_npu_tensor_create(
            net->stream, RPS_NPU_F32, 3, shape, tensor_out);
}

/* --- operators ------------------------------------------------------------ */

const rps_npu_ops *
rps_net_named(struct rps_net *net, const char *name)
{
    net->ops.name = name;
    return &net->ops;
}

rps_status
rps_net_pool(struct rps_net *net, const struct rps_net_part *part, uint32_t t,
        const rps_npu_tensor *pooled)
{
    const struct rps_model_table *table = &net->model->tables[t];
    const struct rps_net_bags *own = &part->tables[t];
    const rps_npu_bags bags = {
            .pooling = table->pooling,
            .slots = own->slots.storage != NULL ? &own->slots : NULL,
            .starts = &own->starts,
    };

    return rps_npu_pool_bags(
            rps_net_named(net, table->name), &bags, &own->rows, pooled);
}

rps_status
rps_net_loss(struct rps_net *net, const struct rps_net_part *part,
        const rps_npu_tensor *logits, const rps_npu_tensor *dlogits)
{
    const rps_npu_bce bce = {
            .logits = logits,
            .labels = &part->labels,
            .scale = &part->scale,
            .loss = &part->loss,
            .accumulate = part->accumulate,
            .dlogits = dlogits,
    };

    return rps_npu_bce_with_logits(rps_net_named(net, "loss"), &bce);
}

/* The host's model takes a float64 exponential: so does this one where it must
 * have the same bits. */
rps_status
rps_net_probabilities(struct rps_net *net, const rps_npu_tensor *logits,
        const rps_npu_tensor *probabilities)
{
    rps_npu_ops ops = *rps_net_named(net, NULL);

    if (ops.options.deterministic) {
        ops.options.implmode = RPS_NPU_IMPL_HIGH_PRECISION;
    }
    return rps_npu_apply(&ops, RPS_NPU_SIGMOID, logits, probabilities);
}
