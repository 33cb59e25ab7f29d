/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel tests share. Guards around each array catch a kernel that
 * writes outside; lengths 0..300 and odd offsets reach every tail; inputs
 * are ordinary or extreme.
 */
#ifndef RPS_TESTS_KERNEL_KERNELS_H
#define RPS_TESTS_KERNEL_KERNELS_H

#include "embedding/kernels/kernels.h"
#include "tests/unit/suite.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_MAX 300u
#define GUARD      32u
#define FLOATS     (LENGTH_MAX + 2 * GUARD)
#define ARRAYS     3u

struct arrays {
    float a[ARRAYS][FLOATS];
};

static struct rps_kernels scalar;
static struct rps_kernels fast;
static uint32_t seed = 1;

static inline uint32_t
random_bits(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

/* In [-1, 1), times a power of two from 2^-20 to 2^19. */
static inline float
ordinary(void)
{
    const float unit = (float)random_bits() / 8388608.0f - 1.0f;

    return ldexpf(unit, (int)(random_bits() % 40) - 20);
}

static inline float
extreme(void)
{
    static const float values[] = {0.0f, -0.0f, FLT_MAX, -FLT_MAX, FLT_MIN,
            -FLT_MIN, 1e-45f, -1e-45f, 1e-40f, 1e-30f, -1e30f, 1.8e19f, 1.0f,
            -1.0f, INFINITY, -INFINITY, NAN};

    return values[random_bits() % (sizeof(values) / sizeof(values[0]))];
}

static inline void
fill(struct arrays *arrays, bool extremes)
{
    for (size_t i = 0; i < ARRAYS; i++) {
        for (size_t j = 0; j < FLOATS; j++) {
            arrays->a[i][j] =
                    extremes && random_bits() % 2 == 0 ? extreme() : ordinary();
        }
    }
}

/* Equal bits, or both NaN: which NaN is not promised. */
static inline bool
same(float x, float y)
{
    return memcmp(&x, &y, sizeof(x)) == 0 || (isnan(x) && isnan(y));
}

/* One check an array, not an element: Check writes each to a file. */
static inline void
assert_same(const struct arrays *a, const struct arrays *b, size_t length)
{
    for (size_t i = 0; i < ARRAYS; i++) {
        size_t j = 0;
        while (j < FLOATS && same(a->a[i][j], b->a[i][j])) {
            j++;
        }
        if (j < FLOATS) {
            ck_abort_msg("length %zu: array %zu at %zu: %a, scalar %a", length,
                    i, j, b->a[i][j], a->a[i][j]);
        }
    }
}

typedef void call_fn(
        const struct rps_kernels *k, struct arrays *in, size_t at, size_t n);

/* Both sets on the same input, every length, three offsets, both kinds. */
static inline void
compare(call_fn *call)
{
    for (size_t n = 0; n <= LENGTH_MAX; n++) {
        for (size_t at = GUARD; at < GUARD + 3; at++) {
            struct arrays expected;
            struct arrays given;
            fill(&expected, (n + at) % 2 == 0);
            given = expected;
            call(&scalar, &expected, at + n % 5, n);
            call(&fast, &given, at + n % 5, n);
            assert_same(&expected, &given, n);
        }
    }
}

/* The set that RPS_ISA names, and the scalar one; 77 where it is missing. */
static inline int
kernels_choose(void)
{
    const char *wanted = getenv("RPS_ISA");
    const enum rps_isa isa = rps_isa_detect();

    if (wanted != NULL && strcmp(wanted, rps_isa_str(isa)) != 0) {
        printf("this CPU has no %s\n", wanted);
        return 77;
    }
    rps_kernels_init(&scalar, RPS_ISA_SCALAR);
    rps_kernels_init(&fast, isa);
    return 0;
}

#endif /* RPS_TESTS_KERNEL_KERNELS_H */
