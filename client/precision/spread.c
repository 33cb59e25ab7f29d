/* SPDX-License-Identifier: Apache-2.0 */
#include "client/precision/spread.h"

#include <assert.h>
#include <math.h>

#define TERMS_MAX 4000 /* sqrt of the larger argument would do */
#define TINY      1e-300

/* --- Student's distribution ------------------------------------------------
 */

/* One of the fraction's two kinds of links: h *= c d. */
static double
link_fraction(double term, double *c, double *d)
{
    *d = 1.0 + term * *d;
    *c = 1.0 + term / *c;
    *d = fabs(*d) < TINY ? TINY : *d;
    *c = fabs(*c) < TINY ? TINY : *c;
    *d = 1.0 / *d;
    return *c * *d;
}

/* The continued fraction of the incomplete beta function, by Lentz's method;
 * it converges fast for x < (a + 1) / (a + b + 2). */
static double
beta_fraction(double a, double b, double x)
{
    double c = 1.0;
    double d = 1.0 - (a + b) * x / (a + 1.0);
    double h;

    d = 1.0 / (fabs(d) < TINY ? TINY : d);
    h = d;
    for (int m = 1; m <= TERMS_MAX; m++) {
        const double even =
                m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        const double odd = -(a + m) * (a + b + m) * x /
                           ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        double by;

        h *= link_fraction(even, &c, &d);
        by = link_fraction(odd, &c, &d);
        h *= by;
        if (fabs(by - 1.0) < 1e-16) {
            break;
        }
    }
    return h;
}

/* I_x(a, b), and 1 - x with its own digits: y. */
static double
beta_part(double a, double b, double x, double y)
{
    double front;

    if (x <= 0.0 || y <= 0.0) {
        return x <= 0.0 ? 0.0 : 1.0;
    }
    front = exp(
            lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(y));
    return x < (a + 1.0) / (a + b + 2.0)
                   ? front * beta_fraction(a, b, x) / a
                   : 1.0 - front * beta_fraction(b, a, y) / b;
}

double
rps_student_p(double t, double df)
{
    const double square = t * t;

    assert(df > 0.0);
    if (!isfinite(square)) {
        return 0.0;
    }
    return beta_part(df / 2.0, 0.5, df / (df + square), square / (df + square));
}

/* --- sets of runs ----------------------------------------------------------
 */

struct rps_spread
rps_spread_of(const double *values, size_t count)
{
    struct rps_spread spread = {
            .count = count, .least = values[0], .most = values[0]};
    double squares = 0.0;
    double sum = 0.0;

    assert(count >= 1);
    for (size_t i = 0; i < count; i++) {
        sum += values[i];
        spread.least = fmin(spread.least, values[i]);
        spread.most = fmax(spread.most, values[i]);
    }
    /* equal values have their own value as their mean, without rounding */
    spread.mean =
            spread.least == spread.most ? spread.least : sum / (double)count;
    for (size_t i = 0; i < count; i++) {
        squares += (values[i] - spread.mean) * (values[i] - spread.mean);
    }
    spread.deviation = count > 1 ? sqrt(squares / (double)(count - 1)) : 0.0;
    return spread;
}

/* What the means' difference is measured by, and its degrees of freedom. */
static double
unit_of(const struct rps_spread *a, const struct rps_spread *b, double *df)
{
    const double va = a->deviation * a->deviation / (double)a->count;
    const double vb = b->deviation * b->deviation / (double)b->count;

    if (a->count == 1 || b->count == 1) {
        const struct rps_spread *many = a->count == 1 ? b : a;

        *df = (double)(many->count - 1);
        return many->deviation * sqrt(1.0 + 1.0 / (double)many->count);
    }
    *df = (va + vb) * (va + vb) /
          (va * va / (double)(a->count - 1) + vb * vb / (double)(b->count - 1));
    return sqrt(va + vb);
}

struct rps_spread_test
rps_spread_compare(const struct rps_spread *a, const struct rps_spread *b)
{
    const double by = a->mean - b->mean;
    double df = 0.0;
    const double unit = unit_of(a, b, &df);

    if (by == 0.0) {
        return (struct rps_spread_test){.known = true, .p = 1.0};
    }
    if (a->count == 1 && b->count == 1) {
        return (struct rps_spread_test){.known = false, .p = 1.0};
    }
    if (unit == 0.0 || !isfinite(df)) {
        return (struct rps_spread_test){
                .known = true, .t = copysign((double)INFINITY, by)};
    }
    return (struct rps_spread_test){.known = true,
            .t = by / unit,
            .df = df,
            .p = rps_student_p(by / unit, df)};
}
