/* SPDX-License-Identifier: Apache-2.0 */
/* What a build without MPI answers; compiled in every build. */
#include "client/worker/group.h"
#include "tests/unit/suite.h"

#include <string.h>

START_TEST(without_mpi_a_group_is_refused_with_what_to_install)
{
    struct rps_settings settings = {0};
    struct rps_error error = {.text = ""};
    struct rps_group *group = (struct rps_group *)&settings;

    ck_assert_int_eq(
            rps_group_open(&group, &settings, &error), RPS_E_UNSUPPORTED);
    ck_assert_ptr_null(group);
    ck_assert_ptr_nonnull(strstr(error.text, "--dense allreduce"));
    ck_assert_ptr_nonnull(strstr(error.text, "libopenmpi-dev"));
    ck_assert_int_eq(rps_group_end(group, 1, &error), RPS_OK);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("group_none");
    TCase *tcase = tcase_create("group_none");

    tcase_add_test(tcase, without_mpi_a_group_is_refused_with_what_to_install);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
