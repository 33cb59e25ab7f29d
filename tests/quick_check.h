/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Included before each unit test. Check writes the place of every assertion
 * that holds to its parent, so that the report of a crash has the last one;
 * loops of a million assertions took most of their time for that. A crash is
 * reported with its test's place alone; the sanitizers print the stack.
 */
#ifndef RPS_TESTS_QUICK_CHECK_H
#define RPS_TESTS_QUICK_CHECK_H

#include <check.h>

#define _mark_point(file, line) ((void)0)

#endif /* RPS_TESTS_QUICK_CHECK_H */
