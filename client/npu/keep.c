/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/keep.h"

#include "client/npu/capture.h"
#include "client/npu/error.h"
#include "client/npu/pool_device.h"
#include "client/npu/tensor.h"

#include <inttypes.h>
#include <stdlib.h>

/* A view that a step holds. */
struct rps_npu_kept {
    rps_npu_tensor view;
    struct rps_npu_kept *next;
};

/* Steps hold variables and inputs, of which there are some dozens. */
static bool
is_kept(const struct rps_npu_step *step, const rps_npu_tensor *tensor)
{
    const struct rps_npu_kept *kept = step->kept;

    while (kept != NULL && kept->view.storage != tensor->storage) {
        kept = kept->next;
    }
    return kept != NULL;
}

static rps_status
keep_in_step(struct rps_npu_step *step, const char *operation,
        const rps_npu_tensor *tensor)
{
    struct rps_npu_kept *kept = NULL;

    if (is_kept(step, tensor)) {
        return RPS_OK;
    }
    kept = calloc(1, sizeof(*kept));
    if (kept == NULL) {
        return rps_npu_nomem(operation);
    }
    kept->view = rps_npu_tensor_retain(tensor);
    kept->next = step->kept;
    step->kept = kept;
    return RPS_OK;
}

static rps_status
keep(rps_npu_stream *stream, const char *operation,
        const rps_npu_tensor *tensor)
{
    if (tensor->storage == NULL) {
        return RPS_OK;
    }
    if (rps_npu_storage_device(tensor->storage) != stream->npu) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 " stream \"%s\": %s: a tensor is another "
                "device's",
                stream->npu->id, stream->name, operation);
    }
    if (rps_npu_stream_captures(stream)) {
        struct rps_npu_step *step = stream->capture->step;

        if (rps_npu_storage_step(tensor->storage) !=
                rps_pool_private_number(step->memory)) {
            return keep_in_step(step, operation, tensor);
        }
    }
    return rps_npu_storage_stream(tensor->storage) == stream->number
                   ? RPS_OK
                   : rps_npu_pool_note_use(
                             rps_npu_storage_address(tensor->storage), stream);
}

rps_status
rps_npu_keep(rps_npu_stream *stream, const char *operation,
        const rps_npu_tensor *tensors, uint32_t count)
{
    rps_status status = RPS_OK;

    for (uint32_t i = 0; i < count && status == RPS_OK; i++) {
        status = keep(stream, operation, &tensors[i]);
    }
    return status;
}

void
rps_npu_keep_nothing(struct rps_npu_step *step)
{
    while (step->kept != NULL) {
        struct rps_npu_kept *kept = step->kept;

        step->kept = kept->next;
        rps_npu_tensor_release(&kept->view);
        free(kept);
    }
}
