/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few functions of real numbers that decide bits of a table. Only
 * + - * /, sqrt, frexp and ldexp, all exact or correctly rounded: the same
 * bits on every machine, which libm's log and pow do not promise.
 */
#ifndef RPS_BASE_REAL_H
#define RPS_BASE_REAL_H

#include <stdint.h>

/** x^n by squaring. */
double rps_power_whole(double x, uint64_t n);

/** ln x to about 2e-16 of itself or of 1; 0 < x, finite. */
double rps_ln(double x);

/** x^y to about 1e-14 for 1e-45 <= x <= 1e39, 0 <= y <= 1; 0^y = 0, x^0 = 1;
 * an x that is not finite comes back. */
double rps_power(double x, double y);

/** The z below which a standard normal number lies with odds p, 0 < p < 1. */
double rps_normal_quantile(double p);

#endif /* RPS_BASE_REAL_H */
