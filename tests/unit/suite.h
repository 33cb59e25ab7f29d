/* SPDX-License-Identifier: Apache-2.0 */
/* What every unit test's main does. */
#ifndef RPS_TESTS_UNIT_SUITE_H
#define RPS_TESTS_UNIT_SUITE_H

#include <check.h>
#include <stdlib.h>

static inline int
run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif /* RPS_TESTS_UNIT_SUITE_H */
