/* SPDX-License-Identifier: Apache-2.0 */
/* The figures are SciPy's: stats.t.sf and stats.ttest_ind(equal_var=False). */
#include "client/precision/spread.h"
#include "tests/unit/suite.h"

#include <math.h>

static const struct {
    double t, df, p;
} student[] = {
        {0.5, 1, 0.70483276469913358},
        {2, 1, 0.29516723530086642},
        {12.7062, 1, 0.050000018560710388},
        {1, 2, 0.42264973081037427},
        {2.5, 3.7, 0.071822022911826752},
        {0.01, 10, 0.99221797499097142},
        {3, 10, 0.013343655022569565},
        {-8, 29.5, 7.0781023925378384e-09},
        {40, 4, 2.3340163226012694e-06},
        {1e-9, 5, 0.99999999924078664},
        {1.96, 1e6, 0.049996067585269782},
        {2.1, 250.25, 0.036730154563604518},
};

START_TEST(odds_of_student_are_those_of_scipy)
{
    const double p = rps_student_p(student[_i].t, student[_i].df);

    ck_assert_double_eq_tol(p, student[_i].p, 1e-9 * student[_i].p);
}
END_TEST

START_TEST(odds_end_at_nothing_and_all)
{
    ck_assert_double_eq(rps_student_p(0.0, 3.0), 1.0);
    ck_assert_double_eq(rps_student_p((double)INFINITY, 3.0), 0.0);
    ck_assert_double_eq(rps_student_p(1e200, 3.0), 0.0);
}
END_TEST

static const double four[] = {0.71, 0.74, 0.72, 0.79};
static const double three[] = {0.70, 0.73, 0.69};
static const double alone[] = {0.9};
static const double same[] = {0.1, 0.1, 0.1};

START_TEST(a_spread_has_mean_and_deviation)
{
    const struct rps_spread spread = rps_spread_of(four, 4);

    ck_assert_double_eq_tol(spread.mean, 0.74, 1e-15);
    ck_assert_double_eq_tol(spread.deviation, 0.0355902608401044, 1e-15);
    ck_assert_double_eq(spread.least, 0.71);
    ck_assert_double_eq(spread.most, 0.79);
    ck_assert_double_eq(rps_spread_of(same, 3).mean, 0.1);
    ck_assert_double_eq(rps_spread_of(same, 3).deviation, 0.0);
}
END_TEST

START_TEST(two_sets_are_compared_by_welch)
{
    const struct rps_spread a = rps_spread_of(four, 4);
    const struct rps_spread b = rps_spread_of(three, 3);
    const struct rps_spread_test test = rps_spread_compare(&a, &b);

    ck_assert(test.known);
    ck_assert_double_eq_tol(test.t, 1.552301051412664, 1e-12);
    ck_assert_double_eq_tol(test.df, 4.847994370161858, 1e-9);
    ck_assert_double_eq_tol(test.p, 0.18310316688924655, 1e-9);
}
END_TEST

START_TEST(one_run_is_asked_whether_it_is_one_of_the_others)
{
    const struct rps_spread a = rps_spread_of(alone, 1);
    const struct rps_spread b = rps_spread_of(three, 3);
    const struct rps_spread_test test = rps_spread_compare(&a, &b);

    ck_assert(test.known);
    ck_assert_double_eq_tol(test.t, 8.043152845265817, 1e-9);
    ck_assert_double_eq(test.df, 2.0);
    ck_assert_double_eq_tol(test.p, 0.015108364323579596, 1e-9);
    ck_assert_double_eq_tol(rps_spread_compare(&b, &a).p, test.p, 1e-15);
}
END_TEST

START_TEST(two_runs_have_no_spread_to_differ_by)
{
    const struct rps_spread a = rps_spread_of(alone, 1);
    const struct rps_spread b = rps_spread_of(three, 1);

    ck_assert(!rps_spread_compare(&a, &b).known);
    ck_assert(rps_spread_compare(&a, &a).known);
    ck_assert_double_eq(rps_spread_compare(&a, &a).p, 1.0);
}
END_TEST

START_TEST(without_any_spread_what_differs_differs)
{
    const double other[] = {0.2, 0.2};
    const struct rps_spread a = rps_spread_of(same, 3);
    const struct rps_spread b = rps_spread_of(other, 2);
    const struct rps_spread_test test = rps_spread_compare(&a, &b);

    ck_assert(test.known && isinf(test.t) && test.t < 0);
    ck_assert_double_eq(test.p, 0.0);
    ck_assert_double_eq(rps_spread_compare(&a, &a).p, 1.0);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("precision_spread");
    TCase *tcase = tcase_create("spread");

    tcase_add_loop_test(tcase, odds_of_student_are_those_of_scipy, 0,
            (int)(sizeof(student) / sizeof(student[0])));
    tcase_add_test(tcase, odds_end_at_nothing_and_all);
    tcase_add_test(tcase, a_spread_has_mean_and_deviation);
    tcase_add_test(tcase, two_sets_are_compared_by_welch);
    tcase_add_test(tcase, one_run_is_asked_whether_it_is_one_of_the_others);
    tcase_add_test(tcase, two_runs_have_no_spread_to_differ_by);
    tcase_add_test(tcase, without_any_spread_what_differs_differs);
    suite_add_single_threaded(suite, tcase);
    return run_suite(suite);
}
