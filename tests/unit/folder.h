/* SPDX-License-Identifier: Apache-2.0 */
/* A folder that goes away with the test. */
#ifndef RPS_TESTS_UNIT_FOLDER_H
#define RPS_TESTS_UNIT_FOLDER_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#define FOLDER_BYTES 256u

static inline void
folder_make(char path[FOLDER_BYTES])
{
    const char *base = getenv("TMPDIR");

    (void)snprintf(path, FOLDER_BYTES, "%s/recps-test-XXXXXX",
            base == NULL ? "/tmp" : base);
    ck_assert_ptr_nonnull(mkdtemp(path));
}

static inline void
folder_remove(const char *path)
{
    char command[FOLDER_BYTES + 16];

    (void)snprintf(command, sizeof(command), "rm -rf '%s'", path);
    ck_assert_int_eq(system(command), 0);
}

#endif /* RPS_TESTS_UNIT_FOLDER_H */
