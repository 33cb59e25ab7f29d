/* SPDX-License-Identifier: Apache-2.0 */
/* What every unit test's main does. */
#ifndef RPS_TESTS_UNIT_SUITE_H
#define RPS_TESTS_UNIT_SUITE_H

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

#if defined(__SANITIZE_THREAD__)
#define SUITE_TSAN true
#else
#define SUITE_TSAN false
#endif

/** ./run test --long: whatever has a long form takes it. */
static inline bool
suite_is_long(void)
{
    return getenv("RECPS_TEST_LONG") != NULL;
}

/**
 * A case of one thread. ThreadSanitizer could find nothing in it and is
 * twenty times as slow: the other builds run it.
 */
static inline void
suite_add_single_threaded(Suite *suite, TCase *tcase)
{
    if (!SUITE_TSAN) {
        suite_add_tcase(suite, tcase);
    }
}

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
