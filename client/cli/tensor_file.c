/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/tensor_file.h"

#include "base/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_BYTES_MAX (64u << 20) /* JSON of a safetensors file */
#define NPY_MAGIC        "\x93NUMPY"

static rps_status
map_file(struct rps_tensor_file *file, struct rps_error *error)
{
    struct stat info;
    rps_status status = RPS_OK;
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        rps_fail(error, RPS_E_IO, "%s: %s", file->path, strerror(errno));
        return errno == ENOENT ? RPS_E_NOT_FOUND : RPS_E_IO;
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < 10) {
        status = rps_fail(error, RPS_E_CORRUPT,
                "%s: no .npy and no .safetensors file", file->path);
        goto out;
    }
    file->bytes = (size_t)info.st_size;
    file->map = mmap(NULL, file->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (file->map == MAP_FAILED) {
        file->map = NULL;
        status = rps_fail(
                error, RPS_E_IO, "%s: mmap: %s", file->path, strerror(errno));
    }
out:
    close(fd);
    return status;
}

static rps_status
open_npy(struct rps_tensor_file *file, struct rps_error *error)
{
    struct rps_error cause = {.text = ""};
    struct rps_npy npy;
    struct rps_tensor *tensor;
    rps_status status =
            rps_npy_parse(file->map, file->bytes, file->bytes, &npy, &cause);

    if (status != RPS_OK) {
        return rps_fail(error, status, "%s: %s", file->path, cause.text);
    }
    file->tensors = calloc(1, sizeof(*file->tensors));
    tensor = file->tensors;
    if (tensor == NULL || (tensor->name = strdup("")) == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", file->path);
    }
    file->count = 1;
    memcpy(tensor->dtype, npy.dtype, sizeof(tensor->dtype));
    tensor->ndim = npy.ndim;
    for (uint32_t i = 0; i < npy.ndim; i++) {
        tensor->shape[i] = npy.shape[i];
    }
    tensor->data = (const char *)file->map + npy.data_offset;
    return RPS_OK;
}

static const struct {
    const char *name; /* in safetensors */
    const char *dtype;
    size_t bytes;
} dtypes[] = {{"F32", "<f4", 4}, {"F16", "<f2", 2}, {"BF16", "bf16", 2},
        {"F64", "<f8", 8}, {"I64", "<i8", 8}, {"U64", "<u8", 8},
        {"I32", "<i4", 4}, {"U32", "<u4", 4}, {"I16", "<i2", 2},
        {"U16", "<u2", 2}, {"I8", "|i1", 1}, {"U8", "|u1", 1},
        {"BOOL", "|b1", 1}};

/* Bytes of an item; 0: a type that nobody here knows. */
static size_t
set_dtype(struct rps_tensor *tensor, const char *name)
{
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            memcpy(tensor->dtype, dtypes[i].dtype, strlen(dtypes[i].dtype) + 1);
            return dtypes[i].bytes;
        }
    }
    return 0;
}

/* Its bytes; false: not such an entry. */
static bool
set_shape(struct rps_tensor *tensor, const json_t *shape, uint64_t *bytes)
{
    if (!json_is_array(shape) || json_array_size(shape) > RPS_TENSOR_DIMS_MAX) {
        return false;
    }
    tensor->ndim = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        const json_t *item = json_array_get(shape, i);

        if (!json_is_integer(item) || json_integer_value(item) < 0) {
            return false;
        }
        tensor->shape[i] = (uint64_t)json_integer_value(item);
        if (__builtin_mul_overflow(*bytes, tensor->shape[i], bytes)) {
            return false;
        }
    }
    return true;
}

/* An array of more dimensions, or of a type that is not known, is left out: a
 * file may have others beside the rows. */
static bool
add_tensor(struct rps_tensor_file *file, const char *name, const json_t *value,
        uint64_t data, rps_status *status)
{
    struct rps_tensor *tensor = &file->tensors[file->count];
    const json_t *offsets = json_object_get(value, "data_offsets");
    const json_t *shape = json_object_get(value, "shape");
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    const json_int_t first = json_integer_value(json_array_get(offsets, 0));
    const json_int_t end = json_integer_value(json_array_get(offsets, 1));
    uint64_t bytes;

    *status = RPS_OK;
    if (dtype == NULL || json_array_size(offsets) != 2 || first < 0 ||
            end < first || (uint64_t)end > file->bytes - data) {
        return false;
    }
    bytes = set_dtype(tensor, dtype);
    if (bytes == 0 || json_array_size(shape) > RPS_TENSOR_DIMS_MAX) {
        return true;
    }
    if (!set_shape(tensor, shape, &bytes) || bytes != (uint64_t)(end - first)) {
        return false;
    }
    tensor->name = strdup(name);
    if (tensor->name == NULL) {
        *status = RPS_E_NOMEM;
        return false;
    }
    tensor->data = (const char *)file->map + data + first;
    file->count++;
    return true;
}

static rps_status
add_tensors(struct rps_tensor_file *file, json_t *root, uint64_t data,
        struct rps_error *error)
{
    const char *name;
    json_t *value;

    file->tensors = calloc(json_object_size(root) + 1, sizeof(*file->tensors));
    if (file->tensors == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", file->path);
    }
    json_object_foreach(root, name, value)
    {
        rps_status status = RPS_OK;

        if (strcmp(name, "__metadata__") != 0 &&
                !add_tensor(file, name, value, data, &status)) {
            return rps_fail(error, status == RPS_OK ? RPS_E_CORRUPT : status,
                    "%s: tensor \"%.200s\" is not {dtype, shape, "
                    "data_offsets} of bytes that the file has",
                    file->path, name);
        }
    }
    return RPS_OK;
}

static rps_status
open_safetensors(struct rps_tensor_file *file, struct rps_error *error)
{
    uint64_t header;
    json_error_t at;
    json_t *root;
    rps_status status;

    memcpy(&header, file->map, sizeof(header));
    if (header > HEADER_BYTES_MAX || header > file->bytes - sizeof(header)) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: no .npy and no .safetensors file", file->path);
    }
    root = json_loadb((const char *)file->map + sizeof(header), (size_t)header,
            JSON_REJECT_DUPLICATES, &at);
    if (!json_is_object(root)) {
        json_decref(root);
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: no .npy and no .safetensors file (its header is no JSON: "
                "%s)",
                file->path, at.text);
    }
    status = add_tensors(file, root, sizeof(header) + header, error);
    json_decref(root);
    return status;
}

rps_status
rps_tensor_file_open(
        struct rps_tensor_file *file, const char *path, struct rps_error *error)
{
    rps_status status;

    *file = (struct rps_tensor_file){.path = strdup(path)};
    if (file->path == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
    status = map_file(file, error);
    if (status == RPS_OK) {
        status = memcmp(file->map, NPY_MAGIC, strlen(NPY_MAGIC)) == 0
                         ? open_npy(file, error)
                         : open_safetensors(file, error);
    }
    if (status != RPS_OK) {
        rps_tensor_file_close(file);
    }
    return status;
}

void
rps_tensor_file_close(struct rps_tensor_file *file)
{
    for (size_t i = 0; i < file->count; i++) {
        free(file->tensors[i].name);
    }
    free(file->tensors);
    if (file->map != NULL) {
        munmap(file->map, file->bytes);
    }
    free(file->path);
    *file = (struct rps_tensor_file){.path = NULL};
}

const struct rps_tensor *
rps_tensor_find(const struct rps_tensor_file *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++) {
        if (strcmp(file->tensors[i].name, name) == 0) {
            return &file->tensors[i];
        }
    }
    return NULL;
}
