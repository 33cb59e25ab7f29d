/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for the tests of kernels and operators. */
#ifndef RPS_TESTS_UNIT_NPU_NUMBERS_H
#define RPS_TESTS_UNIT_NPU_NUMBERS_H

#include "tests/unit/suite.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* In (-1, 1), looks random: the tests' own, not base/hash.h. */
static inline double
noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)*state / 9.3e18;
}

/* n floats of (-scale, scale); free() them. */
static inline float *
noise_floats(size_t n, double scale, uint64_t *state)
{
    float *floats = malloc((n + 1) * sizeof(float));

    ck_assert_ptr_nonnull(floats);
    for (size_t i = 0; i < n; i++) {
        floats[i] = (float)(scale * noise(state));
    }
    return floats;
}

static inline float *
zero_floats(size_t n)
{
    float *floats = calloc(n + 1, sizeof(float));

    ck_assert_ptr_nonnull(floats);
    return floats;
}

/* Equal bits, or both NaN: which NaN is not promised. */
static inline bool
same(float x, float y)
{
    return memcmp(&x, &y, sizeof(x)) == 0 || (isnan(x) && isnan(y));
}

/* One check an array, not an element: Check writes each to a file. */
static inline void
assert_same_bits(const char *what, const float *a, const float *b, size_t n)
{
    size_t i = 0;

    while (i < n && same(a[i], b[i])) {
        i++;
    }
    ck_assert_msg(i == n, "%s: element %zu is %a, not %a", what, i,
            (double)a[i], (double)b[i]);
}

/* The largest |a - b| / (1 + |b|). */
static inline double
distance(const float *a, const double *b, size_t n)
{
    double most = 0.0;

    for (size_t i = 0; i < n; i++) {
        const double off = fabs((double)a[i] - b[i]) / (1.0 + fabs(b[i]));

        most = off > most || isnan(off) ? off : most;
    }
    return most;
}

static inline void
assert_near(const char *what, const float *a, const double *b, size_t n,
        double most)
{
    const double off = distance(a, b, n);

    ck_assert_msg(off <= most, "%s is %g off, more than %g", what, off, most);
}

#endif /* RPS_TESTS_UNIT_NPU_NUMBERS_H */
