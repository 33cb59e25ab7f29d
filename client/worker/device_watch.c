/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device's side of a dump: each operator of a step that is dumped, as the
 * device shows it. What its memory has room for beyond the batch in hand, as a
 * step is compiled for many, is left out.
 */
#include "client/worker/device_impl.h"
#include "client/worker/dumping.h"

#include <recps/npu_watch.h>

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* --- places --------------------------------------------------------------- */

static uint64_t
address_of(const rps_npu_tensor *tensor)
{
    return tensor->storage != NULL
                   ? (uint64_t)(uintptr_t)rps_npu_tensor_address(tensor)
                   : 0;
}

/* Of what `to` has a copy of, `bytes` from `from` on. */
static bool
copied(const void *at, const void *from, uint64_t bytes,
        const rps_npu_tensor *to, uint64_t *place_out)
{
    const uintptr_t first = (uintptr_t)from, own = (uintptr_t)at;

    if (from == NULL || own < first || own - first >= bytes) {
        return false;
    }
    *place_out = address_of(to) + (own - first);
    return true;
}

uint64_t
rps_device_place(const struct rps_device *device, const void *at)
{
    const struct rps_device_step *step = &device->step;
    const struct rps_model *model = device->model;
    const uint64_t floats = model->variable_floats * sizeof(float);
    uint64_t place = (uint64_t)(uintptr_t)at;

    (void)(copied(at, model->values, floats, &device->net.values, &place) ||
            copied(at, model->gradients, floats, &device->net.gradients,
                    &place) ||
            copied(at, step->in_host, step->shape.in_bytes, &step->in,
                    &place) ||
            copied(at, step->out_host, step->shape.out_bytes, &step->out,
                    &place) ||
            copied(at, step->packed_host,
                    step->shape.packed_floats * sizeof(float), &step->packed,
                    &place));
    return place;
}

/* --- what is shown -------------------------------------------------------- */

static enum rps_dump_dtype
dtype_of(enum rps_npu_dtype dtype)
{
    switch (dtype) {
    case RPS_NPU_BF16:
        return RPS_DUMP_BF16;
    case RPS_NPU_I32:
        return RPS_DUMP_I32;
    case RPS_NPU_F64:
        return RPS_DUMP_F64;
    case RPS_NPU_F32:
        break;
    }
    return RPS_DUMP_F32;
}

/* Entries of the first dimension that the turn in hand has, of tensors that
 * have room for more. */
static uint64_t
count_of(const struct rps_device *device, uint64_t address, uint64_t room)
{
    const struct rps_device_step *step = &device->step;
    const struct rps_device_shape *shape = &step->shape;
    const uint64_t in = address_of(&step->in);
    const uint64_t slots = shape->cached ? in : address_of(&step->set);
    uint64_t count = room;

    for (uint32_t t = 0; t < device->model->table_count; t++) {
        const struct rps_turn *turn = step->hand.turn;

        if (address == slots + shape->slots_at[t]) {
            count = turn->bags[t].key_count;
        } else if (!shape->cached && address == in + shape->rows_at[t]) {
            count = turn->slots[t].count;
        } else if (shape->cached && address == in + shape->places_at[t]) {
            const int32_t *header =
                    (const void *)(step->in_host + shape->header_at[t]);

            count = (uint64_t)header[1];
        }
    }
    if (shape->cached && address == address_of(&step->packed)) {
        count = step->packed_bytes / sizeof(float);
    }
    return count < room ? count : room;
}

static struct rps_dump_tensor
tensor_of(
        const struct rps_device *device, const rps_npu_watched_tensor *watched)
{
    struct rps_dump_tensor tensor = {
            .label = watched->label,
            .dtype = dtype_of(watched->dtype),
            .ndim = watched->ndim,
            .bytes = watched->bytes,
            .place = watched->address,
    };

    _Static_assert((unsigned)RPS_DUMP_DIMS_MAX == (unsigned)RPS_NPU_DIMS_MAX,
            "a dump has what a device has");
    memcpy(tensor.shape, watched->shape, sizeof(tensor.shape));
    memcpy(tensor.strides, watched->strides, sizeof(tensor.strides));
    tensor.shape[0] = count_of(device, watched->address, tensor.shape[0]);
    return tensor;
}

struct shown {
    struct rps_dump_operator operator;
    struct rps_dump_tensor inputs[RPS_DUMP_TENSORS_MAX];
    struct rps_dump_tensor outputs[RPS_DUMP_TENSORS_MAX];
};

static void
show(const struct rps_device *device, const rps_npu_watched *watched,
        struct shown *shown)
{
    assert(watched->input_count <= RPS_DUMP_TENSORS_MAX);
    assert(watched->output_count <= RPS_DUMP_TENSORS_MAX);
    for (uint32_t i = 0; i < watched->input_count; i++) {
        shown->inputs[i] = tensor_of(device, &watched->inputs[i]);
    }
    for (uint32_t i = 0; i < watched->output_count; i++) {
        shown->outputs[i] = tensor_of(device, &watched->outputs[i]);
    }
    shown->operator=(struct rps_dump_operator){
            .type = watched->type,
            .name = watched->name,
            .holds = watched->holds,
            .attributes = watched->attributes,
            .stream = watched->stream,
            .inputs = shown->inputs,
            .input_count = watched->input_count,
            .outputs = shown->outputs,
            .output_count = watched->output_count,
    };
}

static void *
before(void *context, const rps_npu_watched *watched)
{
    const struct rps_device *device = context;
    struct shown shown;

    if (!rps_dump_is_on(device->dump)) {
        return NULL;
    }
    show(device, watched, &shown);
    return rps_dump_before(device->dump, &shown.operator);
}

static void
after(void *context, void *token, const rps_npu_watched *watched)
{
    const struct rps_device *device = context;
    struct shown shown;

    if (token != NULL) {
        show(device, watched, &shown);
        rps_dump_after(device->dump, token, &shown.operator);
    }
}

/* An output was offloaded, or came back: the one place has what the other
 * had. On the thread of the stream of copies. */
static void
show_moved(void *context, const struct rps_net_moved *moved)
{
    const struct rps_device *device = context;
    const uint64_t host = (uint64_t)(uintptr_t)moved->bytes;
    char name[RPS_VARIABLE_NAME_BYTES + 8];
    struct rps_dump_tensor x = {
            .label = "x",
            .ndim = 2,
            .shape = {moved->shape[0], moved->shape[1]},
            .strides = {moved->shape[1], 1},
            .bytes = moved->bytes,
            .place = moved->back ? host : moved->address,
    };
    struct rps_dump_tensor y = x;
    const struct rps_dump_operator operator= {
            .type = "copy",
            .name = name,
            .attributes = "{}",
            .stream = 1,
            .inputs = &x,
            .input_count = 1,
            .outputs = &y,
            .output_count = 1,
    };

    if (!rps_dump_is_on(device->dump)) {
        return;
    }
    y.label = "y";
    y.place = moved->back ? moved->address : host;
    (void)snprintf(name, sizeof(name), "%s/copy", moved->name);
    rps_dump_after(
            device->dump, rps_dump_before(device->dump, &operator), &operator);
}

rps_status
rps_device_watch(struct rps_device *device, struct rps_dump *dump,
        struct rps_error *error)
{
    const rps_npu_watcher watcher = {
            .before = before, .after = after, .context = device};
    rps_status status = rps_npu_stream_synchronize(device->compute);

    device->dump = dump;
    device->net.moved = show_moved;
    device->net.moved_context = device;
    if (status == RPS_OK) {
        status = rps_npu_watch(device->npu, &watcher);
    }
    return status == RPS_OK ? RPS_OK : rps_device_failed(device, status, error);
}

/* What fails here was told, or will be. */
void
rps_device_unwatch(struct rps_device *device)
{
    rps_status status;

    rps_npu_stream_reset(device->compute);
    status = rps_npu_stream_synchronize(device->compute);
    if (status == RPS_OK) {
        status = rps_npu_watch(device->npu, NULL);
    }
    (void)status;
    device->dump = NULL;
}

/* --- the step ------------------------------------------------------------- */

rps_status
rps_device_expect_dump(struct rps_device *device, struct rps_loop *loop,
        const struct rps_turn *turn)
{
    uint64_t operations = 0, bytes = 0;
    rps_status status;

    if (device->dump == NULL) {
        return RPS_OK;
    }
    status = rps_npu_step_watched(device->step.compiled, &operations, &bytes);
    for (const struct rps_net_kept *kept = device->net.kept; kept != NULL;
            kept = kept->next) { /* there and back, each read and written */
        operations += 2;
        bytes += 4 * kept->sent.shape[0] * kept->sent.shape[1] * sizeof(float);
    }
    return status == RPS_OK
                   ? rps_dumping_expect(loop, turn, operations, bytes)
                   : rps_device_failed(device, status, &loop->run->error);
}

rps_status
rps_device_dump_fetched(struct rps_device *device)
{
    const struct rps_device_step *step = &device->step;
    const struct rps_device_shape *shape = &step->shape;
    struct rps_dumping_rows rows[RPS_MODEL_TABLES_MAX];

    for (uint32_t t = 0; t < device->model->table_count; t++) {
        const int32_t *header =
                (const void *)(step->in_host + shape->header_at[t]);

        rows[t].moved = shape->cached;
        rows[t].rows =
                shape->cached
                        ? step->packed_host + header[0]
                        : (const void *)(step->in_host + shape->rows_at[t]);
    }
    return rps_dumping_fetched(step->loop, &step->hand, rows);
}
