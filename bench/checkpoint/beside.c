/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/checkpoint/beside.h"

#include "bench/checkpoint/traffic.h"
#include "bench/print.h"
#include "embedding/cut.h"

#include <math.h>

#define DELTA_SHARE 10u /* a delta is of a tenth of the rows, about */

static rps_status
save_delta(struct bench_saves *saves, uint64_t step)
{
    struct bench_checkpoint_report *report = saves->report;
    struct bench_saved saved = {0};
    struct bench_restored restored = {0};
    rps_status status = bench_saves_write(saves, step, true, &saved);

    report->delta_rows = (double)saved.rows;
    report->delta_bytes = (double)saved.bytes;
    report->delta_seconds = saved.seconds;
    report->delta_bytes_per_second = (double)saved.bytes / saved.seconds;
    if (status == RPS_OK) {
        status = bench_saves_restore(saves, step, true, &restored);
        report->delta_restore_seconds = restored.seconds;
    }
    if (saved.bytes > 0) {
        const rps_status removed = bench_saves_remove(saves, step);

        status = status == RPS_OK ? removed : status;
    }
    return status;
}

/* About a tenth of the rows, or what the batches have. */
static uint64_t
batches_for_delta(const struct bench_saves *saves)
{
    const uint64_t wanted =
            saves->args->rows / DELTA_SHARE / saves->args->batch + 1;

    return wanted < BENCH_TRAFFIC_BATCHES ? wanted : BENCH_TRAFFIC_BATCHES;
}

rps_status
bench_part_delta(struct bench_saves *saves, uint64_t step)
{
    struct bench_traffic traffic;
    struct bench_saved saved = {0};
    rps_status status = bench_traffic_init(&traffic, saves);

    bench_progress("a delta");
    if (status == RPS_OK) {
        status = bench_saves_write(saves, step, false, &saved);
    }
    if (status == RPS_OK) {
        status = bench_traffic_push(&traffic, batches_for_delta(saves));
    }
    if (status == RPS_OK) {
        status = save_delta(saves, step + 1);
    }
    if (saved.bytes > 0) {
        const rps_status removed = bench_saves_remove(saves, step);

        status = status == RPS_OK ? removed : status;
    }
    bench_traffic_finish(&traffic);
    return status;
}

/** The thread that saves beside the traffic, one save after the other. */
struct saver {
    struct bench_saves *saves;
    uint64_t step;
    _Atomic bool stop;   /* no further save */
    _Atomic bool saving; /* one is under way */
    _Atomic bool saved;  /* one is done, or has failed */
    double extra_rss;
    double pause;
    rps_status status;
};

static rps_status
save_once(struct saver *saver)
{
    struct bench_saved saved = {0};
    double seconds = 0;
    uint64_t bytes = 0;
    rps_status status;

    atomic_store(&saver->saving, true);
    status = bench_saves_write(saver->saves, saver->step, false, &saved);
    atomic_store(&saver->saving, false);
    saver->extra_rss = fmax(saver->extra_rss, saved.extra_rss);
    saver->pause = fmax(saver->pause, saved.pause);
    if (status == RPS_OK && !atomic_load(&saver->saved)) {
        status =
                bench_saves_verify(saver->saves, saver->step, &seconds, &bytes);
    }
    atomic_store(&saver->saved, true);
    if (saved.bytes > 0) {
        const rps_status removed =
                bench_saves_remove(saver->saves, saver->step);

        status = status == RPS_OK ? removed : status;
    }
    return status;
}

static void *
run_saver(void *argument)
{
    struct saver *saver = argument;

    while (saver->status == RPS_OK && !atomic_load(&saver->stop)) {
        saver->status = save_once(saver);
        saver->step++;
    }
    atomic_store(&saver->saved, true);
    return NULL;
}

static rps_status
run_beside_saves(struct bench_traffic *traffic, uint64_t step,
        double per_second, struct bench_latencies *latencies)
{
    struct bench_saves *saves = traffic->saves;
    struct saver saver = {.saves = saves, .step = step};
    pthread_t thread;
    rps_status status;

    if (pthread_create(&thread, NULL, run_saver, &saver) != 0) {
        return rps_fail(&saves->error, RPS_E_NOMEM, "no thread to save on");
    }
    status = bench_traffic_run(traffic, per_second, saves->args->seconds,
            &saver.saved, &saver.saving, latencies);
    atomic_store(&saver.stop, true);
    pthread_join(thread, NULL);
    saves->report->saving_extra_rss_bytes = saver.extra_rss;
    saves->report->cut_pause_us = saver.pause * 1e6;
    return status == RPS_OK ? saver.status : status;
}

static void
finish(struct bench_latencies *latencies)
{
    bench_series_finish(&latencies->push);
    bench_series_finish(&latencies->lookup);
}

static void
fill_report(struct bench_checkpoint_report *report,
        const struct bench_latencies *idle,
        const struct bench_latencies *saving)
{
    report->push_p50_idle_us = bench_series_median(&idle->push);
    report->push_p99_idle_us = bench_series_quantile(&idle->push, 0.99);
    report->push_p50_saving_us = bench_series_median(&saving->push);
    report->push_p99_saving_us = bench_series_quantile(&saving->push, 0.99);
    report->push_p99_ratio =
            report->push_p99_saving_us / report->push_p99_idle_us;
    report->lookup_p50_idle_us = bench_series_median(&idle->lookup);
    report->lookup_p99_idle_us = bench_series_quantile(&idle->lookup, 0.99);
    report->lookup_p50_saving_us = bench_series_median(&saving->lookup);
    report->lookup_p99_saving_us = bench_series_quantile(&saving->lookup, 0.99);
    report->lookup_p99_ratio =
            report->lookup_p99_saving_us / report->lookup_p99_idle_us;
}

static rps_status
run_traffic(struct bench_traffic *traffic, uint64_t step)
{
    struct bench_saves *saves = traffic->saves;
    const double seconds = saves->args->seconds;
    struct bench_latencies idle = {0};
    struct bench_latencies saving = {0};
    double peak = 0;
    rps_status status = bench_traffic_peak(traffic, seconds / 2, &peak);

    while (rps_cut_make_ready(saves->store, saves->args->save_buffer)) {
        /* as the server does between its saves */
    }
    saves->report->push_peak_per_second = peak;
    if (status == RPS_OK) {
        status = bench_traffic_run(
                traffic, peak / 2, seconds, NULL, NULL, &idle);
    }
    if (status == RPS_OK) {
        status = run_beside_saves(traffic, step, peak / 2, &saving);
    }
    if (status == RPS_OK) {
        fill_report(saves->report, &idle, &saving);
    }
    finish(&idle);
    finish(&saving);
    return status;
}

rps_status
bench_part_traffic(struct bench_saves *saves, uint64_t step)
{
    struct bench_traffic traffic;
    rps_status status = bench_traffic_init(&traffic, saves);

    bench_progress("pushes and lookups, idle and beside saves");
    if (status == RPS_OK) {
        status = run_traffic(&traffic, step);
    }
    bench_traffic_finish(&traffic);
    return status;
}
