/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/metrics.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define ROWS_MAX 5000u

static float scores[ROWS_MAX];
static float labels[ROWS_MAX];

static uint64_t
draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) +
             UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* Few levels make many ties. */
static void
fill(size_t n, unsigned levels)
{
    uint64_t state = 12345;
    size_t i;

    for (i = 0; i < n; i++) {
        scores[i] = (float)(draw(&state) % levels + 1) / (float)(levels + 1);
        labels[i] = draw(&state) % 1000 < (uint64_t)(1000 * (double)scores[i])
                            ? 1.0f
                            : 0.0f;
    }
}

/* The definition: over all pairs, 1 for a win, 1/2 for a tie. */
static double
auc_of_all_pairs(size_t n)
{
    double sum = 0.0;
    double pairs = 0.0;
    size_t i;
    size_t k;

    for (i = 0; i < n; i++) {
        for (k = 0; k < n; k++) {
            if (labels[i] == 1.0f && labels[k] == 0.0f) {
                pairs += 1.0;
                sum += scores[i] > scores[k]    ? 1.0
                       : scores[i] == scores[k] ? 0.5
                                                : 0.0;
            }
        }
    }
    return sum / pairs;
}

START_TEST(auc_is_the_share_of_pairs_in_order_ties_half)
{
    static const struct {
        size_t n;
        unsigned levels;
    } cases[] = {{1000, 10}, {1000, 1}, {1000, 100000}, {7, 3}, {50, 2}};
    double auc = 0.0;
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fill(cases[i].n, cases[i].levels);
        ck_assert(rps_auc(scores, labels, 1, cases[i].n, &auc));
        ck_assert_double_eq_tol(auc, auc_of_all_pairs(cases[i].n), 1e-12);
    }
}
END_TEST

/* Made with scikit-learn 1.x: roc_auc_score, log_loss of the same draws. */
START_TEST(auc_and_log_loss_are_those_of_scikit_learn)
{
    static const struct {
        size_t n;
        unsigned levels;
        double auc;
        double log_loss;
    } cases[] = {{1000, 10, 0.795061535753153, 0.5456887933410666},
            {5000, 4096, 0.8384200124817973, 0.49124559845695187},
            {7, 3, 0.75, 0.6183974457364384}};
    double auc = 0.0;
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fill(cases[i].n, cases[i].levels);
        ck_assert(rps_auc(scores, labels, 1, cases[i].n, &auc));
        ck_assert_double_eq_tol(auc, cases[i].auc, 1e-12);
        ck_assert_double_eq_tol(rps_log_loss(scores, labels, 1, cases[i].n),
                cases[i].log_loss, 1e-12);
    }
}
END_TEST

START_TEST(one_class_nan_or_nothing_has_no_auc)
{
    const float some[3] = {0.1f, 0.5f, 0.9f};
    const float broken[3] = {0.1f, NAN, 0.9f};
    const float ones[3] = {1.0f, 1.0f, 1.0f};
    const float zeros[3] = {0.0f, 0.0f, 0.0f};
    const float both[3] = {0.0f, 0.0f, 1.0f};
    double auc = 7.0;

    ck_assert(!rps_auc(some, ones, 1, 3, &auc));
    ck_assert(!rps_auc(some, zeros, 1, 3, &auc));
    ck_assert(!rps_auc(some, both, 1, 0, &auc));
    ck_assert(!rps_auc(broken, both, 1, 3, &auc));
    ck_assert_double_eq(auc, 7.0);
    ck_assert(rps_auc(some, both, 1, 3, &auc));
    ck_assert_double_eq(auc, 1.0);
    ck_assert(isnan(rps_log_loss(broken, both, 1, 3)));
}
END_TEST

START_TEST(a_stride_picks_one_label_of_a_row)
{
    const float some[2] = {0.25f, 0.75f};
    const float pairs[4] = {0.0f, 1.0f, 1.0f, 0.0f};
    double auc = 0.0;

    ck_assert(rps_auc(some, pairs, 2, 2, &auc));
    ck_assert_double_eq(auc, 1.0);
    ck_assert(rps_auc(some, pairs + 1, 2, 2, &auc));
    ck_assert_double_eq(auc, 0.0);
    ck_assert_double_eq_tol(
            rps_log_loss(some, pairs + 1, 2, 2), log(4.0), 1e-12);
}
END_TEST

START_TEST(log_loss_of_a_sure_and_wrong_score_is_finite)
{
    const float sure[2] = {0.0f, 1.0f};
    const float wrong[2] = {1.0f, 0.0f};

    ck_assert_double_eq_tol(rps_log_loss(sure, wrong, 1, 2), -log(1e-15), 0.1);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tc = tcase_create("metrics");

    tcase_set_timeout(tc, 60); /* sanitizers, busy machines */
    tcase_add_test(tc, auc_is_the_share_of_pairs_in_order_ties_half);
    tcase_add_test(tc, auc_and_log_loss_are_those_of_scikit_learn);
    tcase_add_test(tc, one_class_nan_or_nothing_has_no_auc);
    tcase_add_test(tc, a_stride_picks_one_label_of_a_row);
    tcase_add_test(tc, log_loss_of_a_sure_and_wrong_score_is_finite);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
