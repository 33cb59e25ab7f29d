/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/npu/fake_device.h"

#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void
fake_device_init(struct fake_device *device, uint64_t capacity)
{
    memset(device, 0, sizeof(*device));
    pthread_mutex_init(&device->lock, NULL);
    device->capacity = capacity;
}

void
fake_device_finish(struct fake_device *device)
{
    ck_assert_uint_eq(device->taken, 0);
    pthread_mutex_destroy(&device->lock);
}

/* First fit, as a driver does it. */
static size_t
find_gap(const struct fake_device *device, uint64_t bytes, uint64_t *at_out)
{
    uint64_t at = FAKE_BASE;
    size_t i;

    for (i = 0; i < device->count; i++) {
        if (device->segments[i].address - at >= bytes) {
            break;
        }
        at = device->segments[i].address + device->segments[i].bytes;
    }
    *at_out = at;
    return i;
}

static rps_status
take(void *context, uint64_t bytes, void **address_out, struct rps_error *error)
{
    struct fake_device *device = context;
    rps_status status = RPS_OK;
    uint64_t at;
    size_t i;

    pthread_mutex_lock(&device->lock);
    i = find_gap(device, bytes, &at);
    if (at + bytes > FAKE_BASE + device->capacity) {
        status = rps_fail(error, RPS_E_NOMEM,
                "capacity %" PRIu64 ", taken %" PRIu64, device->capacity,
                device->taken);
    } else {
        ck_assert_uint_lt(device->count, FAKE_SEGMENTS_MAX);
        memmove(&device->segments[i + 1], &device->segments[i],
                (device->count - i) * sizeof(device->segments[0]));
        device->segments[i] = (struct fake_segment){at, bytes};
        device->count++;
        device->taken += bytes;
        device->takes++;
        *address_out = (void *)(uintptr_t)at;
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

static void
give(void *context, void *address)
{
    struct fake_device *device = context;
    size_t i = 0;

    for (size_t s = 0; s < device->stream_count; s++) {
        fake_stream_finish(&device->streams[s]);
    }
    pthread_mutex_lock(&device->lock);
    while (i < device->count &&
            device->segments[i].address != (uint64_t)(uintptr_t)address) {
        i++;
    }
    ck_assert_uint_lt(i, device->count);
    device->taken -= device->segments[i].bytes;
    device->count--;
    memmove(&device->segments[i], &device->segments[i + 1],
            (device->count - i) * sizeof(device->segments[0]));
    pthread_mutex_unlock(&device->lock);
}

static const char *
stream_name(void *context, const rps_npu_stream *stream)
{
    return stream->name;
}

static bool
mark(void *context, const rps_npu_stream *stream, uint64_t *position_out)
{
    *position_out = stream->given;
    return !stream->captures;
}

static bool
passed(void *context, const rps_npu_stream *stream, uint64_t position)
{
    return stream->done >= position;
}

static bool
follows(void *context, const rps_npu_stream *owner,
        const rps_npu_stream *stream, uint64_t place)
{
    return owner->other == stream && owner->known >= place;
}

/* The device goes on until then. */
static void
wait_for(void *context, rps_npu_stream *stream, uint64_t position)
{
    struct fake_device *device = context;

    pthread_mutex_lock(&device->lock);
    device->waits++;
    pthread_mutex_unlock(&device->lock);
    fake_stream_reach(stream, position);
}

struct rps_npu_pool *
fake_pool_create(struct fake_device *device)
{
    const struct rps_pool_driver driver = {
            .context = device,
            .take = take,
            .give = give,
            .stream_name = stream_name,
            .mark = mark,
            .passed = passed,
            .follows = follows,
            .wait = wait_for,
    };
    struct rps_npu_pool *pool = rps_pool_create(&driver);

    ck_assert_ptr_nonnull(pool);
    return pool;
}

void
fake_stream_reach(rps_npu_stream *stream, uint64_t number)
{
    uint64_t done = stream->done;

    while (done < number &&
            !atomic_compare_exchange_weak(&stream->done, &done, number)) {
    }
}

void
fake_stream_give(rps_npu_stream *stream)
{
    stream->given++;
}

void
fake_stream_finish(rps_npu_stream *stream)
{
    fake_stream_reach(stream, stream->given);
}

void *
fake_alloc(struct rps_npu_pool *pool, rps_npu_stream *stream, uint64_t bytes)
{
    struct rps_error error = {.text = ""};
    void *address = NULL;

    ck_assert_msg(rps_pool_alloc(pool, stream, NULL, bytes, &address, &error) ==
                          RPS_OK,
            "%s", error.text);
    return address;
}

void
fake_free(struct rps_npu_pool *pool, void *address)
{
    struct rps_error error = {.text = ""};

    ck_assert_msg(
            rps_pool_free(pool, address, &error) == RPS_OK, "%s", error.text);
}

void
fake_record_place(struct rps_npu_pool *pool, void *address,
        rps_npu_stream *stream, uint64_t place)
{
    struct rps_error error = {.text = ""};

    ck_assert_msg(rps_pool_record_stream(
                          pool, address, stream, place, &error) == RPS_OK,
            "%s", error.text);
}

void
fake_record(struct rps_npu_pool *pool, void *address, rps_npu_stream *stream)
{
    fake_record_place(pool, address, stream, RPS_POOL_NO_PLACE);
}

rps_npu_pool_stats
fake_stats(struct rps_npu_pool *pool)
{
    rps_npu_pool_stats stats;

    rps_pool_read_stats(pool, &stats);
    return stats;
}
