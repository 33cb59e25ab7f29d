/* SPDX-License-Identifier: Apache-2.0 */
/* One tensor as an .npy file: elements in C order, whatever their strides. */
#include "base/file.h"
#include "base/half.h"
#include "base/npy.h"
#include "client/precision/dump_impl.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES 65536u

struct dtype {
    const char *name; /* in the manifest */
    const char *npy;  /* in the file */
    uint32_t bytes;   /* of an element in memory */
    uint32_t written; /* in the file */
};

static const struct dtype dtypes[] = {
        [RPS_DUMP_F32] = {"f32", "<f4", 4, 4},
        [RPS_DUMP_BF16] = {"bf16", "<f4", 2, 4},
        [RPS_DUMP_F64] = {"f64", "<f8", 8, 8},
        [RPS_DUMP_I32] = {"i32", "<i4", 4, 4},
        [RPS_DUMP_U32] = {"u32", "<u4", 4, 4},
        [RPS_DUMP_I64] = {"i64", "<i8", 8, 8},
        [RPS_DUMP_U64] = {"u64", "<u8", 8, 8},
};

static uint64_t
elements_of(const struct rps_dump_tensor *tensor)
{
    uint64_t n = 1;

    for (uint32_t d = 0; d < tensor->ndim; d++) {
        n *= tensor->shape[d];
    }
    return n;
}

/* Its bytes in a file: header and elements, bf16 as f32. */
static uint64_t
file_bytes(const struct rps_dump_tensor *tensor)
{
    return RPS_NPY_HEADER_BYTES +
           elements_of(tensor) * dtypes[tensor->dtype].written;
}

/* --- elements ----------------------------------------------------------------
 */

static bool
is_contiguous(const struct rps_dump_tensor *tensor)
{
    uint64_t stride = 1;

    for (uint32_t d = tensor->ndim; d-- > 0;) {
        if (tensor->shape[d] != 1 && tensor->strides[d] != stride) {
            return false;
        }
        stride *= tensor->shape[d];
    }
    return true;
}

/* Where a walk over all elements in C order stands. */
struct walk {
    const struct rps_dump_tensor *tensor;
    uint64_t index[RPS_DUMP_DIMS_MAX];
    uint64_t at; /* elements from the first one: index . strides */
};

static void
step_on(struct walk *walk)
{
    const struct rps_dump_tensor *tensor = walk->tensor;

    for (uint32_t d = tensor->ndim; d-- > 0;) {
        walk->at += tensor->strides[d];
        if (++walk->index[d] < tensor->shape[d]) {
            return;
        }
        walk->at -= tensor->strides[d] * tensor->shape[d];
        walk->index[d] = 0;
    }
}

/* The next `count` elements as the file has them. */
static void
gather(struct walk *walk, uint8_t *out, size_t count)
{
    const struct dtype *dtype = &dtypes[walk->tensor->dtype];
    const uint8_t *bytes = walk->tensor->bytes;

    for (size_t i = 0; i < count; i++, out += dtype->written) {
        const uint8_t *from = bytes + walk->at * dtype->bytes;

        if (walk->tensor->dtype == RPS_DUMP_BF16) {
            uint16_t half;
            float number;

            memcpy(&half, from, sizeof(half));
            number = rps_float_of_bf16(half);
            memcpy(out, &number, sizeof(number));
        } else {
            memcpy(out, from, dtype->bytes);
        }
        step_on(walk);
    }
}

static rps_status
write_gathered(const struct rps_dump_tensor *tensor, int fd, const char *path,
        struct rps_error *error)
{
    struct walk walk = {.tensor = tensor};
    const size_t size = dtypes[tensor->dtype].written;
    uint64_t left = elements_of(tensor);
    uint8_t *buffer = malloc(BUFFER_BYTES);
    rps_status status = RPS_OK;

    if (buffer == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "dump: %s: no memory", path);
    }
    while (status == RPS_OK && left > 0) {
        const size_t count =
                left < BUFFER_BYTES / size ? (size_t)left : BUFFER_BYTES / size;

        gather(&walk, buffer, count);
        status = rps_fd_write_all(fd, buffer, count * size, path, error);
        left -= count;
    }
    free(buffer);
    return status;
}

static rps_status
write_elements(const struct rps_dump_tensor *tensor, int fd, const char *path,
        struct rps_error *error)
{
    if (tensor->dtype != RPS_DUMP_BF16 && is_contiguous(tensor)) {
        return rps_fd_write_all(fd, tensor->bytes,
                (size_t)(elements_of(tensor) * dtypes[tensor->dtype].bytes),
                path, error);
    }
    return write_gathered(tensor, fd, path, error);
}

/* --- the file ----------------------------------------------------------------
 */

/* A half file is none: it is removed. */
static rps_status
write_file(const struct rps_dump_tensor *tensor, const char *path,
        struct rps_error *error)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    struct rps_npy npy = {.ndim = tensor->ndim};
    char header[RPS_NPY_HEADER_BYTES];
    rps_status status;

    if (fd < 0) {
        return rps_fail(error, RPS_E_IO, "dump: cannot create %s: %s", path,
                strerror(errno));
    }
    memcpy(npy.dtype, dtypes[tensor->dtype].npy, 4);
    memcpy(npy.shape, tensor->shape, tensor->ndim * sizeof(npy.shape[0]));
    rps_npy_header(&npy, header);
    status = rps_fd_write_all(fd, header, sizeof(header), path, error);
    if (status == RPS_OK) {
        status = write_elements(tensor, fd, path, error);
    }
    if (close(fd) != 0 && status == RPS_OK) {
        status = rps_fail(error, RPS_E_IO, "dump: cannot write %s: %s", path,
                strerror(errno));
    }
    if (status != RPS_OK) {
        (void)unlink(path);
    }
    return status;
}

static json_t *
numbers_of(const uint64_t *numbers, uint32_t count)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(
                array, json_integer((json_int_t)numbers[i]));
    }
    return array;
}

static json_t *
describe(const struct rps_dump_tensor *tensor, const char *file)
{
    char place[24];
    json_t *entry = json_pack("{s:s?, s:s?, s:s, s:o, s:o}", "file", file,
            "label", tensor->label, "dtype", dtypes[tensor->dtype].name,
            "shape", numbers_of(tensor->shape, tensor->ndim), "strides",
            numbers_of(tensor->place_strides != NULL ? tensor->place_strides
                                                     : tensor->strides,
                    tensor->ndim));

    if (entry != NULL && tensor->place != 0) {
        (void)snprintf(place, sizeof(place), "0x%" PRIx64, tensor->place);
        (void)json_object_set_new(entry, "place", json_string(place));
    }
    return entry;
}

static rps_status
write_some(struct rps_dump *dump, const struct rps_dump_token *token,
        const char *way, uint32_t index, const struct rps_dump_tensor *tensor,
        char **path_out, struct rps_error *error)
{
    uint64_t timestamp = 0;
    rps_status status =
            rps_dump_reserve(dump, file_bytes(tensor), &timestamp, error);

    if (status != RPS_OK) {
        return status;
    }
    *path_out = rps_format("%s/%s.%" PRIu64 ".%s.%" PRIu32 ".npy",
            token->step->folder, token->stem, timestamp, way, index);
    return *path_out == NULL ? rps_fail(error, RPS_E_NOMEM, "dump: no memory")
                             : write_file(tensor, *path_out, error);
}

rps_status
rps_dump_tensor_write(struct rps_dump *dump, const struct rps_dump_token *token,
        const char *way, uint32_t index, const struct rps_dump_tensor *tensor,
        json_t **entry_out, struct rps_error *error)
{
    char *path = NULL;
    rps_status status = RPS_OK;

    assert(tensor->ndim <= RPS_DUMP_DIMS_MAX);
    assert((size_t)tensor->dtype < sizeof(dtypes) / sizeof(dtypes[0]));
    *entry_out = NULL;
    if (tensor->bytes != NULL && elements_of(tensor) > 0) {
        status = write_some(dump, token, way, index, tensor, &path, error);
    }
    if (status == RPS_OK) {
        *entry_out =
                describe(tensor, path == NULL ? NULL : strrchr(path, '/') + 1);
        status = *entry_out != NULL
                         ? RPS_OK
                         : rps_fail(error, RPS_E_NOMEM, "dump: no memory");
    }
    free(path);
    return status;
}
