/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values are small whole numbers, so that every order of adding them gives
 * the same sum, and it is known.
 */
#include "bench/allreduce/rank.h"

#include "base/clock.h"

#include <recps/collective.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

bool
bench_allreduce_is_built(void)
{
    return true;
}

static float
value_of(uint32_t rank, size_t i)
{
    return (float)((i + 37u * rank) % 251);
}

static bool
is_right(const float *values, size_t count, uint32_t ranks)
{
    for (size_t i = 0; i < count; i++) {
        float sum = 0.0f;

        for (uint32_t r = 0; r < ranks; r++) {
            sum += value_of(r, i);
        }
        if (values[i] != sum) {
            fprintf(stderr,
                    BENCH_ALLREDUCE_PROGRAM
                    ": element %zu is %.9g, the sum is %.9g\n",
                    i, (double)values[i], (double)sum);
            return false;
        }
    }
    return true;
}

static int
compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* One allreduce; its milliseconds, or below 0: it failed or is wrong. */
static double
once(rps_collective *group, float *values, size_t count)
{
    const uint32_t rank = rps_collective_rank(group);
    uint64_t start;
    uint64_t end;

    for (size_t i = 0; i < count; i++) {
        values[i] = value_of(rank, i);
    }
    start = rps_clock_ns();
    if (rps_collective_allreduce(group, values, count, RPS_REDUCE_SUM) !=
            RPS_OK) {
        fprintf(stderr, BENCH_ALLREDUCE_PROGRAM ": %s\n",
                rps_collective_error(group));
        return -1.0;
    }
    end = rps_clock_ns();
    return is_right(values, count, rps_collective_size(group))
                   ? (double)(end - start) / 1e6
                   : -1.0;
}

static int
run(rps_collective *group, const struct bench_allreduce_args *args)
{
    const size_t count = (size_t)(args->bytes / sizeof(float));
    const size_t repeat = (size_t)args->repeat;
    float *values = malloc(count * sizeof(*values));
    double *times = malloc(repeat * sizeof(*times));
    int code = values != NULL && times != NULL ? EX_OK : EX_OSERR;

    for (size_t i = 0; i < repeat && code == EX_OK; i++) {
        times[i] = once(group, values, count);
        code = times[i] >= 0.0 ? EX_OK : 1;
    }
    if (code == EX_OK && rps_collective_rank(group) == 0) {
        qsort(times, repeat, sizeof(*times), compare);
        printf("%.9g\n", times[repeat / 2]);
    }
    free(values);
    free(times);
    return code;
}

int
bench_allreduce_rank(const struct bench_allreduce_args *args)
{
    rps_collective *group = NULL;
    rps_collective_options options;
    int code = EX_SOFTWARE;

    rps_collective_options_init(&options);
    options.algorithm = strcmp(args->as_rank, "ring") == 0
                                ? RPS_ALLREDUCE_RING
                                : RPS_ALLREDUCE_DEFAULT;
    if (rps_collective_initialize(&group, &options) != RPS_OK) {
        fprintf(stderr, BENCH_ALLREDUCE_PROGRAM ": %s\n",
                rps_collective_error(NULL));
        return EX_UNAVAILABLE;
    }
    code = run(group, args);
    if (code != EX_OK) {
        rps_collective_abort(group, code);
    }
    return rps_collective_shutdown(group) == RPS_OK ? EX_OK : EX_SOFTWARE;
}
