/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void
bench_series_add(struct bench_series *series, double value)
{
    if (series->count == series->capacity) {
        const size_t capacity =
                series->capacity == 0 ? 1024 : series->capacity * 2;
        double *values =
                realloc(series->values, capacity * sizeof(*series->values));
        if (values == NULL) {
            series->failed = true;
            return;
        }
        series->values = values;
        series->capacity = capacity;
    }
    series->values[series->count++] = value;
}

void
bench_series_finish(struct bench_series *series)
{
    free(series->values);
    *series = (struct bench_series){0};
}

static int
compare(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;

    return left < right ? -1 : left > right;
}

double
bench_series_quantile(const struct bench_series *series, double share)
{
    double *sorted = NULL;
    double rank = ceil(share * (double)series->count);
    double value = NAN;

    if (series->count == 0 || series->failed) {
        return NAN;
    }
    sorted = malloc(series->count * sizeof(*sorted));
    if (sorted == NULL) {
        return NAN;
    }
    memcpy(sorted, series->values, series->count * sizeof(*sorted));
    qsort(sorted, series->count, sizeof(*sorted), compare);
    rank = fmin(fmax(rank, 1), (double)series->count);
    value = sorted[(size_t)rank - 1];
    free(sorted);
    return value;
}

double
bench_median_ratio(const struct bench_series *a, const struct bench_series *b)
{
    const size_t n = a->count < b->count ? a->count : b->count;
    struct bench_series ratios = {0};
    double median = NAN;

    for (size_t i = 0; i < n; i++) {
        bench_series_add(&ratios, a->values[i] / b->values[i]);
    }
    median = bench_series_median(&ratios);
    bench_series_finish(&ratios);
    return median;
}
