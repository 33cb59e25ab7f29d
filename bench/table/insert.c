/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table that grows from nothing by pushes of 256 new keys. The machine's
 * memory is warmed before (as much as the table will take is touched and
 * given back), so that a virtual machine's first touch is not in the figures.
 * Runs in a process of its own (main.c): what its resident memory grows by is
 * the table.
 */
#include "base/clock.h"
#include "bench/table/check.h"
#include "bench/table/memory.h"
#include "bench/table/parts.h"
#include "bench/table/series.h"

#include <math.h>

#define ROW_BYTES_MORE 32u /* of index and room, for the warm-up */

struct inserts {
    const struct bench_table_args *args;
    const struct bench_keyset *set;
    struct bench_report *report;
    struct rps_table *table;
    struct bench_model model;
    struct bench_batch batch;
    struct bench_series cpu_ns;
    struct bench_series wall_ns;
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

static rps_status
insert_all(struct inserts *inserts)
{
    rps_status status = RPS_OK;

    for (uint64_t at = 0; at < inserts->set->rows && status == RPS_OK;) {
        const size_t n = take(inserts, at);
        const uint64_t wall = rps_clock_ns();
        const uint64_t cpu = bench_thread_cpu_ns();
        status = bench_batch_push(
                inserts->table, &inserts->batch, &inserts->report->error);
        bench_series_add(
                &inserts->cpu_ns, (double)(bench_thread_cpu_ns() - cpu));
        bench_series_add(&inserts->wall_ns, (double)(rps_clock_ns() - wall));
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

static void
fill_report(const struct inserts *inserts)
{
    struct bench_report *report = inserts->report;
    const struct bench_series *cpu = &inserts->cpu_ns;
    const struct bench_series *wall = &inserts->wall_ns;

    report->insert_ns = bench_series_median(wall) / BENCH_INSERT_BATCH;
    report->insert_batch_p50_us = bench_series_quantile(cpu, 0.5) / 1e3;
    report->insert_batch_p9999_us = bench_series_quantile(cpu, 0.9999) / 1e3;
    report->insert_batch_max_us = bench_series_quantile(cpu, 1) / 1e3;
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
    const double before = (double)bench_rss_bytes();
    const bool peaks = bench_rss_peak_reset();
    const rps_status status = insert_all(inserts);
    const double peak = (double)bench_rss_peak_bytes();
    const double end = (double)bench_rss_bytes();

    if (status == RPS_OK && peaks && end > before) {
        inserts->report->grow_peak_ratio =
                fmax(1, (peak - before) / (end - before));
    }
    return status;
}

/* The samples' own memory must not grow while the table's is watched. */
static bool
reserve(struct bench_series *series, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bench_series_add(series, 0);
    }
    series->count = 0;
    return !series->failed;
}

rps_status
bench_part_insert(const struct bench_table_args *args,
        const struct bench_keyset *set, struct bench_report *report)
{
    struct inserts inserts = {.args = args, .set = set, .report = report};
    const size_t batches = (size_t)(set->rows / BENCH_INSERT_BATCH + 1);
    rps_table_spec spec;
    rps_status status = RPS_OK;

    bench_progress("inserting %llu keys", (unsigned long long)set->rows);
    bench_table_spec(args, 0, &spec);
    status =
            bench_batch_init(&inserts.batch, BENCH_INSERT_BATCH, args->dims[0]);
    if (status == RPS_OK &&
            (!reserve(&inserts.cpu_ns, batches) ||
                    !reserve(&inserts.wall_ns, batches) ||
                    !bench_memory_warm(
                            (size_t)set->rows *
                            (bench_payload_bytes(&spec) + ROW_BYTES_MORE)))) {
        status = RPS_E_NOMEM;
    }
    if (status == RPS_OK) {
        status = bench_model_init(&inserts.model, &spec, BENCH_INSERT_BATCH, 0,
                0, &report->error);
    }
    if (status == RPS_OK) {
        status = rps_table_create(&inserts.table, &spec, 0, &report->error);
    }
    if (status == RPS_OK) {
        status = grow(&inserts);
    }
    if (status == RPS_OK) {
        status = check_all(&inserts);
    }
    if (status == RPS_OK) {
        fill_report(&inserts);
    }
    rps_table_destroy(inserts.table);
    bench_model_finish(&inserts.model);
    bench_batch_finish(&inserts.batch);
    bench_series_finish(&inserts.cpu_ns);
    bench_series_finish(&inserts.wall_ns);
    return status;
}
