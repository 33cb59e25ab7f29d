/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements one after the other, and what is said of them. */
#ifndef RPS_BENCH_SERIES_H
#define RPS_BENCH_SERIES_H

#include <stdbool.h>
#include <stddef.h>

/** A growing list; zeroed is empty. `failed`: an allocation failed. */
struct bench_series {
    double *values;
    size_t count;
    size_t capacity;
    bool failed;
};

void bench_series_add(struct bench_series *series, double value);
void bench_series_finish(struct bench_series *series);

/**
 * The smallest value that is not below `share` of all (nearest rank): 0.5 is
 * the median, 1 the largest. NaN of an empty list. Leaves the order as it is.
 */
double bench_series_quantile(const struct bench_series *series, double share);

static inline double
bench_series_median(const struct bench_series *series)
{
    return bench_series_quantile(series, 0.5);
}

/** Median of a[i] / b[i]; NaN where one of them is empty. */
double bench_median_ratio(
        const struct bench_series *a, const struct bench_series *b);

#endif /* RPS_BENCH_SERIES_H */
