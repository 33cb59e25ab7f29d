/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What more threads bring: for lookups and for the bare gathers of the same
 * memory, and under a hot key. Each figure is the median of rounds in which
 * the sides that are compared run one after the other.
 */
#include "bench/print.h"
#include "bench/series.h"
#include "bench/table/parts.h"
#include "bench/table/threads.h"

#include <stdlib.h>

#define ROUNDS 3u

struct scaling {
    struct bench_fixture *fixture;
    struct bench_pool *pools; /* [threads] */
    struct bench_series one;
    struct bench_series all;
    struct bench_series gather_one;
    struct bench_series gather_all;
};

static rps_status
pools_make(struct bench_pool **pools_out, const struct bench_fixture *fixture)
{
    *pools_out = calloc(fixture->args->threads, sizeof(**pools_out));
    return *pools_out == NULL ? RPS_E_NOMEM : RPS_OK;
}

static void
pools_free(struct bench_pool *pools, unsigned threads)
{
    for (unsigned i = 0; i < threads && pools != NULL; i++) {
        bench_pool_finish(&pools[i]);
    }
    free(pools);
}

static rps_status
run_into(struct bench_fixture *fixture, enum bench_work work,
        struct bench_pool *pools, unsigned threads, struct bench_series *into)
{
    double rate = 0;
    const rps_status status =
            bench_threads_run(fixture, work, pools, threads, &rate);

    bench_series_add(into, rate);
    return status;
}

static rps_status
scaling_round(struct scaling *s)
{
    struct bench_fixture *fixture = s->fixture;
    const unsigned threads = fixture->args->threads;
    rps_status status =
            run_into(fixture, BENCH_WORK_GATHER, s->pools, 1, &s->gather_one);

    if (status == RPS_OK) {
        status = run_into(fixture, BENCH_WORK_LOOKUP, s->pools, 1, &s->one);
    }
    if (status == RPS_OK) {
        status = run_into(
                fixture, BENCH_WORK_GATHER, s->pools, threads, &s->gather_all);
    }
    if (status == RPS_OK) {
        status = run_into(
                fixture, BENCH_WORK_LOOKUP, s->pools, threads, &s->all);
    }
    return status;
}

rps_status
bench_part_scaling(struct bench_fixture *fixture)
{
    struct bench_report *report = fixture->report;
    struct scaling s = {.fixture = fixture};
    rps_status status = pools_make(&s.pools, fixture);

    bench_progress("timing %u threads beside one", fixture->args->threads);
    for (unsigned i = 0; i < fixture->args->threads && status == RPS_OK; i++) {
        status = bench_pool_init_reads(&s.pools[i], fixture,
                &fixture->args->dist, fixture->args->seed + 100 + i);
    }
    for (unsigned i = 0; i < ROUNDS && status == RPS_OK; i++) {
        status = scaling_round(&s);
    }
    if (status == RPS_OK) {
        report->lookup_scaling = bench_median_ratio(&s.all, &s.one);
        report->gather_scaling =
                bench_median_ratio(&s.gather_all, &s.gather_one);
        report->scaling_vs_gather =
                report->lookup_scaling / report->gather_scaling;
    }
    bench_series_finish(&s.one);
    bench_series_finish(&s.all);
    bench_series_finish(&s.gather_one);
    bench_series_finish(&s.gather_all);
    pools_free(s.pools, fixture->args->threads);
    return status;
}

/* Rates on one set of pools over those on the other; all threads. */
static rps_status
compare_pools(struct bench_fixture *fixture, enum bench_work work,
        struct bench_pool *hot, struct bench_pool *uniform, double *ratio_out)
{
    const unsigned threads = fixture->args->threads;
    struct bench_series hot_rates = {0};
    struct bench_series uniform_rates = {0};
    rps_status status = RPS_OK;

    for (unsigned i = 0; i < ROUNDS && status == RPS_OK; i++) {
        status = run_into(fixture, work, uniform, threads, &uniform_rates);
        if (status == RPS_OK) {
            status = run_into(fixture, work, hot, threads, &hot_rates);
        }
    }
    *ratio_out = bench_median_ratio(&hot_rates, &uniform_rates);
    bench_series_finish(&hot_rates);
    bench_series_finish(&uniform_rates);
    return status;
}

static rps_status
make_pool(struct bench_pool *pool, const struct bench_fixture *fixture,
        enum bench_work work, bool hot, unsigned thread)
{
    const struct bench_dist_spec uniform = {.kind = BENCH_DIST_UNIFORM};
    const uint64_t seed = fixture->args->seed + 1000 + 2 * thread + hot;

    return work == BENCH_WORK_PUSH
                   ? bench_pool_init_pushes(pool, fixture, hot, seed)
                   : bench_pool_init_reads(pool, fixture,
                             hot ? &fixture->args->dist : &uniform, seed);
}

static rps_status
hot_work(struct bench_fixture *fixture, enum bench_work work, double *ratio_out)
{
    const unsigned threads = fixture->args->threads;
    struct bench_pool *hot = NULL;
    struct bench_pool *uniform = NULL;
    rps_status status = pools_make(&hot, fixture);

    if (status == RPS_OK) {
        status = pools_make(&uniform, fixture);
    }
    for (unsigned i = 0; i < threads && status == RPS_OK; i++) {
        status = make_pool(&hot[i], fixture, work, true, i);
        if (status == RPS_OK) {
            status = make_pool(&uniform[i], fixture, work, false, i);
        }
    }
    if (status == RPS_OK) {
        status = compare_pools(fixture, work, hot, uniform, ratio_out);
    }
    for (unsigned i = 0;
            i < threads && status == RPS_OK && work == BENCH_WORK_PUSH; i++) {
        bench_pool_count(&hot[i], fixture->counts);
        bench_pool_count(&uniform[i], fixture->counts);
    }
    pools_free(hot, threads);
    pools_free(uniform, threads);
    return status;
}

rps_status
bench_part_hot(struct bench_fixture *fixture)
{
    rps_status status = RPS_OK;

    bench_progress("timing a hot key beside uniform keys");
    status = hot_work(
            fixture, BENCH_WORK_LOOKUP, &fixture->report->hot_lookup_ratio);
    return status == RPS_OK ? hot_work(fixture, BENCH_WORK_PUSH,
                                      &fixture->report->hot_push_ratio)
                            : status;
}
