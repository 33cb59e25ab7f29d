/* SPDX-License-Identifier: Apache-2.0 */
/* The pool as npu.h has it. */
#include "client/npu/pool_device.h"

#include "base/clock.h"
#include "client/npu/capture.h"
#include "client/npu/device.h"
#include "client/npu/error.h"
#include "client/npu/stream.h"
#include "client/profile/profile.h"

#include <inttypes.h>
#include <stdio.h>

/* --- the device under the pool ------------------------------------------- */

static rps_status
take(void *context, uint64_t bytes, void **address_out, struct rps_error *error)
{
    rps_npu *npu = context;
    const rps_status status =
            rps_npu_memory_take(&npu->memory, bytes, true, address_out);

    return status == RPS_OK ? RPS_OK
                            : rps_fail(error, status, "%s", rps_npu_error());
}

static void
give(void *context, void *address)
{
    (void)rps_npu_give_back(context, address, true);
}

static const char *
stream_name(void *context, const rps_npu_stream *stream)
{
    return stream->name;
}

static bool
mark(void *context, const rps_npu_stream *stream, uint64_t *position_out)
{
    *position_out = rps_npu_stream_position(stream);
    return !rps_npu_stream_captures(stream);
}

static bool
passed(void *context, const rps_npu_stream *stream, uint64_t position)
{
    return rps_npu_stream_passed(stream, position);
}

static bool
follows(void *context, const rps_npu_stream *owner,
        const rps_npu_stream *stream, uint64_t place)
{
    return rps_npu_capture_follows(owner, stream, place);
}

static void
wait_for(void *context, rps_npu_stream *stream, uint64_t position)
{
    rps_npu_stream_drain(stream);
}

rps_status
rps_npu_pool_open(rps_npu *npu)
{
    const struct rps_pool_driver driver = {
            .context = npu,
            .capacity = npu->memory.capacity,
            .take = take,
            .give = give,
            .stream_name = stream_name,
            .mark = mark,
            .passed = passed,
            .follows = follows,
            .wait = wait_for,
    };

    npu->pool = rps_pool_create(&driver);
    return npu->pool != NULL ? RPS_OK : rps_npu_nomem("open a device");
}

void
rps_npu_pool_close(rps_npu *npu)
{
    rps_pool_destroy(npu->pool);
    npu->pool = NULL;
}

/* --- calls ------------------------------------------------------------------
 */

static void
show_figure(const rps_npu *npu, const char *what, uint64_t ns, uint64_t bytes)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "npu%" PRIu32 " %s", npu->id, what);
    rps_profile_figure(name, ns, (double)bytes);
}

void
rps_npu_pool_show(rps_npu *npu)
{
    rps_npu_pool_stats stats;
    uint64_t ns;

    if (!rps_profile_is_on()) {
        return;
    }
    rps_pool_read_stats(npu->pool, &stats);
    ns = rps_clock_ns();
    show_figure(npu, "allocated", ns, stats.allocated.now);
    show_figure(npu, "active", ns, stats.active.now);
    show_figure(npu, "reserved", ns, stats.reserved.now);
}

/* The pool's words, as the device's. */
static rps_status
answer(const rps_npu *npu, rps_status status, const char *operation,
        const struct rps_error *error)
{
    return status == RPS_OK ? RPS_OK
                            : rps_npu_fail(status, "npu%" PRIu32 ": %s: %s",
                                      npu->id, operation, error->text);
}

rps_status
rps_npu_pool_take(rps_npu_stream *stream, struct rps_pool_private *memory,
        uint64_t bytes, void **address_out)
{
    struct rps_error error = {.text = ""};
    const rps_status status = rps_pool_alloc(
            stream->npu->pool, stream, memory, bytes, address_out, &error);

    rps_npu_pool_show(stream->npu);
    return answer(stream->npu, status, "memory of the pool", &error);
}

struct rps_pool_private *
rps_npu_pool_step_of(const rps_npu_stream *stream)
{
    return rps_npu_stream_captures(stream) ? stream->capture->step->memory
                                           : NULL;
}

rps_status
rps_npu_pool_alloc(rps_npu_stream *stream, uint64_t bytes, void **address_out)
{
    if (address_out == NULL) {
        return rps_npu_missing("memory of the pool", "address_out");
    }
    *address_out = NULL;
    if (stream == NULL) {
        return rps_npu_fail(
                RPS_E_INVAL, "memory of the pool: no stream is given");
    }
    return rps_npu_pool_take(
            stream, rps_npu_pool_step_of(stream), bytes, address_out);
}

rps_status
rps_npu_pool_free(rps_npu *npu, void *address)
{
    struct rps_error error = {.text = ""};
    rps_status status;

    if (npu == NULL) {
        return rps_npu_missing("give memory back to the pool", "device");
    }
    if (address == NULL) {
        return RPS_OK;
    }
    status = rps_pool_free(npu->pool, address, &error);
    rps_npu_pool_show(npu);
    return answer(npu, status, "give memory back to the pool", &error);
}

static rps_status
record(void *address, rps_npu_stream *stream, uint64_t place)
{
    struct rps_error error = {.text = ""};

    return answer(stream->npu,
            rps_pool_record_stream(
                    stream->npu->pool, address, stream, place, &error),
            "record a stream", &error);
}

rps_status
rps_npu_pool_record_stream(void *address, rps_npu_stream *stream)
{
    if (stream == NULL) {
        return rps_npu_fail(RPS_E_INVAL, "record a stream: none is given");
    }
    return record(address, stream, RPS_POOL_NO_PLACE);
}

rps_status
rps_npu_pool_note_use(void *address, rps_npu_stream *stream)
{
    return record(address, stream,
            rps_npu_stream_captures(stream) ? rps_npu_capture_place(stream)
                                            : RPS_POOL_NO_PLACE);
}

uint64_t
rps_npu_pool_trim(rps_npu *npu)
{
    return rps_pool_trim(npu->pool);
}

void
rps_npu_pool_read_stats(rps_npu *npu, rps_npu_pool_stats *stats)
{
    rps_pool_read_stats(npu->pool, stats);
}

void
rps_npu_pool_reset_peaks(rps_npu *npu)
{
    rps_pool_reset_peaks(npu->pool);
}

char *
rps_npu_pool_report(rps_npu *npu, enum rps_npu_format format)
{
    rps_npu_pool_stats stats;

    rps_pool_read_stats(npu->pool, &stats);
    return rps_pool_report(&stats, npu->id, format);
}

char *
rps_npu_pool_snapshot(rps_npu *npu)
{
    return rps_pool_snapshot(npu->pool, npu->id, npu->memory.capacity);
}
