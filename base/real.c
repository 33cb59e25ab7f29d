/* SPDX-License-Identifier: Apache-2.0 */
#include "base/real.h"

#include <math.h>
#include <stddef.h>

#define LN2     0.69314718055994530942
#define ROOT_05 0.70710678118654752440

double
rps_power_whole(double x, uint64_t n)
{
    double result = 1.0;

    for (; n > 0; n >>= 1) {
        if ((n & 1) != 0) {
            result *= x;
        }
        x *= x;
    }
    return result;
}

/*
 * x = m 2^e, m in [sqrt(1/2), sqrt(2)), s = (m - 1) / (m + 1), |s| < 0.1716:
 * ln m = 2 (s + s^3/3 + s^5/5 + ...), of which s^23/23 is below 1e-18.
 */
double
rps_ln(double x)
{
    int e = 0;
    double m = frexp(x, &e);
    double s = 0.0;
    double sum = 0.0;

    if (m < ROOT_05) {
        m *= 2.0;
        e--;
    }
    s = (m - 1.0) / (m + 1.0);
    for (int i = 21; i >= 1; i -= 2) {
        sum = sum * (s * s) + 1.0 / (double)i;
    }
    return (double)e * LN2 + 2.0 * s * sum;
}

/* e^x = 2^k e^r, |r| <= ln 2 / 2, whose series ends at r^17/17! < 1e-22. */
static double
exponential(double x)
{
    const double k = floor(x / LN2 + 0.5);
    const double r = x - k * LN2;
    double sum = 1.0;

    for (int i = 17; i >= 1; i--) {
        sum = sum * r / (double)i + 1.0;
    }
    return ldexp(sum, (int)k);
}

double
rps_power(double x, double y)
{
    if (!isfinite(x)) {
        return x;
    }
    if (y == 0.0) {
        return 1.0;
    }
    return x > 0.0 ? exponential(y * rps_ln(x)) : 0.0;
}

/* The two polynomials of one range of the quantile, highest power first. */
struct ratio {
    double above[8];
    double below[8];
};

/* clang-format off */
static const struct ratio middle = {
    {2.5090809287301226727e+3, 3.3430575583588128105e+4,
     6.7265770927008700853e+4, 4.5921953931549871457e+4,
     1.3731693765509461125e+4, 1.9715909503065514427e+3,
     1.3314166789178437745e+2, 3.3871328727963666080e+0},
    {5.2264952788528545610e+3, 2.8729085735721942674e+4,
     3.9307895800092710610e+4, 2.1213794301586595867e+4,
     5.3941960214247511077e+3, 6.8718700749205790830e+2,
     4.2313330701600911252e+1, 1.0}};
static const struct ratio flank = {
    {7.74545014278341407640e-4, 2.27238449892691845833e-2,
     2.41780725177450611770e-1, 1.27045825245236838258e+0,
     3.64784832476320460504e+0, 5.76949722146069140550e+0,
     4.63033784615654529590e+0, 1.42343711074968357734e+0},
    {1.05075007164441684324e-9, 5.47593808499534494600e-4,
     1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e+0,
     2.05319162663775882187e+0, 1.0}};
static const struct ratio tail = {
    {2.01033439929228813265e-7, 2.71155556874348757815e-5,
     1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e+0,
     5.46378491116411436990e+0, 6.65790464350110377720e+0},
    {2.04426310338993978564e-15, 1.42151175831644588870e-7,
     1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1,
     5.99832206555887937690e-1, 1.0}};
/* clang-format on */

static double
ratio_at(const struct ratio *ratio, double r)
{
    double above = 0.0;
    double below = 0.0;

    for (size_t i = 0; i < 8; i++) {
        above = above * r + ratio->above[i];
        below = below * r + ratio->below[i];
    }
    return above / below;
}

/* M. J. Wichura: Algorithm AS 241 (PPND16), Applied Statistics 37, 1988. */
double
rps_normal_quantile(double p)
{
    const double q = p - 0.5;
    double r = 0.0;
    double z = 0.0;

    if (fabs(q) <= 0.425) {
        return q * ratio_at(&middle, 0.180625 - q * q);
    }
    r = sqrt(-rps_ln(q < 0.0 ? p : 1.0 - p));
    z = r <= 5.0 ? ratio_at(&flank, r - 1.6) : ratio_at(&tail, r - 5.0);
    return q < 0.0 ? -z : z;
}
