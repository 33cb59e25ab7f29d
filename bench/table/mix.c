/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mix of lookups, pushes and inserts by weight, batch by batch. Each thread
 * has rows of its own (row mod threads), so that what an answer must be is
 * known to the bit although all threads share every shard. Pushes have
 * distinct keys but for a hot one; inserts are pushes of new keys.
 */
#include "base/clock.h"
#include "bench/check.h"
#include "bench/print.h"
#include "bench/series.h"
#include "bench/table/parts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define NEW_KEYS (1ull << 40) /* numbers of inserted keys start here */

struct mixer {
    pthread_t thread;
    struct bench_fixture fixture; /* a copy: table and counts are shared, and
                                     rows of counts this thread's own */
    struct bench_report report;   /* its error and its count of answers */
    struct bench_model model;
    struct bench_batch batch;
    struct bench_dist dist;
    unsigned index;
    uint64_t inserted;
    uint64_t draws;
    uint64_t ns;
    uint64_t keys;
    struct bench_series op_ns[BENCH_OP_COUNT];
    rps_status status;
};

static void
note_time(struct mixer *mixer, enum bench_op op, uint64_t start)
{
    const uint64_t ns = rps_clock_ns() - start;

    mixer->ns += ns;
    mixer->keys += mixer->batch.n;
    bench_series_add(&mixer->op_ns[op], (double)ns / (double)mixer->batch.n);
}

static void
lookup(struct mixer *mixer)
{
    const struct rps_read read = {
            .count = mixer->batch.n, .keys = mixer->batch.keys};

    rps_table_lookup(mixer->fixture.table, &read, mixer->batch.out,
            mixer->fixture.dim * sizeof(float));
}

static rps_status
do_lookup(struct mixer *mixer)
{
    uint64_t start = 0;

    bench_dist_draw(&mixer->dist, mixer->batch.n, false, mixer->batch.rows);
    bench_batch_keys(&mixer->fixture, &mixer->batch);
    start = rps_clock_ns();
    lookup(mixer);
    note_time(mixer, BENCH_OP_LOOKUP, start);
    return bench_batch_check(&mixer->fixture, &mixer->batch, &mixer->model);
}

static rps_status
do_push(struct mixer *mixer)
{
    uint64_t start = 0;
    rps_status status = RPS_OK;

    bench_dist_draw(&mixer->dist, mixer->batch.n, true, mixer->batch.rows);
    bench_batch_keys(&mixer->fixture, &mixer->batch);
    bench_batch_gradients(&mixer->fixture, &mixer->batch);
    start = rps_clock_ns();
    status = bench_batch_push(
            mixer->fixture.table, &mixer->batch, &mixer->report.error);
    note_time(mixer, BENCH_OP_PUSH, start);
    if (status == RPS_OK) {
        lookup(mixer);
        status = bench_batch_check(
                &mixer->fixture, &mixer->batch, &mixer->model);
    }
    return status;
}

static rps_status
check_inserted(struct mixer *mixer)
{
    struct bench_batch *batch = &mixer->batch;
    const struct bench_past past = {.n = batch->n,
            .rows = batch->rows,
            .counts = batch->counts,
            .starts = batch->starts};
    rps_status status = RPS_OK;

    lookup(mixer);
    for (size_t i = 0; i < batch->n; i++) {
        batch->counts[i] = 1;
        rps_table_first_value(mixer->fixture.table, batch->keys[i],
                batch->starts + i * mixer->fixture.dim);
    }
    status = bench_model_expect(
            &mixer->model, &past, batch->wanted, &mixer->report.error);
    mixer->report.checked_answers += (double)batch->n;
    return status == RPS_OK
                   ? bench_check_rows(batch->keys, batch->n, mixer->fixture.dim,
                             batch->out, batch->wanted, &mixer->report.error)
                   : status;
}

static rps_status
do_insert(struct mixer *mixer)
{
    const uint32_t dim = mixer->fixture.dim;
    struct bench_batch *batch = &mixer->batch;
    uint64_t start = 0;
    rps_status status = RPS_OK;

    for (size_t i = 0; i < batch->n; i++) {
        const uint64_t number =
                mixer->inserted++ * mixer->fixture.args->threads + mixer->index;
        batch->keys[i] = rps_mix64(NEW_KEYS + number);
        batch->rows[i] = (uint32_t)i + BENCH_GRADIENT_CLASSES; /* never 0 */
        bench_gradient(batch->rows[i], dim, batch->gradients + i * dim);
    }
    start = rps_clock_ns();
    status =
            bench_batch_push(mixer->fixture.table, batch, &mixer->report.error);
    note_time(mixer, BENCH_OP_INSERT, start);
    return status == RPS_OK ? check_inserted(mixer) : status;
}

static rps_status
do_one(struct mixer *mixer)
{
    const uint64_t *weights = mixer->fixture.args->mix;
    const uint64_t sum = weights[0] + weights[1] + weights[2];
    const uint64_t stream = mixer->fixture.args->seed + mixer->index;
    const uint64_t drawn = rps_mix64(stream ^ rps_mix64(mixer->draws++)) % sum;

    if (drawn < weights[BENCH_OP_LOOKUP]) {
        return do_lookup(mixer);
    }
    return drawn < weights[BENCH_OP_LOOKUP] + weights[BENCH_OP_PUSH]
                   ? do_push(mixer)
                   : do_insert(mixer);
}

static void *
run(void *context)
{
    struct mixer *mixer = context;
    const double ns_wanted = mixer->fixture.args->seconds * 1e9;
    const uint64_t start = rps_clock_ns();

    while (mixer->status == RPS_OK && (double)mixer->ns < ns_wanted &&
            (double)(rps_clock_ns() - start) < BENCH_WALL_MOST * ns_wanted) {
        mixer->status = do_one(mixer);
    }
    return NULL;
}

static rps_status
mixer_init(struct mixer *mixer, const struct bench_fixture *fixture,
        unsigned index)
{
    const struct bench_table_args *args = fixture->args;
    rps_status status = RPS_OK;

    mixer->fixture = *fixture;
    mixer->fixture.report = &mixer->report;
    mixer->index = index;
    status = bench_batch_init(&mixer->batch, args->batch, fixture->dim);
    if (status == RPS_OK) {
        status = bench_model_init(&mixer->model, &fixture->spec, args->batch,
                fixture->set->rows, fixture->hot_places,
                &fixture->report->error);
    }
    if (status == RPS_OK &&
            !bench_dist_init(&mixer->dist, &args->dist, fixture->set,
                    args->seed + index, args->batch)) {
        return RPS_E_NOMEM;
    }
    bench_dist_limit(&mixer->dist, args->threads, index);
    return status;
}

static void
mixer_finish(struct mixer *mixer)
{
    for (unsigned op = 0; op < BENCH_OP_COUNT; op++) {
        bench_series_finish(&mixer->op_ns[op]);
    }
    bench_dist_finish(&mixer->dist);
    bench_batch_finish(&mixer->batch);
    bench_model_finish(&mixer->model);
}

static rps_status
run_all(struct mixer *mixers, unsigned threads)
{
    unsigned started = 0;
    rps_status status = RPS_OK;

    while (started < threads && pthread_create(&mixers[started].thread, NULL,
                                        run, &mixers[started]) == 0) {
        started++;
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(mixers[i].thread, NULL);
        status = status == RPS_OK ? mixers[i].status : status;
    }
    return started == threads ? status : RPS_E_NOMEM;
}

static void
fill_report(struct bench_report *report, struct mixer *mixers, unsigned threads)
{
    double *const figures[] = {
            &report->lookup_ns, &report->push_ns, &report->insert_ns};

    report->mix_keys_per_second = 0;
    for (unsigned i = 0; i < threads; i++) {
        struct mixer *mixer = &mixers[i];
        report->mix_keys_per_second +=
                (double)mixer->keys * 1e9 / (double)mixer->ns;
        report->checked_answers += mixer->report.checked_answers;
        if (mixer->status != RPS_OK) {
            report->error = mixer->report.error;
        }
        for (unsigned op = 0; op < BENCH_OP_COUNT && i > 0; op++) {
            for (size_t k = 0; k < mixer->op_ns[op].count; k++) {
                bench_series_add(
                        &mixers[0].op_ns[op], mixer->op_ns[op].values[k]);
            }
        }
    }
    for (unsigned op = 0; op < BENCH_OP_COUNT; op++) {
        *figures[op] = bench_series_median(&mixers[0].op_ns[op]);
    }
}

rps_status
bench_part_mix(struct bench_fixture *fixture)
{
    const unsigned threads = fixture->args->threads;
    struct mixer *mixers = calloc(threads, sizeof(*mixers));
    rps_status status = mixers == NULL ? RPS_E_NOMEM : RPS_OK;

    bench_progress("timing the mix");
    for (unsigned i = 0; i < threads && status == RPS_OK; i++) {
        status = mixer_init(&mixers[i], fixture, i);
    }
    if (status == RPS_OK) {
        status = run_all(mixers, threads);
        fill_report(fixture->report, mixers, threads);
    }
    for (unsigned i = 0; i < threads && mixers != NULL; i++) {
        mixer_finish(&mixers[i]);
    }
    free(mixers);
    return status;
}
