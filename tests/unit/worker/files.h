/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of small input files that goes away with the test. */
#ifndef RPS_TESTS_UNIT_WORKER_FILES_H
#define RPS_TESTS_UNIT_WORKER_FILES_H

#include "base/file.h"
#include "base/text.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

static inline void
make_folder(void)
{
    strcpy(folder, "/tmp/recps-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static inline void
remove_folder(void)
{
    ck_assert_int_eq(rps_dir_remove(folder, NULL), RPS_OK);
}

/* Static storage of the last four paths. */
static inline const char *
path_of(const char *name)
{
    static char paths[4][256];
    static unsigned turn;
    char *path = paths[turn++ % 4];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static inline void
put_bytes(const char *name, const void *bytes, size_t length)
{
    ck_assert_int_eq(
            rps_file_write(path_of(name), bytes, length, true, NULL), RPS_OK);
}

static inline void
put_file(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

#endif /* RPS_TESTS_UNIT_WORKER_FILES_H */
