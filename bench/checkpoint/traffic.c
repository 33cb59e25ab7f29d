/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/checkpoint/traffic.h"

#include "base/clock.h"
#include "bench/dist.h"
#include "bench/model.h"

#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static rps_status
draw(struct bench_traffic *traffic)
{
    const struct bench_keyset *set = &traffic->saves->set;
    const struct bench_dist_spec uniform = {.kind = BENCH_DIST_UNIFORM};
    uint32_t *rows = calloc(traffic->batch, sizeof(*rows));
    struct bench_dist dist = {.seed = 0};
    const bool good =
            rows != NULL && bench_dist_init(&dist, &uniform, set,
                                    traffic->saves->args->seed, traffic->batch);

    for (size_t b = 0; good && b < BENCH_TRAFFIC_BATCHES; b++) {
        bench_dist_draw(&dist, traffic->batch, true, rows);
        for (size_t i = 0; i < traffic->batch; i++) {
            traffic->keys[b * traffic->batch + i] =
                    bench_keyset_key(set, rows[i]);
        }
    }
    bench_dist_finish(&dist);
    free(rows);
    return good ? RPS_OK : RPS_E_NOMEM;
}

rps_status
bench_traffic_init(struct bench_traffic *traffic, struct bench_saves *saves)
{
    const size_t batch = saves->args->batch;
    const size_t dim = saves->args->spec.dim;

    *traffic = (struct bench_traffic){.saves = saves,
            .batch = batch,
            .keys = calloc(BENCH_TRAFFIC_BATCHES * batch, sizeof(uint64_t)),
            .gradients = calloc(batch * dim, sizeof(float)),
            .rows = calloc(batch * dim, sizeof(float))};
    if (traffic->keys == NULL || traffic->gradients == NULL ||
            traffic->rows == NULL) {
        return RPS_E_NOMEM;
    }
    for (size_t i = 0; i < batch; i++) {
        bench_gradient(i, (uint32_t)dim, traffic->gradients + i * dim);
    }
    return draw(traffic);
}

void
bench_traffic_finish(struct bench_traffic *traffic)
{
    free(traffic->keys);
    free(traffic->gradients);
    free(traffic->rows);
    *traffic = (struct bench_traffic){.batch = 0};
}

static const uint64_t *
next_keys(struct bench_traffic *traffic)
{
    return traffic->keys +
           traffic->next++ % BENCH_TRAFFIC_BATCHES * traffic->batch;
}

/* As the server: it has its lock shared, and a cut exclusively. */
static rps_status
push(struct bench_traffic *traffic)
{
    struct bench_saves *saves = traffic->saves;
    const struct rps_contribution contribution = {.count = traffic->batch,
            .keys = next_keys(traffic),
            .gradients = traffic->gradients};
    struct rps_apply_report report;
    rps_status status;

    pthread_rwlock_rdlock(&saves->changing);
    status = rps_table_apply(
            saves->table, &bench_update, &contribution, 1, &report);
    pthread_rwlock_unlock(&saves->changing);
    return status == RPS_OK
                   ? RPS_OK
                   : rps_fail(&saves->error, status, "a push of %zu keys: %s",
                             traffic->batch, rps_status_str(status));
}

static void
lookup(struct bench_traffic *traffic)
{
    struct rps_table *table = traffic->saves->table;
    const struct rps_read read = {
            .count = traffic->batch, .keys = next_keys(traffic)};

    rps_table_lookup(table, &read, traffic->rows,
            traffic->saves->args->spec.dim * sizeof(float));
}

rps_status
bench_traffic_push(struct bench_traffic *traffic, uint64_t count)
{
    rps_status status = RPS_OK;

    traffic->next = 0;
    for (uint64_t i = 0; i < count && status == RPS_OK; i++) {
        status = push(traffic);
    }
    return status;
}

static uint64_t
after(double seconds)
{
    return rps_clock_ns() + (uint64_t)(seconds * 1e9);
}

rps_status
bench_traffic_peak(
        struct bench_traffic *traffic, double seconds, double *per_second)
{
    const uint64_t start = rps_clock_ns();
    const uint64_t end = after(seconds);
    uint64_t count = 0;
    rps_status status = RPS_OK;

    while (status == RPS_OK && rps_clock_ns() < end) {
        status = push(traffic);
        lookup(traffic);
        count++;
    }
    *per_second = (double)count / ((double)(rps_clock_ns() - start) / 1e9);
    return status;
}

static void
wait_until(uint64_t due)
{
    const struct timespec at = {.tv_sec = (time_t)(due / 1000000000u),
            .tv_nsec = (long)(due % 1000000000u)};

    while (rps_clock_ns() < due) {
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    }
}

rps_status
bench_traffic_run(struct bench_traffic *traffic, double per_second,
        double seconds, const _Atomic bool *stop, const _Atomic bool *counts,
        struct bench_latencies *latencies)
{
    const uint64_t start = rps_clock_ns();
    const uint64_t end = after(seconds);
    const double interval = 1e9 / (2 * per_second);
    rps_status status = RPS_OK;

    (void)prctl(PR_SET_TIMERSLACK, 1ul, 0, 0, 0);
    for (uint64_t i = 0; status == RPS_OK; i++) {
        const uint64_t due = start + (uint64_t)((double)i * interval);
        const bool is_push = i % 2 == 0;
        bool counted;

        if (due >= end && (stop == NULL || atomic_load(stop))) {
            break;
        }
        wait_until(due);
        counted = counts == NULL || atomic_load(counts);
        if (is_push) {
            status = push(traffic);
        } else {
            lookup(traffic);
        }
        if (counted) {
            bench_series_add(is_push ? &latencies->push : &latencies->lookup,
                    (double)(rps_clock_ns() - due) / 1e3);
        }
    }
    return status;
}
