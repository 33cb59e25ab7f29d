/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Broadcast, allreduce, barrier. Every rank cuts what it sends in the same
 * places: they follow from sizes and options alone.
 */
#include "client/collective/collective.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* MPI counts in int. */
#define BYTES_AT_ONCE  ((size_t)1 << 30)
#define FLOATS_AT_ONCE ((size_t)1 << 28)

static rps_status
check_group(const rps_collective *group)
{
    return group != NULL ? RPS_OK
                         : rps_collective_fail(RPS_E_INVAL,
                                   "no group: rps_collective_initialize() "
                                   "makes one");
}

rps_status
rps_collective_broadcast(
        rps_collective *collective, void *data, size_t bytes, uint32_t root)
{
    rps_status status = check_group(collective);

    if (status != RPS_OK) {
        return status;
    }
    if (root >= collective->size || (data == NULL && bytes > 0)) {
        return rps_collective_fail(RPS_E_INVAL,
                "broadcast: root %u of %u ranks, data %s", root,
                collective->size, data != NULL ? "given" : "NULL");
    }
    for (size_t done = 0; done < bytes && status == RPS_OK;
            done += BYTES_AT_ONCE) {
        const size_t left = bytes - done;
        const size_t part = left < BYTES_AT_ONCE ? left : BYTES_AT_ONCE;

        status = rps_collective_check(
                MPI_Bcast((char *)data + done, (int)part, MPI_BYTE,
                        collective->places[root], collective->ring),
                "broadcast");
    }
    return status;
}

/* The sum, in place. */
static rps_status
sum(rps_collective *group, float *values, size_t count)
{
    rps_status status = RPS_OK;

    for (size_t done = 0; done < count && status == RPS_OK;
            done += FLOATS_AT_ONCE) {
        const size_t left = count - done;
        const size_t part = left < FLOATS_AT_ONCE ? left : FLOATS_AT_ONCE;

        status = rps_collective_check(
                MPI_Allreduce(MPI_IN_PLACE, values + done, (int)part, MPI_FLOAT,
                        MPI_SUM, group->ring),
                "allreduce");
    }
    return status;
}

static rps_status
reduce(rps_collective *group, float *values, size_t count, enum rps_reduce how)
{
    const float share = 1.0f / (float)group->size;
    const rps_status status = sum(group, values, count);

    for (size_t i = 0; status == RPS_OK && how == RPS_REDUCE_MEAN && i < count;
            i++) {
        values[i] *= share;
    }
    return status;
}

static rps_status
check_reduce(const rps_collective *group, enum rps_reduce how)
{
    const rps_status status = check_group(group);

    if (status == RPS_OK && how != RPS_REDUCE_SUM && how != RPS_REDUCE_MEAN) {
        return rps_collective_fail(
                RPS_E_INVAL, "allreduce: %d is neither SUM nor MEAN", (int)how);
    }
    return status;
}

static rps_status
check_values(const float *values, size_t count)
{
    return values != NULL || count == 0 ? RPS_OK
                                        : rps_collective_fail(RPS_E_INVAL,
                                                  "allreduce: values are NULL");
}

rps_status
rps_collective_allreduce(rps_collective *collective, float *values,
        size_t count, enum rps_reduce how)
{
    rps_status status = check_reduce(collective, how);

    if (status == RPS_OK) {
        status = check_values(values, count);
    }
    return status == RPS_OK ? reduce(collective, values, count, how) : status;
}

/* --- many ---------------------------------------------------------------- */

static rps_status
make_bucket(rps_collective *group)
{
    if (group->bucket == NULL) {
        group->bucket = malloc(group->bucket_floats * sizeof(*group->bucket));
    }
    return group->bucket != NULL
                   ? RPS_OK
                   : rps_collective_fail(RPS_E_NOMEM,
                             "no memory for a bucket of %zu bytes",
                             group->bucket_floats * sizeof(*group->bucket));
}

/* How many tensors from `first` on go together: at least one. */
static size_t
bucket_end(const rps_collective *group, const rps_tensor *tensors, size_t n,
        size_t first, size_t *floats_out)
{
    size_t floats = tensors[first].count;
    size_t end = first + 1;

    while (end < n && floats <= group->bucket_floats &&
            tensors[end].count <= group->bucket_floats - floats) {
        floats += tensors[end].count;
        end++;
    }
    *floats_out = floats;
    return end;
}

static rps_status
reduce_bucket(rps_collective *group, const rps_tensor *tensors, size_t n,
        size_t floats, enum rps_reduce how)
{
    size_t at = 0;
    rps_status status = RPS_OK;

    assert(floats <= group->bucket_floats);
    for (size_t i = 0; i < n; i++) {
        if (tensors[i].count > 0) {
            memcpy(group->bucket + at, tensors[i].values,
                    tensors[i].count * sizeof(float));
        }
        at += tensors[i].count;
    }
    status = reduce(group, group->bucket, floats, how);
    for (size_t i = 0, from = 0; status == RPS_OK && i < n; i++) {
        if (tensors[i].count > 0) {
            memcpy(tensors[i].values, group->bucket + from,
                    tensors[i].count * sizeof(float));
        }
        from += tensors[i].count;
    }
    return status;
}

rps_status
rps_collective_allreduce_many(rps_collective *collective,
        const rps_tensor *tensors, size_t n, enum rps_reduce how)
{
    size_t floats = 0;
    size_t end = 0;
    rps_status status = check_reduce(collective, how);

    if (status == RPS_OK && tensors == NULL && n > 0) {
        status =
                rps_collective_fail(RPS_E_INVAL, "allreduce: tensors are NULL");
    }
    for (size_t i = 0; i < n && status == RPS_OK; i++) {
        status = check_values(tensors[i].values, tensors[i].count);
    }
    if (status == RPS_OK) {
        status = make_bucket(collective);
    }
    for (size_t first = 0; first < n && status == RPS_OK; first = end) {
        end = bucket_end(collective, tensors, n, first, &floats);
        status =
                end == first + 1 /* alone: where it lies */
                        ? reduce(collective, tensors[first].values, floats, how)
                        : reduce_bucket(collective, tensors + first,
                                  end - first, floats, how);
    }
    return status;
}

rps_status
rps_collective_barrier(rps_collective *collective)
{
    const rps_status status = check_group(collective);

    return status == RPS_OK ? rps_collective_check(
                                      MPI_Barrier(collective->ring), "barrier")
                            : status;
}
