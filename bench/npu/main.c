/* SPDX-License-Identifier: Apache-2.0 */
/* The rounds: the ways take turns, so that the machine's moods are shared. */
#include "bench/npu/main.h"

#include "base/error.h"
#include "base/hash.h"
#include "bench/npu/report.h"
#include "bench/npu/ways.h"
#include "bench/print.h"
#include "bench/series.h"
#include "client/profile/profile.h"
#include "client/profile/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#define LATENCY_SAMPLES 200u
#define MEAN_SHARE      0.8 /* of a step: preprocessing takes so long */

struct bench {
    struct bench_npu_args args;
    struct bench_npu_report report;
    bool wrong; /* ways do not agree */
};

/** What the runs of one device showed, seconds a step. */
struct turns {
    struct bench_series seconds[BENCH_NPU_WAYS];
    bool has_digest;
    uint64_t digest;
};

static void
check_run(struct bench *bench, struct turns *turns, enum bench_npu_way way,
        const struct bench_npu_run *run)
{
    bench->report.checked_runs++;
    if (!turns->has_digest) {
        turns->has_digest = true;
        turns->digest = run->digest;
    }
    if (run->digest != turns->digest || !isfinite(run->loss) ||
            run->counters.steps != bench->args.steps) {
        bench->wrong = true;
        fprintf(stderr,
                "recps-bench npu: WRONG: %s: weights %016llx after %llu steps "
                "(loss %g), not %016llx as the first run\n",
                bench_npu_way_str(way), (unsigned long long)run->digest,
                (unsigned long long)run->counters.steps, run->loss,
                (unsigned long long)turns->digest);
    }
}

static rps_status
one_run(struct bench *bench, struct bench_npu_ways *ways, struct turns *turns,
        enum bench_npu_way way, const uint64_t *prepare_ns,
        struct bench_npu_run *run)
{
    const uint64_t steps = bench->args.steps;
    rps_status status = bench_npu_ways_run(ways, way, steps, prepare_ns, run);

    if (status == RPS_OK) {
        check_run(bench, turns, way, run);
        bench_series_add(&turns->seconds[way], run->seconds / (double)steps);
    }
    return status;
}

static void
note_counters(struct bench_npu_report *report, enum bench_npu_way way,
        const rps_npu_counters *counters)
{
    if (way == BENCH_NPU_OWN) {
        report->own_launches = (double)counters->launches;
    } else if (way == BENCH_NPU_OFFLOAD) {
        report->offload_launches = (double)counters->launches;
        report->queue_copies = (double)counters->queue_copies;
        report->queue_depth_max = (double)counters->queue_depth_max;
    }
}

/* A round to warm up, then those that count. */
static rps_status
take_turns(
        struct bench *bench, struct bench_npu_ways *ways, struct turns *turns)
{
    struct bench_npu_run run;
    rps_status status = RPS_OK;

    for (uint64_t r = 0; r <= bench->args.rounds && status == RPS_OK; r++) {
        for (int way = 0; way < BENCH_NPU_WAYS && status == RPS_OK; way++) {
            status = one_run(
                    bench, ways, turns, (enum bench_npu_way)way, NULL, &run);
            note_counters(
                    &bench->report, (enum bench_npu_way)way, &run.counters);
            if (r == 0) {
                turns->seconds[way].count = 0;
            }
        }
    }
    return status;
}

static double
step_us(const struct turns *turns, enum bench_npu_way way)
{
    return bench_series_median(&turns->seconds[way]) * 1e6;
}

static void
finish_turns(struct turns *turns)
{
    for (int way = 0; way < BENCH_NPU_WAYS; way++) {
        bench_series_finish(&turns->seconds[way]);
    }
}

/* --- with latencies ------------------------------------------------------- */

/* What the loop saves, of a step: launches, but for one a loop, and copies. */
static double
model_us(const struct bench_npu_args *args, double launch, double copy)
{
    const double steps = (double)args->steps;
    const double launches = ceil(steps / (double)args->loop);

    return ((steps - launches) * launch + steps * copy) / steps * 1e6;
}

static rps_status
measure_simulated(
        struct bench *bench, struct bench_npu_ways *ways, struct turns *turns)
{
    struct bench_npu_report *report = &bench->report;
    double launch = 0.0, copy = 0.0;
    rps_status status = take_turns(bench, ways, turns);

    if (status == RPS_OK) {
        status = bench_npu_ways_latencies(ways, LATENCY_SAMPLES,
                step_us(turns, BENCH_NPU_OFFLOAD) * 1e-6, &launch, &copy);
    }
    report->launch_us = launch * 1e6;
    report->copy_us = copy * 1e6;
    report->own_step_us = step_us(turns, BENCH_NPU_OWN);
    report->ahead_step_us = step_us(turns, BENCH_NPU_AHEAD);
    report->offload_step_us = step_us(turns, BENCH_NPU_OFFLOAD);
    report->saved_step_us = report->own_step_us - report->offload_step_us;
    report->model_step_us = model_us(&bench->args, launch, copy);
    report->saved_over_model = report->saved_step_us / report->model_step_us;
    return status;
}

/* --- traces --------------------------------------------------------------- */

static rps_status
trace_way(struct bench *bench, struct bench_npu_ways *ways, struct turns *turns,
        enum bench_npu_way way, struct rps_error *error)
{
    char folder[4096];
    const struct rps_profile_options options = {
            .folder = folder,
            .first_step = 1,
            .last_step = bench->args.steps,
    };
    struct rps_profile_session *session = NULL;
    struct rps_profile_result result;
    struct bench_npu_run run;
    rps_status status;

    (void)snprintf(folder, sizeof(folder), "%s/%s", bench->args.trace,
            bench_npu_way_str(way));
    status = rps_profile_begin(&session, &options, error);
    if (status != RPS_OK) {
        return status;
    }
    rps_profile_step(1);
    status = one_run(bench, ways, turns, way, NULL, &run);
    if (status != RPS_OK) {
        (void)rps_fail(error, status, "%s", rps_npu_error());
    }
    rps_profile_step(bench->args.steps + 1);
    if (status != RPS_OK) {
        (void)rps_profile_end(session, &result, &(struct rps_error){0});
        return status;
    }
    status = rps_profile_end(session, &result, error);
    bench_progress(
            "npu: trace of %s in %s", bench_npu_way_str(way), result.folder);
    return status;
}

static rps_status
write_traces(struct bench *bench, struct bench_npu_ways *ways,
        struct turns *turns, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (int way = 0; way < BENCH_NPU_WAYS && status == RPS_OK &&
                      bench->args.trace != NULL;
            way++) {
        status = trace_way(bench, ways, turns, (enum bench_npu_way)way, error);
    }
    return status;
}

/* --- preprocessing that varies -------------------------------------------- */

/* The quantile of the triangular distribution from 0 over 0.4 to 2, whose mean
 * is 0.8; a fifth of it lies below 0.4. */
static double
triangular(double u)
{
    return u < 0.2 ? sqrt(u * 2.0 * 0.4)
                   : 2.0 - sqrt((1.0 - u) * 2.0 * (2.0 - 0.4));
}

static void
draw_times(uint64_t *times, uint64_t steps, double step_seconds, uint64_t seed,
        bool jitter)
{
    for (uint64_t k = 0; k < steps; k++) {
        const double u =
                (double)(rps_mix64(rps_mix64(seed) + k) >> 11) / 0x1p53;
        const double share = jitter ? triangular(u) : MEAN_SHARE;

        times[k] = (uint64_t)(share * step_seconds * 1e9);
    }
}

/** The four runs: which way, which times. */
struct prepared {
    enum bench_npu_way way;
    const uint64_t *times;
    double *figure; /* median time, in bare steps */
    struct turns turns;
};

/* They take turns, too. */
static rps_status
run_prepared(struct bench *bench, struct bench_npu_ways *ways,
        struct prepared runs[4], double step_seconds)
{
    struct bench_npu_run run;
    rps_status status = RPS_OK;

    for (uint64_t r = 0; r < bench->args.rounds; r++) {
        for (int i = 0; i < 4 && status == RPS_OK; i++) {
            status = one_run(bench, ways, &runs[i].turns, runs[i].way,
                    runs[i].times, &run);
        }
    }
    for (int i = 0; i < 4; i++) {
        *runs[i].figure =
                bench_series_median(&runs[i].turns.seconds[runs[i].way]) /
                step_seconds;
        finish_turns(&runs[i].turns);
    }
    return status;
}

/* times[2 steps]: constant ones, then those with jitter. */
static rps_status
measure_times(struct bench *bench, struct bench_npu_ways *ways,
        double step_seconds, uint64_t *times)
{
    struct bench_npu_report *report = &bench->report;
    const uint64_t steps = bench->args.steps, seed = bench->args.seed;
    struct prepared runs[4] = {
            {BENCH_NPU_OFFLOAD, times, &report->offload_constant, {{{0}}}},
            {BENCH_NPU_OWN, times, &report->own_constant, {{{0}}}},
            {BENCH_NPU_OFFLOAD, times + steps, &report->offload_jitter,
                    {{{0}}}},
            {BENCH_NPU_OWN, times + steps, &report->own_jitter, {{{0}}}},
    };
    rps_status status;

    draw_times(times, steps, step_seconds, seed, false);
    draw_times(times + steps, steps, step_seconds, seed, true);
    status = run_prepared(bench, ways, runs, step_seconds);
    report->offload_jitter_loss =
            report->offload_jitter / report->offload_constant - 1.0;
    report->own_jitter_loss =
            report->own_jitter / report->offload_constant - 1.0;
    return status;
}

static rps_status
part_jitter(struct bench *bench, struct bench_npu_ways *ways,
        struct rps_error *error)
{
    uint64_t *times = calloc(2 * bench->args.steps, sizeof(*times));
    struct turns turns = {0};
    double step_seconds;
    rps_status status =
            times == NULL ? RPS_E_NOMEM : take_turns(bench, ways, &turns);

    (void)error;
    step_seconds = bench_series_median(&turns.seconds[BENCH_NPU_OFFLOAD]);
    bench->report.jitter_step_us = step_seconds * 1e6;
    if (status == RPS_OK) {
        status = measure_times(bench, ways, step_seconds, times);
    }
    finish_turns(&turns);
    free(times);
    return status;
}

/* --- the parts ------------------------------------------------------------ */

static rps_status
part_simulated(struct bench *bench, struct bench_npu_ways *ways,
        struct rps_error *error)
{
    struct turns turns = {0};
    rps_status status = measure_simulated(bench, ways, &turns);

    if (status == RPS_OK) {
        status = write_traces(bench, ways, &turns, error);
    }
    finish_turns(&turns);
    return status;
}

static rps_status
part_bare(struct bench *bench, struct bench_npu_ways *ways,
        struct rps_error *error)
{
    struct bench_npu_report *report = &bench->report;
    struct turns turns = {0};
    rps_status status = take_turns(bench, ways, &turns);

    (void)error;
    report->bare_own_step_us = step_us(&turns, BENCH_NPU_OWN);
    report->bare_ahead_step_us = step_us(&turns, BENCH_NPU_AHEAD);
    report->bare_offload_step_us = step_us(&turns, BENCH_NPU_OFFLOAD);
    report->bare_gain = report->bare_own_step_us / report->bare_offload_step_us;
    finish_turns(&turns);
    return status;
}

static rps_status
run_part(struct bench *bench, const char *words, bool simulated, uint64_t scale,
        rps_status (*part)(struct bench *bench, struct bench_npu_ways *ways,
                struct rps_error *error))
{
    struct rps_error error = {0};
    struct bench_npu_ways ways;
    rps_status status =
            bench_npu_ways_init(&ways, &bench->args, simulated, scale);

    bench_progress("npu: %s", words);
    if (status == RPS_OK) {
        status = part(bench, &ways, &error);
    }
    if (status != RPS_OK) {
        fprintf(stderr, "recps-bench npu: %s\n",
                error.text[0] != '\0' ? error.text : rps_npu_error());
    }
    bench_npu_ways_finish(&ways);
    return status;
}

int
bench_npu_main(int argc, char **argv)
{
    struct bench bench = {0};
    int code = bench_npu_args_read(&bench.args, argc, argv);
    rps_status status;

    if (code != 0) {
        return code;
    }
    bench_npu_report_init(&bench.report);
    status = run_part(
            &bench, "with simulated latencies", true, 1, part_simulated);
    if (status == RPS_OK) {
        status = run_part(&bench, "without them", false, 1, part_bare);
    }
    if (status == RPS_OK) {
        status = run_part(&bench, "preprocessing that varies", false,
                bench.args.jitter_scale, part_jitter);
    }
    if (status != RPS_OK) {
        return status == RPS_E_MISMATCH || status == RPS_E_INVAL ? EX_USAGE
                                                                 : EX_SOFTWARE;
    }
    if (!bench_npu_report_print(&bench.report, &bench.args)) {
        return EX_IOERR;
    }
    return bench.wrong ? 1 : EX_OK;
}
