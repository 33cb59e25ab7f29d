/* SPDX-License-Identifier: Apache-2.0 */
#include "base/npy.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "\x93NUMPY"

void
rps_npy_header(const struct rps_npy *npy, char out[RPS_NPY_HEADER_BYTES])
{
    const uint16_t text_bytes = RPS_NPY_HEADER_BYTES - 10;
    char shape[96] = "";
    int used = 0;
    int n = 0;

    for (uint32_t i = 0; i < npy->ndim; i++) {
        used += snprintf(shape + used, sizeof(shape) - (size_t)used,
                i + 1 < npy->ndim ? "%llu, " : "%llu",
                (unsigned long long)npy->shape[i]);
    }
    memcpy(out, MAGIC "\x01\x00", 8);
    memcpy(out + 8, &text_bytes, sizeof(text_bytes));
    n = snprintf(out + 10, text_bytes,
            "{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }",
            npy->dtype, shape, npy->ndim == 1 ? "," : "");
    memset(out + 10 + n, ' ', (size_t)text_bytes - (size_t)n);
    out[RPS_NPY_HEADER_BYTES - 1] = '\n';
}

/* The value that follows 'key': in the header's dict, or NULL. */
static const char *
value_of(const char *text, const char *key)
{
    const char *at = strstr(text, key);

    if (at == NULL) {
        return NULL;
    }
    at += strlen(key);
    while (*at == ' ' || *at == ':') {
        at++;
    }
    return at;
}

static rps_status
parse_dtype(const char *text, struct rps_npy *npy, struct rps_error *error)
{
    const char *at = value_of(text, "'descr'");
    const char *end = NULL;

    if (at == NULL || *at != '\'') {
        return rps_fail(error, RPS_E_CORRUPT, "npy header: no 'descr' text");
    }
    end = strchr(++at, '\'');
    if (end == NULL || end - at < 3 ||
            (size_t)(end - at) >= sizeof(npy->dtype) ||
            (*at != '<' && *at != '|')) {
        return rps_fail(error, RPS_E_CORRUPT,
                "npy header: dtype is not a little-endian number");
    }
    memset(npy->dtype, 0, sizeof(npy->dtype));
    memcpy(npy->dtype, at, (size_t)(end - at));
    npy->item_bytes = strtoul(npy->dtype + 2, NULL, 10);
    if (npy->item_bytes == 0 || npy->item_bytes > 16) {
        return rps_fail(
                error, RPS_E_CORRUPT, "npy header: dtype %s", npy->dtype);
    }
    return RPS_OK;
}

static rps_status
parse_shape(const char *text, struct rps_npy *npy, struct rps_error *error)
{
    const char *at = value_of(text, "'shape'");

    npy->ndim = 0;
    if (at == NULL || *at++ != '(') {
        return rps_fail(error, RPS_E_CORRUPT, "npy header: no 'shape' tuple");
    }
    for (;;) {
        char *end = NULL;
        while (*at == ' ' || *at == ',') {
            at++;
        }
        if (*at == ')') {
            return RPS_OK;
        }
        if (!isdigit((unsigned char)*at) || npy->ndim == RPS_NPY_DIMS_MAX) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "npy header: shape is not 0 to %u numbers",
                    RPS_NPY_DIMS_MAX);
        }
        npy->shape[npy->ndim++] = strtoull(at, &end, 10);
        at = end;
    }
}

static rps_status
check_size(
        const struct rps_npy *npy, uint64_t file_bytes, struct rps_error *error)
{
    uint64_t bytes = npy->item_bytes;

    for (uint32_t i = 0; i < npy->ndim; i++) {
        if (__builtin_mul_overflow(bytes, npy->shape[i], &bytes)) {
            return rps_fail(error, RPS_E_CORRUPT, "npy header: huge shape");
        }
    }
    if (file_bytes < npy->data_offset ||
            file_bytes - npy->data_offset != bytes) {
        return rps_fail(error, RPS_E_CORRUPT,
                "npy: the shape needs %llu bytes, the file has %llu",
                (unsigned long long)bytes,
                (unsigned long long)(file_bytes < npy->data_offset
                                             ? 0
                                             : file_bytes - npy->data_offset));
    }
    return RPS_OK;
}

rps_status
rps_npy_parse(const void *bytes, size_t n, uint64_t file_bytes,
        struct rps_npy *npy, struct rps_error *error)
{
    const uint8_t *in = bytes;
    char text[4096];
    size_t start = 10;
    size_t text_bytes = 0;
    rps_status status = RPS_OK;

    if (n < 12 || memcmp(in, MAGIC, 6) != 0 || in[6] < 1 || in[6] > 3) {
        return rps_fail(error, RPS_E_CORRUPT, "not an .npy file");
    }
    text_bytes = in[8] | (size_t)in[9] << 8;
    if (in[6] >= 2) {
        text_bytes |= (size_t)in[10] << 16 | (size_t)in[11] << 24;
        start = 12;
    }
    if (text_bytes >= sizeof(text) || start + text_bytes > n) {
        return rps_fail(error, RPS_E_CORRUPT,
                "npy header: %zu bytes, cut off or too long", text_bytes);
    }
    memcpy(text, in + start, text_bytes);
    text[text_bytes] = '\0';
    if (strstr(text, "'fortran_order': False") == NULL) {
        return rps_fail(error, RPS_E_CORRUPT,
                "npy header: only C order is read; save with "
                "numpy.ascontiguousarray");
    }
    npy->data_offset = start + text_bytes;
    status = parse_dtype(text, npy, error);
    if (status == RPS_OK) {
        status = parse_shape(text, npy, error);
    }
    return status == RPS_OK ? check_size(npy, file_bytes, error) : status;
}
