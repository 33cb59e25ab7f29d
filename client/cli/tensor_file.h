/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays in files of others: .npy, and .safetensors, which is
 *
 *   u64 n | n bytes of JSON: {"name": {"dtype": "F32", "shape": [2, 3],
 *   "data_offsets": [first, end]}, …} | data, from which offsets count
 *
 * Both little-endian. They are mapped, so that none has to fit into memory;
 * what they say of themselves is checked against their length.
 */
#ifndef RPS_CLIENT_CLI_TENSOR_FILE_H
#define RPS_CLIENT_CLI_TENSOR_FILE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_TENSOR_DIMS_MAX 4u

/** Data of an array, not aligned: it is copied out item by item. */
struct rps_tensor {
    char *name;    /* of the file, or in it */
    char dtype[8]; /* as .npy has it; "bf16" is a safetensors BF16 */
    const void *data;
    uint32_t ndim;
    uint64_t shape[RPS_TENSOR_DIMS_MAX];
};

/** One file; zeroed it is closed. */
struct rps_tensor_file {
    char *path;
    void *map; /* NULL: nothing is mapped */
    size_t bytes;
    struct rps_tensor *tensors;
    size_t count;
};

/** By its first bytes. Errors: NOT_FOUND, IO, CORRUPT (neither of the two, or
 * not what it says), UNSUPPORTED, NOMEM; the words name the file. */
rps_status rps_tensor_file_open(struct rps_tensor_file *file, const char *path,
        struct rps_error *error);
void rps_tensor_file_close(struct rps_tensor_file *file);

/** By name; NULL: it is not there. */
const struct rps_tensor *rps_tensor_find(
        const struct rps_tensor_file *file, const char *name);

#endif /* RPS_CLIENT_CLI_TENSOR_FILE_H */
