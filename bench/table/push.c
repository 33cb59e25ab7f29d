/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pushes beside lookups of other keys, batch by batch. A push's keys are
 * distinct, as a client's are, but for a hot key, which comes as often as it
 * was drawn. Each looked-up row is compared with the model, and in the end
 * (bench_fixture_check_all) every row of the table is.
 */
#include "base/clock.h"
#include "bench/print.h"
#include "bench/series.h"
#include "bench/table/parts.h"

#define BATCHES_MIN 15u

struct pushes {
    struct bench_fixture *fixture;
    struct bench_model *model;
    struct bench_batch batch;
    struct bench_dist dist;
    struct bench_series push_ns;
    struct bench_series lookup_ns;
};

static rps_status
one_push(struct pushes *pushes)
{
    struct bench_batch *batch = &pushes->batch;
    struct rps_error *error = &pushes->fixture->report->error;
    uint64_t start = 0;
    rps_status status = RPS_OK;

    bench_dist_draw(&pushes->dist, batch->n, true, batch->rows);
    bench_batch_keys(pushes->fixture, batch);
    bench_batch_gradients(pushes->fixture, batch);
    start = rps_clock_ns();
    status = bench_batch_push(pushes->fixture->table, batch, error);
    bench_series_add(&pushes->push_ns, (double)(rps_clock_ns() - start));
    return status;
}

static rps_status
one_lookup(struct pushes *pushes)
{
    struct bench_batch *batch = &pushes->batch;
    const struct rps_read read = {.count = batch->n, .keys = batch->keys};
    uint64_t start = 0;

    bench_dist_draw(&pushes->dist, batch->n, false, batch->rows);
    bench_batch_keys(pushes->fixture, batch);
    start = rps_clock_ns();
    rps_table_lookup(pushes->fixture->table, &read, batch->out,
            pushes->fixture->dim * sizeof(float));
    bench_series_add(&pushes->lookup_ns, (double)(rps_clock_ns() - start));
    return bench_batch_check(pushes->fixture, batch, pushes->model);
}

static rps_status
run(struct pushes *pushes)
{
    const double ns_wanted = pushes->fixture->args->seconds * 1e9;
    const uint64_t start = rps_clock_ns();
    double ns = 0;
    rps_status status = RPS_OK;

    for (unsigned i = 0;
            status == RPS_OK &&
            (i < BATCHES_MIN ||
                    (ns < ns_wanted && (double)(rps_clock_ns() - start) <
                                               BENCH_WALL_MOST * ns_wanted));
            i++) {
        status = one_lookup(pushes);
        if (status == RPS_OK) {
            status = one_push(pushes);
        }
        ns += pushes->lookup_ns.values[i];
    }
    return status;
}

rps_status
bench_part_push(struct bench_fixture *fixture, struct bench_model *model)
{
    const struct bench_table_args *args = fixture->args;
    struct pushes pushes = {.fixture = fixture, .model = model};
    rps_status status =
            bench_batch_init(&pushes.batch, args->batch, fixture->dim);

    bench_progress("timing pushes");
    if (status == RPS_OK &&
            !bench_dist_init(&pushes.dist, &args->dist, fixture->set,
                    args->seed + 1, args->batch)) {
        status = RPS_E_NOMEM;
    }
    if (status == RPS_OK) {
        status = run(&pushes);
    }
    if (status == RPS_OK) {
        fixture->report->push_ns =
                bench_series_median(&pushes.push_ns) / (double)args->batch;
        fixture->report->push_over_lookup =
                bench_median_ratio(&pushes.push_ns, &pushes.lookup_ns);
    }
    bench_series_finish(&pushes.push_ns);
    bench_series_finish(&pushes.lookup_ns);
    bench_dist_finish(&pushes.dist);
    bench_batch_finish(&pushes.batch);
    return status;
}
