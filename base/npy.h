/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NumPy's .npy, version 1.0, C order, little-endian: the header is padded to
 * a fixed 128 bytes, so that the shape can be written last.
 */
#ifndef RPS_BASE_NPY_H
#define RPS_BASE_NPY_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define RPS_NPY_HEADER_BYTES 128u
#define RPS_NPY_DIMS_MAX     4u

struct rps_npy {
    char dtype[8]; /* "<u8", "<f4", "<u1" is written "|u1" */
    uint32_t ndim;
    uint64_t shape[RPS_NPY_DIMS_MAX];
    size_t data_offset; /* set by parse */
    size_t item_bytes;  /* set by parse */
};

/** Write exactly RPS_NPY_HEADER_BYTES. */
void rps_npy_header(const struct rps_npy *npy, char out[RPS_NPY_HEADER_BYTES]);

/**
 * Read the header of any .npy 1.x..3.x that is C-ordered and little-endian.
 * file_bytes: the whole file's size; a shape that does not match is CORRUPT.
 */
rps_status rps_npy_parse(const void *bytes, size_t n, uint64_t file_bytes,
        struct rps_npy *npy, struct rps_error *error);

#endif /* RPS_BASE_NPY_H */
