/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills. A copy between host and device goes over the link. */
#include "client/npu/copy.h"

#include "client/npu/error.h"
#include "client/npu/pause.h"
#include "client/npu/spans.h"
#include "client/npu/stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct copy_task {
    struct rps_npu_task task;
    enum rps_npu_copy way;
    void *to; /* what the host's processor follows, as is from */
    const void *from;
    uint64_t bytes;
    const uint64_t *some; /* the host's: how many of them; NULL: all */
};

struct fill_task {
    struct rps_npu_task task;
    void *to;
    uint64_t bytes;
    uint8_t value;
};

static const char *const ways[] = {
        [RPS_NPU_TO_DEVICE] = "copy to the device",
        [RPS_NPU_TO_HOST] = "copy to the host",
        [RPS_NPU_ON_DEVICE] = "copy on the device",
};

static const char *const types[] = {
        [RPS_NPU_TO_DEVICE] = "to_device",
        [RPS_NPU_TO_HOST] = "to_host",
        [RPS_NPU_ON_DEVICE] = "on_device",
};

/* --- on the stream's thread ------------------------------------------------
 */

uint64_t
rps_npu_copy_begin(rps_npu *npu, enum rps_npu_copy way, uint64_t bytes)
{
    rps_npu_tally_add(&npu->tally, RPS_NPU_COPIES + way, 1);
    rps_npu_tally_add(&npu->tally, RPS_NPU_COPIED_BYTES + way, bytes);
    return way == RPS_NPU_ON_DEVICE
                   ? 0
                   : rps_npu_link_take(&npu->links[way], bytes);
}

static rps_status
run_copy(rps_npu_stream *stream, struct rps_npu_task *task)
{
    const struct copy_task *copy = (struct copy_task *)task;
    const uint64_t start = rps_npu_span_start();
    const uint64_t end =
            rps_npu_copy_begin(stream->npu, copy->way, copy->bytes);

    memcpy(copy->to, copy->from, copy->bytes);
    rps_npu_pause_until(end);
    if (start != 0) {
        rps_npu_span_end(
                start, (struct rps_profile_span){.class = RPS_PROFILE_COPY,
                               .type = types[copy->way],
                               .track = stream->track,
                               .bytes = copy->bytes});
    }
    return RPS_OK;
}

static rps_status
run_copy_some(rps_npu_stream *stream, struct rps_npu_task *task)
{
    struct copy_task copy = *(const struct copy_task *)task;

    if (*copy.some < copy.bytes) {
        copy.bytes = *copy.some;
    }
    return copy.bytes > 0 ? run_copy(stream, &copy.task) : RPS_OK;
}

static rps_status
run_fill(rps_npu_stream *stream, struct rps_npu_task *task)
{
    const struct fill_task *fill = (struct fill_task *)task;

    const uint64_t start = rps_npu_span_start();

    memset(fill->to, fill->value, fill->bytes);
    if (start != 0) {
        rps_npu_span_end(
                start, (struct rps_profile_span){.class = RPS_PROFILE_OPERATOR,
                               .type = "fill",
                               .track = stream->track,
                               .bytes = fill->bytes});
    }
    rps_npu_tally_add(&stream->npu->tally, RPS_NPU_OPERATIONS, 1);
    return RPS_OK;
}

static const struct rps_npu_task_kind copying = {
        .run = run_copy,
        .use = RPS_NPU_USE_BUSY,
        .sort = RPS_NPU_SORT_COPY,
        .launch = true,
};
static const struct rps_npu_task_kind copying_some = {
        .run = run_copy_some,
        .use = RPS_NPU_USE_BUSY,
        .sort = RPS_NPU_SORT_COPY,
        .launch = true,
};
static const struct rps_npu_task_kind filling = {
        .run = run_fill,
        .use = RPS_NPU_USE_BUSY,
        .sort = RPS_NPU_SORT_OPERATION,
        .launch = true,
};

/* --- on the caller's --------------------------------------------------------
 */

static rps_status
check_host(rps_npu *npu, const char *operation, const char *side,
        const void *address)
{
    if (address == NULL || rps_npu_is_any_device_address(address)) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 ": %s: %s: %p is %s, and must be memory of the "
                "host",
                npu->id, operation, side, address,
                address == NULL ? "no address" : "a device's address");
    }
    return RPS_OK;
}

static rps_status
check_apart(rps_npu *npu, const char *operation, const void *to,
        const void *from, uint64_t bytes)
{
    const uintptr_t a = (uintptr_t)to;
    const uintptr_t b = (uintptr_t)from;

    if ((a > b ? a - b : b - a) < bytes) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 ": %s: the %" PRIu64 " bytes to %p and from %p "
                "overlap",
                npu->id, operation, bytes, to, from);
    }
    return RPS_OK;
}

static rps_status
check_copy(rps_npu *npu, void *to, const void *from, uint64_t bytes,
        enum rps_npu_copy way)
{
    const char *operation = ways[way];
    rps_status status =
            way == RPS_NPU_TO_HOST
                    ? check_host(npu, operation, "to", to)
                    : rps_npu_check_range(npu, operation, "to", to, bytes);

    if (status != RPS_OK) {
        return status;
    }
    status = way == RPS_NPU_TO_DEVICE
                     ? check_host(npu, operation, "from", from)
                     : rps_npu_check_range(npu, operation, "from", from, bytes);
    if (status == RPS_OK && way == RPS_NPU_ON_DEVICE) {
        status = check_apart(npu, operation, to, from, bytes);
    }
    return status;
}

static rps_status
check_way(enum rps_npu_copy way)
{
    if ((unsigned)way > RPS_NPU_ON_DEVICE) {
        return rps_npu_fail(RPS_E_INVAL,
                "copy: there is no way %u: to the device, to the host or on "
                "the device",
                (unsigned)way);
    }
    return RPS_OK;
}

/* some NULL: all of them. */
static rps_status
give_copy(rps_npu_stream *stream, void *to, const void *from, uint64_t bytes,
        const uint64_t *some, enum rps_npu_copy way)
{
    struct copy_task *copy = NULL;
    rps_status status = check_way(way);

    if (status == RPS_OK) {
        status = rps_npu_stream_ready(stream, ways[way]);
    }
    if (status != RPS_OK || bytes == 0) {
        return status;
    }
    status = check_copy(stream->npu, to, from, bytes, way);
    if (status != RPS_OK) {
        return status;
    }
    copy = calloc(1, sizeof(*copy));
    if (copy == NULL) {
        return rps_npu_nomem(ways[way]);
    }
    copy->task.kind = some != NULL ? &copying_some : &copying;
    copy->some = some;
    copy->way = way;
    copy->to = way == RPS_NPU_TO_HOST ? to : rps_npu_inside(stream->npu, to);
    copy->from =
            way == RPS_NPU_TO_DEVICE ? from : rps_npu_inside(stream->npu, from);
    copy->bytes = bytes;
    rps_npu_stream_give(stream, &copy->task);
    return RPS_OK;
}

rps_status
rps_npu_copy_async(rps_npu_stream *stream, void *to, const void *from,
        uint64_t bytes, enum rps_npu_copy way)
{
    return give_copy(stream, to, from, bytes, NULL, way);
}

rps_status
rps_npu_copy_some_async(rps_npu_stream *stream, void *to, const void *from,
        const uint64_t *bytes, uint64_t bytes_max, enum rps_npu_copy way)
{
    if (bytes == NULL) {
        return rps_npu_fail(
                RPS_E_INVAL, "copy: bytes is NULL: there is no number to read");
    }
    return give_copy(stream, to, from, bytes_max, bytes, way);
}

rps_status
rps_npu_copy(rps_npu_stream *stream, void *to, const void *from, uint64_t bytes,
        enum rps_npu_copy way)
{
    rps_status status = check_way(way);

    if (status == RPS_OK) {
        status = rps_npu_stream_may_wait(stream, ways[way]);
    }
    if (status == RPS_OK) {
        status = rps_npu_copy_async(stream, to, from, bytes, way);
    }
    return status == RPS_OK ? rps_npu_stream_synchronize(stream) : status;
}

rps_status
rps_npu_fill_async(
        rps_npu_stream *stream, void *to, uint8_t value, uint64_t bytes)
{
    const char *operation = "fill";
    struct fill_task *fill = NULL;
    rps_status status = rps_npu_stream_ready(stream, operation);

    if (status != RPS_OK || bytes == 0) {
        return status;
    }
    status = rps_npu_check_range(stream->npu, operation, "to", to, bytes);
    if (status != RPS_OK) {
        return status;
    }
    fill = calloc(1, sizeof(*fill));
    if (fill == NULL) {
        return rps_npu_nomem(operation);
    }
    fill->task.kind = &filling;
    fill->to = rps_npu_inside(stream->npu, to);
    fill->bytes = bytes;
    fill->value = value;
    rps_npu_stream_give(stream, &fill->task);
    return RPS_OK;
}
