/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/watch.h"

#include "client/npu/error.h"
#include "client/npu/stream.h"
#include "client/npu/tensor.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* One block: the record, its tensors, its attributes' words. */
struct rps_npu_record {
    rps_npu_watched seen;
    rps_npu_watched_tensor tensors[]; /* inputs, then outputs */
};

static bool
has(uint32_t bits, uint32_t i)
{
    return (bits >> i & 1) != 0;
}

static rps_npu_watched_tensor
describe(const rps_npu *npu, const rps_npu_tensor *tensor, const char *label)
{
    const void *address = rps_npu_tensor_address(tensor);
    rps_npu_watched_tensor seen = {
            .label = label,
            .dtype = tensor->dtype,
            .ndim = tensor->ndim,
    };

    memcpy(seen.shape, tensor->shape, sizeof(seen.shape));
    memcpy(seen.strides, tensor->strides, sizeof(seen.strides));
    if (address != NULL) {
        seen.address = (uint64_t)(uintptr_t)address;
        seen.bytes = rps_npu_inside(npu, address);
    }
    return seen;
}

/* Inputs, outputs whose old values are inputs, too, and outputs that are
 * written. */
static void
add_tensors(struct rps_npu_record *record, const rps_npu *npu,
        const struct rps_npu_operation *o)
{
    rps_npu_watched_tensor *to = record->tensors;

    for (uint32_t i = 0; i < o->input_count; i++) {
        *to++ = describe(npu, &o->inputs[i],
                o->input_labels == NULL ? NULL : o->input_labels[i]);
    }
    for (uint32_t i = 0; i < o->output_count; i++) {
        if (has(o->outputs_read, i)) {
            *to++ = describe(npu, &o->outputs[i],
                    o->output_labels == NULL ? NULL : o->output_labels[i]);
        }
    }
    record->seen.inputs = record->tensors;
    record->seen.input_count = (uint32_t)(to - record->tensors);
    record->seen.outputs = to;
    for (uint32_t i = 0; i < o->output_count; i++) {
        if (!has(o->outputs_kept, i)) {
            *to++ = describe(npu, &o->outputs[i],
                    o->output_labels == NULL ? NULL : o->output_labels[i]);
        }
    }
    record->seen.output_count = (uint32_t)(to - record->seen.outputs);
    assert(record->seen.input_count <= RPS_NPU_OPERATION_TENSORS_MAX);
}

struct rps_npu_record *
rps_npu_record_make(const rps_npu_stream *stream,
        const struct rps_npu_operation *operation, const char *name)
{
    const char *attributes =
            operation->attributes == NULL ? "{}" : operation->attributes;
    const size_t tensors = operation->input_count + 2 * operation->output_count;
    const size_t words = strlen(attributes) + 1;
    struct rps_npu_record *record = calloc(
            1, sizeof(*record) + tensors * sizeof(record->tensors[0]) + words);
    char *tail;

    if (record == NULL) {
        return NULL;
    }
    tail = (char *)(record->tensors + tensors);
    memcpy(tail, attributes, words);
    record->seen.type = operation->type;
    record->seen.name = name;
    record->seen.holds = operation->holds;
    record->seen.attributes = tail;
    record->seen.stream = stream->index;
    add_tensors(record, stream->npu, operation);
    return record;
}

void
rps_npu_record_free(struct rps_npu_record *record)
{
    free(record);
}

static uint64_t
bytes_of(const rps_npu_watched_tensor *tensor)
{
    uint64_t bytes = tensor->dtype == RPS_NPU_BF16
                             ? rps_npu_dtype_size(RPS_NPU_F32)
                             : rps_npu_dtype_size(tensor->dtype);

    for (uint32_t d = 0; d < tensor->ndim; d++) {
        bytes *= tensor->shape[d];
    }
    return bytes;
}

uint64_t
rps_npu_record_bytes(const struct rps_npu_record *record)
{
    const rps_npu_watched *seen = &record->seen;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < seen->input_count; i++) {
        bytes += bytes_of(&seen->inputs[i]);
    }
    for (uint32_t i = 0; i < seen->output_count; i++) {
        bytes += bytes_of(&seen->outputs[i]);
    }
    return bytes;
}

void *
rps_npu_record_before(const rps_npu *npu, const struct rps_npu_record *record)
{
    return npu->watcher.before(npu->watcher.context, &record->seen);
}

void
rps_npu_record_after(
        const rps_npu *npu, const struct rps_npu_record *record, void *token)
{
    npu->watcher.after(npu->watcher.context, token, &record->seen);
}

rps_status
rps_npu_watch(rps_npu *npu, const rps_npu_watcher *watcher)
{
    if (npu == NULL) {
        return rps_npu_missing("watch", "device");
    }
    if (watcher != NULL &&
            (watcher->before == NULL || watcher->after == NULL)) {
        return rps_npu_missing("watch",
                watcher->before == NULL ? "function before" : "function after");
    }
    npu->watcher = watcher == NULL ? (rps_npu_watcher){0} : *watcher;
    /* relaxed: rps_npu_is_watched */
    atomic_store_explicit(&npu->watched, watcher != NULL, memory_order_relaxed);
    return RPS_OK;
}
