/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A number of several runs, and whether two sets of runs differ in it by more
 * than runs of one set differ among themselves.
 *
 *   deviation^2 = sum (x - mean)^2 / (n - 1)
 *   Welch:  t  = (mean_a - mean_b) / sqrt(v_a + v_b),  v = deviation^2 / n
 *           df = (v_a + v_b)^2 / (v_a^2 / (n_a - 1) + v_b^2 / (n_b - 1))
 *   n_a = 1: is the one run one more of the others?
 *           t  = (x - mean_b) / (deviation_b sqrt(1 + 1 / n_b)),  df = n_b - 1
 *   p = P(|T_df| >= |t|): how often two sets of the same kind differ so much
 */
#ifndef RPS_PRECISION_SPREAD_H
#define RPS_PRECISION_SPREAD_H

#include <stdbool.h>
#include <stddef.h>

struct rps_spread {
    size_t count;
    double mean;
    double deviation; /* 0 of one run: it has no spread */
    double least;
    double most;
};

struct rps_spread_test {
    /** false: one run a side has no spread to measure by, and they differ */
    bool known;
    double t;  /* 0 where both are the same; infinite where no set has any
                * spread, and they differ */
    double df; /* 0 where it has no meaning: t is 0 or infinite */
    double p;  /* 0 to 1 */
};

/** values[count], all finite, count >= 1. */
struct rps_spread rps_spread_of(const double *values, size_t count);

struct rps_spread_test rps_spread_compare(
        const struct rps_spread *a, const struct rps_spread *b);

/** P(|T| >= |t|) of Student's distribution with df > 0 degrees of freedom, to
 * about 1e-12 of itself. */
double rps_student_p(double t, double df);

#endif /* RPS_PRECISION_SPREAD_H */
