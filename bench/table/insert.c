/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table that grows from nothing by pushes of 256 new keys, out of memory
 * that is warm (memory.h): a page's first touch takes what this machine's
 * kernel needs to zero it, and not what a virtual machine's host needs to
 * find it. Runs in a process of its own (main.c): what its resident memory
 * grows by, what is held in reserve left out, is the table.
 *
 * It grows three times, with the same keys, and so does the same each time in
 * each batch: the least of its three times is the batch's. A pause of the
 * table is in all of them; one of the machine is in one, or in two.
 */
#include "base/clock.h"
#include "bench/check.h"
#include "bench/memory.h"
#include "bench/print.h"
#include "bench/series.h"
#include "bench/table/parts.h"

#include <math.h>

#define ROUNDS         3u
#define ROW_BYTES_MORE 32u /* of index and room, for the reserve */

struct inserts {
    const struct bench_table_args *args;
    const struct bench_keyset *set;
    struct bench_report *report;
    struct rps_table *table;
    struct bench_model model;
    struct bench_batch batch;
    struct bench_reserve reserve;
    double before; /* resident bytes, without the reserve */
    double peak;   /* of them so far, in an earlier state of the reserve */
    unsigned round;
    struct bench_series cpu_ns[ROUNDS]; /* each: of batch i in place i */
    struct bench_series wall_ns[ROUNDS];
};

static size_t
take(struct inserts *inserts, uint64_t first)
{
    const uint64_t left = inserts->set->rows - first;
    struct bench_batch *batch = &inserts->batch;

    batch->n = left < BENCH_INSERT_BATCH ? (size_t)left : BENCH_INSERT_BATCH;
    for (size_t i = 0; i < batch->n; i++) {
        batch->rows[i] = (uint32_t)(first + i);
        batch->keys[i] = bench_keyset_key(inserts->set, first + i);
        bench_gradient(first + i, inserts->args->dims[0],
                batch->gradients + i * inserts->args->dims[0]);
    }
    return batch->n;
}

/* Resident bytes that are the table's, now or at most since the last reset. */
static double
table_bytes(const struct inserts *inserts, uint64_t resident)
{
    return (double)resident - (double)inserts->reserve.held - inserts->before;
}

static double
peak_so_far(const struct inserts *inserts)
{
    return fmax(inserts->peak, table_bytes(inserts, bench_rss_peak_bytes()));
}

static void
keep_warm(struct inserts *inserts)
{
    struct bench_reserve *reserve = &inserts->reserve;
    const double used = fmax(0, table_bytes(inserts, bench_rss_bytes()));

    if (!bench_reserve_is_due(reserve, (size_t)used)) {
        return;
    }
    inserts->peak = peak_so_far(inserts);
    while (bench_reserve_is_due(reserve, (size_t)used)) {
        bench_reserve_give(reserve);
    }
    (void)bench_rss_peak_reset();
}

static rps_status
insert_all(struct inserts *inserts)
{
    rps_status status = RPS_OK;

    for (uint64_t at = 0; at < inserts->set->rows && status == RPS_OK;) {
        uint64_t wall = 0;
        uint64_t cpu = 0;
        const size_t n = take(inserts, at);
        keep_warm(inserts);
        wall = rps_clock_ns();
        cpu = bench_thread_cpu_ns();
        status = bench_batch_push(
                inserts->table, &inserts->batch, &inserts->report->error);
        bench_series_add(&inserts->cpu_ns[inserts->round],
                (double)(bench_thread_cpu_ns() - cpu));
        bench_series_add(&inserts->wall_ns[inserts->round],
                (double)(rps_clock_ns() - wall));
        at += n;
    }
    return status;
}

/* Each row: its first value, then one step. */
static rps_status
check_all(struct inserts *inserts)
{
    struct bench_batch *batch = &inserts->batch;
    const uint32_t dim = inserts->args->dims[0];
    struct rps_error *error = &inserts->report->error;
    rps_status status = RPS_OK;

    for (uint64_t at = 0; at < inserts->set->rows && status == RPS_OK;) {
        const size_t n = take(inserts, at);
        const struct rps_read read = {.count = n, .keys = batch->keys};
        const struct bench_past past = {.n = n,
                .rows = batch->rows,
                .counts = batch->counts,
                .starts = batch->starts};
        for (size_t i = 0; i < n; i++) {
            batch->counts[i] = 1;
            rps_table_first_value(
                    inserts->table, batch->keys[i], batch->starts + i * dim);
        }
        rps_table_lookup(
                inserts->table, &read, batch->out, dim * sizeof(float));
        status = bench_model_expect(
                &inserts->model, &past, batch->wanted, error);
        if (status == RPS_OK) {
            status = bench_check_rows(
                    batch->keys, n, dim, batch->out, batch->wanted, error);
        }
        inserts->report->checked_answers += (double)n;
        at += n;
    }
    return status;
}

/* rounds[ROUNDS]; what comes out is in the first. */
static const struct bench_series *
take_least(struct bench_series *rounds)
{
    for (unsigned round = 1; round < ROUNDS; round++) {
        for (size_t i = 0; i < rounds[0].count; i++) {
            rounds[0].values[i] =
                    fmin(rounds[0].values[i], rounds[round].values[i]);
        }
    }
    return &rounds[0];
}

static void
fill_report(struct inserts *inserts)
{
    struct bench_report *report = inserts->report;
    const struct bench_series *cpu = NULL;
    const struct bench_series *wall = NULL;
    double once = 0;

    for (unsigned i = 0; i < ROUNDS; i++) {
        once = fmax(once, bench_series_quantile(&inserts->cpu_ns[i], 1));
    }
    cpu = take_least(inserts->cpu_ns);
    wall = take_least(inserts->wall_ns);
    report->insert_ns = bench_series_median(wall) / BENCH_INSERT_BATCH;
    report->insert_batch_p50_us = bench_series_quantile(cpu, 0.5) / 1e3;
    report->insert_batch_p9999_us = bench_series_quantile(cpu, 0.9999) / 1e3;
    report->insert_batch_max_us = bench_series_quantile(cpu, 1) / 1e3;
    report->insert_batch_once_max_us = once / 1e3;
    report->insert_batch_p50_wall_us = bench_series_quantile(wall, 0.5) / 1e3;
    report->insert_batch_p9999_wall_us =
            bench_series_quantile(wall, 0.9999) / 1e3;
    report->insert_batch_max_wall_us = bench_series_quantile(wall, 1) / 1e3;
    report->insert_p9999_over_p50 =
            report->insert_batch_p9999_us / report->insert_batch_p50_us;
}

/* Grow, and compare the largest RSS on the way with the last. */
static rps_status
grow(struct inserts *inserts)
{
    const bool peaks = bench_rss_peak_reset();
    struct bench_report *report = inserts->report;
    rps_status status = RPS_OK;
    double end = 0;

    inserts->peak = 0;
    inserts->before = (double)bench_rss_bytes() - (double)inserts->reserve.held;
    status = insert_all(inserts);
    end = table_bytes(inserts, bench_rss_bytes());
    if (status == RPS_OK && peaks && end > 0) {
        const double ratio = fmax(1, peak_so_far(inserts) / end);
        report->grow_peak_ratio =
                inserts->round == 0 ? ratio
                                    : fmax(report->grow_peak_ratio, ratio);
    }
    return status;
}

static rps_status
run_round(struct inserts *inserts, const rps_table_spec *spec)
{
    const size_t row_bytes = bench_payload_bytes(spec) + ROW_BYTES_MORE;
    rps_status status = RPS_OK;

    if (!bench_reserve_init(
                &inserts->reserve, (size_t)inserts->set->rows * row_bytes)) {
        return RPS_E_NOMEM;
    }
    status =
            rps_table_create(&inserts->table, spec, 0, &inserts->report->error);
    if (status == RPS_OK) {
        status = grow(inserts);
    }
    bench_reserve_finish(&inserts->reserve);
    if (status == RPS_OK) {
        status = check_all(inserts);
    }
    rps_table_destroy(inserts->table);
    inserts->table = NULL;
    return status;
}

/* The samples' own memory must not grow while the table's is watched. */
static bool
series_room(struct bench_series *series, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bench_series_add(series, 0);
    }
    series->count = 0;
    return !series->failed;
}

static rps_status
prepare(struct inserts *inserts, const rps_table_spec *spec)
{
    const size_t batches = (size_t)inserts->set->rows / BENCH_INSERT_BATCH + 1;
    const rps_status status =
            bench_batch_init(&inserts->batch, BENCH_INSERT_BATCH, spec->dim);

    if (status != RPS_OK) {
        return status;
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (!series_room(&inserts->cpu_ns[i], batches) ||
                !series_room(&inserts->wall_ns[i], batches)) {
            return RPS_E_NOMEM;
        }
    }
    return bench_model_init(&inserts->model, spec, BENCH_INSERT_BATCH, 0, 0,
            &inserts->report->error);
}

rps_status
bench_part_insert(const struct bench_table_args *args,
        const struct bench_keyset *set, struct bench_report *report)
{
    struct inserts inserts = {.args = args, .set = set, .report = report};
    rps_table_spec spec;
    rps_status status = RPS_OK;

    bench_table_spec(args, 0, &spec);
    status = prepare(&inserts, &spec);
    for (; inserts.round < ROUNDS && status == RPS_OK; inserts.round++) {
        bench_progress("inserting %llu keys, %u of %u",
                (unsigned long long)set->rows, inserts.round + 1, ROUNDS);
        status = run_round(&inserts, &spec);
    }
    if (status == RPS_OK) {
        fill_report(&inserts);
    }
    bench_model_finish(&inserts.model);
    bench_batch_finish(&inserts.batch);
    for (unsigned i = 0; i < ROUNDS; i++) {
        bench_series_finish(&inserts.cpu_ns[i]);
        bench_series_finish(&inserts.wall_ns[i]);
    }
    return status;
}
