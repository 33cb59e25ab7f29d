/* SPDX-License-Identifier: Apache-2.0 */
/* Dumps for tests: .npy files and manifests, good ones and bad ones. */
#ifndef RPS_TESTS_UNIT_PRECISION_WRITE_H
#define RPS_TESTS_UNIT_PRECISION_WRITE_H

#include "base/file.h"
#include "base/npy.h"
#include "base/text.h"
#include "tests/unit/folder.h"

#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/** folder/name, free(). */
static inline char *
write_path(const char *folder, const char *name)
{
    char *path = rps_format("%s/%s", folder, name);

    ck_assert_ptr_nonnull(path);
    return path;
}

static inline void
write_bytes(const char *folder, const char *name, const void *bytes, size_t n)
{
    char *path = write_path(folder, name);
    struct rps_error error;

    ck_assert_msg(rps_file_write(path, bytes, n, true, &error) == RPS_OK, "%s",
            error.text);
    free(path);
}

static inline void
write_text(const char *folder, const char *name, const char *text)
{
    write_bytes(folder, name, text, strlen(text));
}

/** Shapes: values of npy->shape, `bytes` altogether. */
static inline void
write_npy(const char *folder, const char *name, const struct rps_npy *npy,
        const void *values, size_t bytes)
{
    char *whole = malloc(RPS_NPY_HEADER_BYTES + bytes);

    ck_assert_ptr_nonnull(whole);
    rps_npy_header(npy, whole);
    memcpy(whole + RPS_NPY_HEADER_BYTES, values, bytes);
    write_bytes(folder, name, whole, RPS_NPY_HEADER_BYTES + bytes);
    free(whole);
}

/** n floats, of one dimension. */
static inline void
write_floats(
        const char *folder, const char *name, const float *values, uint64_t n)
{
    const struct rps_npy npy = {.dtype = "<f4", .ndim = 1, .shape = {n}};

    write_npy(folder, name, &npy, values, n * sizeof(float));
}

/** mkdir -p folder/name; the path, free(). */
static inline char *
write_folder(const char *folder, const char *name)
{
    char *path = write_path(folder, name);
    struct rps_error error;

    ck_assert_msg(rps_dir_make(path, &error) == RPS_OK, "%s", error.text);
    return path;
}

#endif /* RPS_TESTS_UNIT_PRECISION_WRITE_H */
