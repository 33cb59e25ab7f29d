/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/table/fixture.h"

#include "base/spec.h"
#include "bench/check.h"
#include "bench/memory.h"
#include "bench/model.h"
#include "bench/print.h"
#include "bench/table/warm.h"

#include <stdlib.h>
#include <string.h>

#define FILL_KEYS 4096u

/* calloc() that is resident when it returns. */
static void *
touched(size_t count, size_t size)
{
    void *memory = calloc(count, size);

    if (memory != NULL) {
        memset(memory, 1, count * size);
        memset(memory, 0, count * size);
    }
    return memory;
}

rps_status
bench_batch_init(struct bench_batch *batch, size_t n, uint32_t dim)
{
    *batch = (struct bench_batch){.n = n};
    batch->rows = touched(n, sizeof(*batch->rows));
    batch->keys = touched(n, sizeof(*batch->keys));
    batch->addresses = touched(n, sizeof(*batch->addresses));
    batch->sums = touched(n, sizeof(*batch->sums));
    batch->counts = touched(n, sizeof(*batch->counts));
    batch->out = touched(n * dim, sizeof(*batch->out));
    batch->wanted = touched(n * dim, sizeof(*batch->wanted));
    batch->starts = touched(n * dim, sizeof(*batch->starts));
    batch->gradients = touched(n * dim, sizeof(*batch->gradients));
    return batch->rows != NULL && batch->keys != NULL &&
                           batch->addresses != NULL && batch->sums != NULL &&
                           batch->counts != NULL && batch->out != NULL &&
                           batch->wanted != NULL && batch->starts != NULL &&
                           batch->gradients != NULL
                   ? RPS_OK
                   : RPS_E_NOMEM;
}

void
bench_batch_finish(struct bench_batch *batch)
{
    free(batch->rows);
    free(batch->keys);
    free(batch->addresses);
    free(batch->sums);
    free(batch->counts);
    free(batch->out);
    free(batch->wanted);
    free(batch->starts);
    free(batch->gradients);
    *batch = (struct bench_batch){0};
}

size_t
bench_payload_bytes(const rps_table_spec *spec)
{
    return spec->dim * bench_value_bytes(spec->value_dtype) +
           sizeof(float) * rps_spec_slot_floats(spec);
}

rps_status
bench_fill(struct rps_table *table, const struct bench_keyset *set,
        uint64_t first, uint64_t n, struct bench_batch *batch,
        struct rps_error *error)
{
    const rps_table_spec *spec = rps_table_spec_of(table);
    rps_status status = RPS_OK;

    for (uint64_t at = 0; at < n && status == RPS_OK;) {
        size_t chunk = 0;
        for (; chunk < batch->n && at < n; chunk++, at++) {
            const uint64_t key = bench_keyset_key(set, first + at);
            batch->keys[chunk] = key;
            bench_pattern(spec->value_dtype, key, spec->dim,
                    batch->starts + chunk * spec->dim);
        }
        status = rps_table_assign(
                table, chunk, batch->keys, batch->starts, NULL, NULL, error);
    }
    return status;
}

static rps_status
make_rows(struct bench_fixture *fixture)
{
    struct bench_arrays *arrays = &fixture->arrays;

    arrays->row_count = fixture->set->rows;
    arrays->row_bytes =
            fixture->dim * bench_value_bytes(fixture->spec.value_dtype);
    arrays->rows = bench_huge_alloc(arrays->row_count * arrays->row_bytes);
    fixture->counts = touched(arrays->row_count, sizeof(*fixture->counts));
    if (arrays->rows == NULL || fixture->counts == NULL) {
        return RPS_E_NOMEM;
    }
    for (uint64_t i = 0; i < arrays->row_count; i++) {
        bench_pattern_stored(fixture->spec.value_dtype,
                bench_keyset_key(fixture->set, i), fixture->dim,
                arrays->rows + i * arrays->row_bytes);
    }
    return RPS_OK;
}

static rps_status
make_table(struct bench_fixture *fixture)
{
    struct bench_report *report = fixture->report;
    const uint64_t rows = fixture->set->rows;
    struct rps_table_stats stats;
    struct bench_batch batch;
    uint64_t before = 0;
    rps_status status = bench_batch_init(&batch, FILL_KEYS, fixture->dim);

    if (status == RPS_OK) {
        before = bench_rss_bytes();
        status = rps_table_create(
                &fixture->table, &fixture->spec, 0, &report->error);
    }
    if (status == RPS_OK) {
        status = bench_fill(
                fixture->table, fixture->set, 0, rows, &batch, &report->error);
    }
    if (status == RPS_OK) {
        const double grown = (double)bench_rss_bytes() - (double)before;
        rps_table_stats_of(fixture->table, &stats);
        report->overhead_bytes_per_row =
                grown / (double)rows -
                (double)bench_payload_bytes(&fixture->spec);
        report->table_bytes = (double)stats.bytes;
        report->index_bytes = (double)stats.index_bytes;
        if (stats.rows != rows) {
            status = rps_fail(&report->error, RPS_E_CORRUPT,
                    "wrong answer: the table has %llu rows, not %llu",
                    (unsigned long long)stats.rows, (unsigned long long)rows);
        }
    }
    bench_batch_finish(&batch);
    return status;
}

rps_status
bench_fixture_init(struct bench_fixture *fixture,
        const struct bench_table_args *args, const struct bench_keyset *set,
        struct bench_report *report)
{
    rps_status status = RPS_OK;

    *fixture = (struct bench_fixture){
            .args = args, .set = set, .report = report, .dim = args->dims[0]};
    if (args->dist.kind == BENCH_DIST_HOT) {
        const struct bench_dist dist = {.spec = args->dist};
        fixture->hot_places = bench_dist_hot_places(&dist, args->batch);
    }
    bench_table_spec(args, 0, &fixture->spec);
    bench_progress("filling %llu rows of dim %u", (unsigned long long)set->rows,
            fixture->dim);
    status = make_rows(fixture);
    if (status == RPS_OK) {
        status = make_table(fixture);
    }
    if (status == RPS_OK) {
        status = bench_arrays_make_lines(
                &fixture->arrays, (uint64_t)report->index_bytes);
    }
    if (status == RPS_OK) {
        status = bench_warm_fixture(fixture);
    }
    if (status == RPS_E_NOMEM) {
        rps_fail(&report->error, status,
                "out of memory: fewer --rows or a smaller --dim");
    }
    return status;
}

void
bench_fixture_finish(struct bench_fixture *fixture)
{
    rps_table_destroy(fixture->table);
    bench_arrays_finish(&fixture->arrays);
    free(fixture->counts);
    fixture->table = NULL;
    fixture->counts = NULL;
}

void
bench_batch_keys(const struct bench_fixture *fixture, struct bench_batch *batch)
{
    for (size_t i = 0; i < batch->n; i++) {
        batch->keys[i] = bench_keyset_key(fixture->set, batch->rows[i]);
    }
}

void
bench_batch_gradients(struct bench_fixture *fixture, struct bench_batch *batch)
{
    bool hot = false;

    for (size_t i = 0; i < batch->n; i++) {
        const uint32_t row = batch->rows[i];
        bench_gradient(row, fixture->dim, batch->gradients + i * fixture->dim);
        if (row != 0 || fixture->hot_places == 0) {
            fixture->counts[row]++;
        } else {
            hot = true;
        }
    }
    if (hot) { /* else row 0 may be another thread's (mix.c) */
        fixture->counts[0]++;
    }
}

rps_status
bench_batch_push(struct rps_table *table, const struct bench_batch *batch,
        struct rps_error *error)
{
    const struct rps_contribution contribution = {.count = batch->n,
            .keys = batch->keys,
            .gradients = batch->gradients};
    struct rps_apply_report report;
    const rps_status status =
            rps_table_apply(table, &bench_update, &contribution, 1, &report);

    return status == RPS_OK ? RPS_OK
                            : rps_fail(error, status, "a push of %zu keys: %s",
                                      batch->n, rps_status_str(status));
}

rps_status
bench_batch_check(struct bench_fixture *fixture, struct bench_batch *batch,
        struct bench_model *model)
{
    const struct bench_past past = {.n = batch->n,
            .keeps = true,
            .rows = batch->rows,
            .counts = batch->counts,
            .starts = batch->starts};
    struct rps_error *error = &fixture->report->error;
    rps_status status = RPS_OK;

    for (size_t i = 0; i < batch->n; i++) {
        batch->counts[i] = fixture->counts[batch->rows[i]];
        bench_pattern(fixture->spec.value_dtype, batch->keys[i], fixture->dim,
                batch->starts + i * fixture->dim);
    }
    status = bench_model_expect(model, &past, batch->wanted, error);
    fixture->report->checked_answers += (double)batch->n;
    return status == RPS_OK
                   ? bench_check_rows(batch->keys, batch->n, fixture->dim,
                             batch->out, batch->wanted, error)
                   : status;
}

rps_status
bench_fixture_check_all(
        struct bench_fixture *fixture, struct bench_model *model)
{
    struct bench_batch batch;
    rps_status status = bench_batch_init(&batch, model->room, fixture->dim);

    for (uint64_t at = 0; at < fixture->set->rows && status == RPS_OK;
            at += batch.n) {
        const uint64_t left = fixture->set->rows - at;
        struct rps_read read = {.keys = batch.keys};
        batch.n = left < model->room ? (size_t)left : model->room;
        for (size_t i = 0; i < batch.n; i++) {
            batch.rows[i] = (uint32_t)(at + i);
        }
        bench_batch_keys(fixture, &batch);
        read.count = batch.n;
        rps_table_lookup(
                fixture->table, &read, batch.out, fixture->dim * sizeof(float));
        status = bench_batch_check(fixture, &batch, model);
    }
    bench_batch_finish(&batch);
    return status;
}
