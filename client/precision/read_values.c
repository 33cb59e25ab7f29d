/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors' files: heads are compared with what the manifest says, elements are
 * brought to f64. */
#include "client/precision/read_impl.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_BYTES  4200u /* as much as base/npy reads */
#define BLOCK_BYTES 65536u

/* By enum rps_dump_dtype. bf16 lies in its file as f32. */
static const struct {
    const char *name;
    const char *npy;
    uint32_t bytes;
} dtypes[] = {
        [RPS_DUMP_F32] = {"f32", "<f4", 4},
        [RPS_DUMP_BF16] = {"bf16", "<f4", 4},
        [RPS_DUMP_F64] = {"f64", "<f8", 8},
        [RPS_DUMP_I32] = {"i32", "<i4", 4},
        [RPS_DUMP_U32] = {"u32", "<u4", 4},
        [RPS_DUMP_I64] = {"i64", "<i8", 8},
        [RPS_DUMP_U64] = {"u64", "<u8", 8},
};
#define DTYPE_COUNT (sizeof(dtypes) / sizeof(dtypes[0]))

const char *
rps_dump_dtype_name(enum rps_dump_dtype dtype)
{
    return dtypes[dtype].name;
}

bool
rps_dump_dtype_parse(const char *name, enum rps_dump_dtype *dtype_out)
{
    for (size_t i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            *dtype_out = (enum rps_dump_dtype)i;
            return true;
        }
    }
    return false;
}

static rps_status
fail_errno(struct rps_error *error, const char *path)
{
    return rps_fail(error, errno == ENOENT ? RPS_E_NOT_FOUND : RPS_E_IO,
            "cannot read %s: %s", path, strerror(errno));
}

static rps_status
read_at(int fd, const char *path, void *bytes, size_t n, off_t at,
        struct rps_error *error)
{
    char *to = bytes;

    while (n > 0) {
        const ssize_t got = pread(fd, to, n, at);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return fail_errno(error, path);
        }
        if (got == 0) {
            return rps_fail(error, RPS_E_CORRUPT, "%s: was cut", path);
        }
        to += got;
        at += got;
        n -= (size_t)got;
    }
    return RPS_OK;
}

static rps_status
parse_head(int fd, const char *path, struct rps_npy *npy,
        enum rps_dump_dtype *dtype_out, struct rps_error *error)
{
    struct rps_error why = {.text = ""};
    struct stat info;
    char head[HEAD_BYTES];
    size_t n = sizeof(head);
    rps_status status;

    if (fstat(fd, &info) != 0) {
        return fail_errno(error, path);
    }
    if (!S_ISREG(info.st_mode)) {
        return rps_fail(error, RPS_E_CORRUPT, "%s: not a file", path);
    }
    n = (uint64_t)info.st_size < n ? (size_t)info.st_size : n;
    status = read_at(fd, path, head, n, 0, error);
    if (status != RPS_OK) {
        return status;
    }
    if (rps_npy_parse(head, n, (uint64_t)info.st_size, npy, &why) != RPS_OK) {
        return rps_fail(error, RPS_E_CORRUPT, "%s: %s", path, why.text);
    }
    for (size_t i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(npy->dtype, dtypes[i].npy) == 0) {
            *dtype_out = (enum rps_dump_dtype)i;
            return RPS_OK;
        }
    }
    return rps_fail(error, RPS_E_CORRUPT,
            "%s: dtype %s is none of float32, float64, int32, uint32, int64, "
            "uint64",
            path, npy->dtype);
}

rps_status
rps_dumped_head(const char *path, struct rps_npy *npy,
        enum rps_dump_dtype *dtype_out, int *fd_out, struct rps_error *error)
{
    /* a fifo must not hold us up */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    rps_status status;

    *fd_out = -1;
    if (fd < 0) {
        return fail_errno(error, path);
    }
    status = parse_head(fd, path, npy, dtype_out, error);
    if (status != RPS_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    return RPS_OK;
}

static rps_status
check_head(const struct rps_dumped_tensor *tensor, const struct rps_npy *npy,
        enum rps_dump_dtype dtype, struct rps_error *error)
{
    if (!tensor->shape_known) {
        return RPS_OK;
    }
    if (strcmp(dtypes[tensor->dtype].npy, dtypes[dtype].npy) != 0) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: holds %s where %s is expected", tensor->file,
                dtypes[dtype].name, dtypes[tensor->dtype].name);
    }
    if (npy->ndim != tensor->ndim ||
            memcmp(npy->shape, tensor->shape,
                    npy->ndim * sizeof(npy->shape[0])) != 0) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: has another shape than the manifest says", tensor->file);
    }
    return RPS_OK;
}

static uint64_t
count_of(uint32_t ndim, const uint64_t *shape)
{
    uint64_t count = 1;

    for (uint32_t i = 0; i < ndim; i++) {
        count *= shape[i]; /* was checked against the file's size */
    }
    return count;
}

static bool
is_empty(const struct rps_dumped_tensor *tensor)
{
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] == 0) {
            return true;
        }
    }
    return false;
}

rps_status
rps_dumped_stream_open(struct rps_dumped_stream *stream,
        const struct rps_dumped_tensor *tensor, struct rps_error *error)
{
    struct rps_npy npy = {.ndim = 0};
    rps_status status;

    *stream = (struct rps_dumped_stream){
            .fd = -1, .tensor = tensor, .dtype = tensor->dtype};
    if (tensor->file == NULL) {
        return is_empty(tensor)
                       ? RPS_OK
                       : rps_fail(error, RPS_E_CORRUPT,
                                 "%s: has elements, but the manifest names no "
                                 "file of it",
                                 tensor->label != NULL ? tensor->label
                                                       : "a tensor");
    }
    status = rps_dumped_head(
            tensor->file, &npy, &stream->dtype, &stream->fd, error);
    if (status == RPS_OK) {
        status = check_head(tensor, &npy, stream->dtype, error);
    }
    if (status == RPS_OK &&
            lseek(stream->fd, (off_t)npy.data_offset, SEEK_SET) < 0) {
        status = fail_errno(error, tensor->file);
    }
    if (status != RPS_OK) {
        rps_dumped_stream_close(stream);
        return status;
    }
    stream->count = count_of(npy.ndim, npy.shape);
    return RPS_OK;
}

static void
to_numbers(const unsigned char *bytes, size_t n, enum rps_dump_dtype dtype,
        double *numbers)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char *at = bytes + i * dtypes[dtype].bytes;
        uint32_t narrow = 0;
        uint64_t wide = 0;
        float f = 0.0f;

        memcpy(dtypes[dtype].bytes == 4 ? (void *)&narrow : (void *)&wide, at,
                dtypes[dtype].bytes);
        switch (dtype) {
        case RPS_DUMP_F32:
        case RPS_DUMP_BF16:
            memcpy(&f, &narrow, sizeof(f));
            numbers[i] = (double)f;
            break;
        case RPS_DUMP_F64:
            memcpy(&numbers[i], &wide, sizeof(wide));
            break;
        case RPS_DUMP_I32:
            numbers[i] = (double)(int32_t)narrow;
            break;
        case RPS_DUMP_U32:
            numbers[i] = (double)narrow;
            break;
        case RPS_DUMP_I64:
            numbers[i] = (double)(int64_t)wide;
            break;
        case RPS_DUMP_U64:
            numbers[i] = (double)wide;
            break;
        }
    }
}

static rps_status
read_on(struct rps_dumped_stream *stream, unsigned char *bytes, size_t n,
        struct rps_error *error)
{
    while (n > 0) {
        const ssize_t got = read(stream->fd, bytes, n);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return fail_errno(error, stream->tensor->file);
        }
        if (got == 0) {
            return rps_fail(
                    error, RPS_E_CORRUPT, "%s: was cut", stream->tensor->file);
        }
        bytes += got;
        n -= (size_t)got;
    }
    return RPS_OK;
}

rps_status
rps_dumped_stream_read(struct rps_dumped_stream *stream, uint64_t n,
        double *numbers, uint64_t *keys, struct rps_error *error)
{
    const uint32_t item = dtypes[stream->dtype].bytes;
    unsigned char block[BLOCK_BYTES];

    assert(n <= stream->count - stream->at);
    assert(keys == NULL || stream->dtype == RPS_DUMP_U64 ||
            stream->dtype == RPS_DUMP_I64);
    while (n > 0) {
        const uint64_t room = sizeof(block) / item;
        const size_t now = (size_t)(n < room ? n : room);
        const rps_status status = read_on(stream, block, now * item, error);

        if (status != RPS_OK) {
            rps_dumped_stream_close(stream);
            return status;
        }
        to_numbers(block, now, stream->dtype, numbers);
        if (keys != NULL) {
            memcpy(keys, block, now * item);
            keys += now;
        }
        numbers += now;
        stream->at += now;
        n -= now;
    }
    return RPS_OK;
}

void
rps_dumped_stream_close(struct rps_dumped_stream *stream)
{
    if (stream->fd >= 0) {
        close(stream->fd);
    }
    stream->fd = -1;
    stream->count = stream->at = 0;
}

rps_status
rps_dumped_load(const struct rps_dumped_tensor *tensor,
        struct rps_dumped_values *values_out, struct rps_error *error)
{
    struct rps_dumped_stream stream;
    rps_status status = rps_dumped_stream_open(&stream, tensor, error);
    const uint64_t count = stream.count;
    bool whole;

    *values_out = (struct rps_dumped_values){.count = 0};
    if (status != RPS_OK) {
        return status;
    }
    whole = stream.dtype == RPS_DUMP_U64 || stream.dtype == RPS_DUMP_I64;
    values_out->count = count;
    values_out->numbers = calloc(count > 0 ? count : 1, sizeof(double));
    values_out->keys =
            whole ? calloc(count > 0 ? count : 1, sizeof(uint64_t)) : NULL;
    if (values_out->numbers == NULL || (whole && values_out->keys == NULL)) {
        status = rps_fail(error, RPS_E_NOMEM,
                "%s: no memory for its %llu numbers",
                tensor->file != NULL ? tensor->file : "a tensor",
                (unsigned long long)count);
    } else {
        status = rps_dumped_stream_read(
                &stream, count, values_out->numbers, values_out->keys, error);
    }
    rps_dumped_stream_close(&stream);
    if (status != RPS_OK) {
        rps_dumped_values_free(values_out);
    }
    return status;
}

void
rps_dumped_values_free(struct rps_dumped_values *values)
{
    free(values->numbers);
    free(values->keys);
    *values = (struct rps_dumped_values){.count = 0};
}
