/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing, and the memory that a driver gives. All open devices of
 * the process are known here: an address may be another one's.
 */
#include "client/npu/device.h"

#include "base/clock.h"
#include "base/text.h"
#include "client/npu/claim.h"
#include "client/npu/error.h"
#include "client/npu/pause.h"
#include "client/npu/pool_device.h"
#include "client/npu/spans.h"
#include "client/npu/stream.h"

#include <inttypes.h>
#include <stdlib.h>

#define DEVICES_DEFAULT  8u
#define MEMORY_DEFAULT   (UINT64_C(1) << 30)
#define MEMORY_BYTES_MAX (UINT64_C(1) << 46)
#define LATENCY_NS_MAX   UINT64_C(10000000000)

static struct {
    pthread_mutex_t lock;
    rps_npu *devices[RPS_NPU_DEVICES_MAX]; /* lock; by id, NULL: not open */
} opened = {.lock = PTHREAD_MUTEX_INITIALIZER};

void
rps_npu_options_init(rps_npu_options *options)
{
    *options = (rps_npu_options){
            .struct_bytes = sizeof(*options),
            .memory_bytes = MEMORY_DEFAULT,
    };
}

static rps_status
check_options(const rps_npu_options *options)
{
    if (options->struct_bytes != sizeof(*options)) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu options: struct_bytes is %" PRIu32 ", not %zu: fill them "
                "with rps_npu_options_init()",
                options->struct_bytes, sizeof(*options));
    }
    if (options->memory_bytes < RPS_NPU_PAGE_BYTES ||
            options->memory_bytes > MEMORY_BYTES_MAX) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu options: memory_bytes is %" PRIu64 ", not %u to %" PRIu64,
                options->memory_bytes, RPS_NPU_PAGE_BYTES, MEMORY_BYTES_MAX);
    }
    if (options->copy_latency_ns > LATENCY_NS_MAX ||
            options->launch_latency_ns > LATENCY_NS_MAX) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu options: a latency is over %" PRIu64 " ns",
                LATENCY_NS_MAX);
    }
    return RPS_OK;
}

static rps_status
check_id(uint32_t id)
{
    const char *text = getenv("RPS_NPU_DEVICES");
    uint64_t devices = DEVICES_DEFAULT;

    if (text != NULL &&
            (!rps_parse_u64(text, &devices) || devices > RPS_NPU_DEVICES_MAX)) {
        return rps_npu_fail(RPS_E_INVAL,
                "RPS_NPU_DEVICES is \"%s\", no number from 0 to %u", text,
                RPS_NPU_DEVICES_MAX);
    }
    if (id >= devices) {
        return rps_npu_fail(RPS_E_INVAL,
                "no npu%" PRIu32 ": this host has %" PRIu64
                ", counted from 0 (RPS_NPU_DEVICES)",
                id, devices);
    }
    return RPS_OK;
}

static void
free_device(rps_npu *npu)
{
    rps_npu_pool_close(npu);
    pthread_mutex_destroy(&npu->launch_lock);
    pthread_mutex_destroy(&npu->lock);
    rps_npu_tally_finish(&npu->tally);
    rps_npu_link_finish(&npu->links[RPS_NPU_TO_HOST]);
    rps_npu_link_finish(&npu->links[RPS_NPU_TO_DEVICE]);
    rps_npu_memory_finish(&npu->memory);
    free(npu);
}

static rps_status
make_device(uint32_t id, const rps_npu_options *options, rps_npu **npu_out)
{
    rps_npu *npu = calloc(1, sizeof(*npu));
    rps_status status = RPS_OK;

    if (npu == NULL) {
        return rps_npu_nomem("open a device");
    }
    status = rps_npu_memory_init(&npu->memory, options->memory_bytes);
    if (status != RPS_OK) {
        free(npu);
        return status;
    }
    npu->id = id;
    npu->options = *options;
    for (int way = RPS_NPU_TO_DEVICE; way <= RPS_NPU_TO_HOST; way++) {
        rps_npu_link_init(&npu->links[way], options->link_bytes_per_second,
                options->copy_latency_ns);
    }
    rps_npu_tally_init(&npu->tally);
    pthread_mutex_init(&npu->lock, NULL);
    pthread_mutex_init(&npu->launch_lock, NULL);
    status = rps_npu_pool_open(npu);
    if (status != RPS_OK) {
        free_device(npu);
        return status;
    }
    *npu_out = npu;
    return RPS_OK;
}

static void
enter(uint32_t id, rps_npu *npu)
{
    pthread_mutex_lock(&opened.lock);
    opened.devices[id] = npu;
    pthread_mutex_unlock(&opened.lock);
}

rps_status
rps_npu_open(rps_npu **npu_out, uint32_t id, const rps_npu_options *options)
{
    rps_npu_options defaults;
    rps_status status = RPS_OK;

    if (npu_out == NULL) {
        return rps_npu_missing("open a device", "npu_out");
    }
    *npu_out = NULL;
    rps_npu_options_init(&defaults);
    options = options == NULL ? &defaults : options;
    status = check_options(options);
    if (status == RPS_OK) {
        status = check_id(id);
    }
    if (status == RPS_OK) {
        status = rps_npu_claim(id);
    }
    if (status != RPS_OK) {
        return status;
    }
    status = make_device(id, options, npu_out);
    if (status != RPS_OK) {
        rps_npu_disclaim(id);
        return status;
    }
    enter(id, *npu_out);
    return RPS_OK;
}

void
rps_npu_close(rps_npu *npu)
{
    if (npu == NULL) {
        return;
    }
    rps_npu_wait_idle(npu);
    enter(npu->id, NULL);
    rps_npu_disclaim(npu->id);
    free_device(npu);
}

uint32_t
rps_npu_id(const rps_npu *npu)
{
    return npu->id;
}

rps_status
rps_npu_malloc(rps_npu *npu, uint64_t bytes, void **address_out)
{
    if (address_out == NULL) {
        return rps_npu_missing("malloc", "address_out");
    }
    *address_out = NULL;
    if (npu == NULL) {
        return rps_npu_missing("malloc", "device");
    }
    if (bytes == 0) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 ": malloc: of 0 bytes: ask for one at least",
                npu->id);
    }
    return rps_npu_memory_take(&npu->memory, bytes, false, address_out);
}

bool
rps_npu_give_back(rps_npu *npu, void *address, bool pooled)
{
    if (!rps_npu_memory_is_taken(&npu->memory, address, pooled)) {
        return false;
    }
    rps_npu_wait_idle(npu);
    return rps_npu_memory_give_back(&npu->memory, address, pooled);
}

rps_status
rps_npu_free(rps_npu *npu, void *address)
{
    bool pooled = false;

    if (npu == NULL) {
        return rps_npu_missing("free", "device");
    }
    if (address == NULL || rps_npu_give_back(npu, address, false)) {
        return RPS_OK;
    }
    (void)rps_npu_memory_left(&npu->memory, address, &pooled);
    return rps_npu_fail(RPS_E_INVAL,
            "npu%" PRIu32 ": free: %p is not of rps_npu_malloc(), or is free "
            "already%s",
            npu->id, address,
            pooled ? ": it is the pool's memory, whose blocks "
                     "rps_npu_pool_free() takes"
                   : "");
}

void
rps_npu_memory(const rps_npu *npu, uint64_t *free_out, uint64_t *capacity_out)
{
    *free_out = rps_npu_memory_free_bytes(&npu->memory);
    *capacity_out = npu->memory.capacity;
}

bool
rps_npu_is_device_address(const rps_npu *npu, const void *address)
{
    return rps_npu_memory_has(&npu->memory, address);
}

bool
rps_npu_is_any_device_address(const void *address)
{
    bool is = false;

    pthread_mutex_lock(&opened.lock);
    for (uint32_t id = 0; id < RPS_NPU_DEVICES_MAX && !is; id++) {
        is = opened.devices[id] != NULL &&
             rps_npu_memory_has(&opened.devices[id]->memory, address);
    }
    pthread_mutex_unlock(&opened.lock);
    return is;
}

rps_status
rps_npu_check_range(rps_npu *npu, const char *operation, const char *side,
        const void *address, uint64_t bytes)
{
    bool pooled = false;
    uint64_t left = rps_npu_memory_left(&npu->memory, address, &pooled);

    if (pooled) {
        left = rps_pool_left(npu->pool, address);
    }
    if (left > 0 && bytes <= left) {
        return RPS_OK;
    }
    if (left > 0) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 ": %s: %s: %" PRIu64 " bytes from %p leave their "
                "allocation, which ends after %" PRIu64,
                npu->id, operation, side, bytes, address, left);
    }
    return rps_npu_fail(RPS_E_INVAL,
            "npu%" PRIu32 ": %s: %s: %p is %s, and must be memory that was "
            "taken of this device",
            npu->id, operation, side, address,
            rps_npu_memory_has(&npu->memory, address)
                    ? "free memory of this device"
            : rps_npu_is_any_device_address(address)
                    ? "another device's address"
                    : "an address of the host");
}

void *
rps_npu_inside(const rps_npu *npu, const void *address)
{
    return address == NULL ? NULL
                           : rps_npu_memory_inside(&npu->memory, address);
}

void
rps_npu_launch_pause(rps_npu *npu, const char *type)
{
    const uint64_t start = rps_npu_span_start();

    rps_npu_tally_add(&npu->tally, RPS_NPU_LAUNCHES, 1);
    if (npu->options.launch_latency_ns != 0) {
        rps_npu_pause_until(rps_clock_ns() + npu->options.launch_latency_ns);
    }
    if (start != 0) {
        rps_npu_span_end(start,
                (struct rps_profile_span){.class = RPS_PROFILE_SCHEDULING,
                        .type = type,
                        .track = RPS_NPU_HOST_TRACK});
    }
}
