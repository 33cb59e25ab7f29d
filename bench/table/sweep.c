/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resident bytes a row beyond its payload, of a table that grows through
 * several sizes, evenly by logarithm. Each dim runs in a process of its own
 * (main.c), so that what its memory grows by is this table.
 */
#include "bench/check.h"
#include "bench/memory.h"
#include "bench/print.h"
#include "bench/table/parts.h"

#include <math.h>

#define FILL_KEYS  4096u
#define CHECK_KEYS 65536u /* random rows at each size */

static uint64_t
size_at(const struct bench_sweep *sweep, uint64_t i)
{
    const double share =
            sweep->count == 1 ? 1 : (double)i / (double)(sweep->count - 1);
    const double ratio = (double)sweep->to / (double)sweep->from;

    return (uint64_t)llround((double)sweep->from * pow(ratio, share));
}

static rps_status
check_some(struct rps_table *table, const struct bench_keyset *set,
        uint64_t rows, struct bench_batch *batch, struct bench_report *report)
{
    const rps_table_spec *spec = rps_table_spec_of(table);
    const struct rps_read read = {.count = batch->n, .keys = batch->keys};
    rps_status status = RPS_OK;

    for (uint64_t at = 0; at < CHECK_KEYS && status == RPS_OK; at += batch->n) {
        for (size_t i = 0; i < batch->n; i++) {
            batch->keys[i] =
                    bench_keyset_key(set, rps_mix64(at + i + rows) % rows);
        }
        rps_table_lookup(table, &read, batch->out, spec->dim * sizeof(float));
        status = bench_check_pattern(spec->value_dtype, batch->keys, batch->n,
                spec->dim, batch->out, batch->wanted, &report->error);
        report->checked_answers += (double)batch->n;
    }
    return status;
}

static void
note_point(struct bench_report *report, const rps_table_spec *spec,
        uint64_t rows, uint64_t grown)
{
    struct bench_point *point = &report->points[report->point_count++];

    *point = (struct bench_point){.dim = spec->dim,
            .rows = rows,
            .overhead = (double)grown / (double)rows -
                        (double)bench_payload_bytes(spec)};
    bench_progress("dim %u, %llu rows: %.2f bytes a row", spec->dim,
            (unsigned long long)rows, point->overhead);
}

static rps_status
sweep_one(const struct bench_table_args *args, const struct bench_keyset *set,
        struct bench_report *report)
{
    struct rps_table *table = NULL;
    struct bench_batch batch;
    rps_table_spec spec;
    uint64_t before = 0;
    uint64_t rows = 0;
    rps_status status = bench_batch_init(&batch, FILL_KEYS, args->dims[0]);

    bench_table_spec(args, 0, &spec);
    before = bench_rss_bytes();
    if (status == RPS_OK) {
        status = rps_table_create(&table, &spec, 0, &report->error);
    }
    for (uint64_t i = 0; i < args->sweep.count && status == RPS_OK; i++) {
        const uint64_t size = size_at(&args->sweep, i);
        status = bench_fill(
                table, set, rows, size - rows, &batch, &report->error);
        rows = size;
        if (status == RPS_OK) {
            note_point(report, &spec, rows, bench_rss_bytes() - before);
            status = check_some(table, set, rows, &batch, report);
        }
    }
    rps_table_destroy(table);
    bench_batch_finish(&batch);
    return status;
}

rps_status
bench_part_sweep(const struct bench_table_args *args,
        const struct bench_keyset *set, struct bench_report *report)
{
    const size_t first = report->point_count;
    const rps_status status = sweep_one(args, set, report);
    double sum = 0;

    for (size_t i = 0; i < report->point_count; i++) {
        sum += report->points[i].overhead;
        report->overhead_max =
                i == 0 ? report->points[i].overhead
                       : fmax(report->overhead_max, report->points[i].overhead);
    }
    if (report->point_count > first) {
        report->overhead_mean = sum / (double)report->point_count;
    }
    return status;
}
