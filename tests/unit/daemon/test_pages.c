/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/pages.h"
#include "tests/unit/folder.h"
#include "tests/unit/suite.h"

#include <stdio.h>

static char folder[FOLDER_BYTES];
static char path[FOLDER_BYTES + 16];

static bool
are_off(const char *setting)
{
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(setting, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    return rps_huge_pages_are_off(path);
}

START_TEST(huge_pages_are_off_where_never_is_chosen)
{
    folder_make(folder);
    (void)snprintf(path, sizeof(path), "%s/enabled", folder);
    ck_assert(are_off("always madvise [never]\n"));
    ck_assert(!are_off("always [madvise] never\n"));
    ck_assert(!are_off("[always] madvise never\n"));
    ck_assert(!are_off(""));
    folder_remove(folder);
    ck_assert(!rps_huge_pages_are_off(path)); /* nothing is known */
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("pages");
    TCase *tcase = tcase_create("huge_pages");

    tcase_add_test(tcase, huge_pages_are_off_where_never_is_chosen);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
