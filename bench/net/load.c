/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/net/load.h"

#include "base/clock.h"
#include "bench/net/lane.h"
#include "bench/print.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum rps_value
bench_net_pattern(const struct bench_net_args *args)
{
    if (args->value != RPS_VALUE_F32) {
        return args->value;
    }
    return args->wire == RPS_VALUE_F32 ? RPS_VALUE_F32 : RPS_VALUE_BF16;
}

static rps_status
init_pushes(struct bench_load *load, struct rps_error *error)
{
    const struct bench_net_args *args = load->args;
    rps_table_spec spec;

    bench_net_spec(args, &spec);
    load->counts = calloc(load->set->rows, sizeof(*load->counts));
    load->scratch = calloc(args->batch, sizeof(*load->scratch));
    load->gradients =
            calloc((size_t)BENCH_GRADIENT_CLASSES * args->dim, sizeof(float));
    if (load->counts == NULL || load->scratch == NULL ||
            load->gradients == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    for (uint64_t i = 0; i < BENCH_GRADIENT_CLASSES; i++) {
        bench_gradient(i, args->dim, load->gradients + i * args->dim);
    }
    return bench_model_init(
            &load->model, &spec, args->batch, load->set->rows, 0, error);
}

rps_status
bench_load_init(struct bench_load *load, struct rps_error *error)
{
    const unsigned lanes = load->connections + (load->beside > 0);
    rps_status status = RPS_OK;

    if (!bench_net_only_reads(load->args)) {
        status = init_pushes(load, error);
    }
    load->lanes = calloc(lanes, sizeof(*load->lanes));
    if (status == RPS_OK && load->lanes == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    for (unsigned i = 0; i < lanes && status == RPS_OK; i++) {
        load->lanes[i].load = load;
        load->lanes[i].index = i;
        load->lane_count = i + 1;
        status = bench_lane_init(&load->lanes[i], error);
    }
    if (status == RPS_OK && load->fills) {
        bench_progress("filling %llu rows of dim %u (%s)",
                (unsigned long long)load->set->rows, load->args->dim,
                rps_transport_str(load->transport));
        status = bench_fill_table(load->lanes[0].client, load->lanes[0].table,
                load->set, bench_net_pattern(load->args), error);
    }
    return status;
}

void
bench_load_drop(struct bench_load *load)
{
    rps_client *client = load->lane_count > 0 ? load->lanes[0].client : NULL;

    if (client != NULL && load->lanes[0].table != NULL &&
            load->args->address != NULL &&
            rps_drop_table(client, "recps_bench_net", NULL) != RPS_OK) {
        bench_progress("the table recps_bench_net stays there: %s",
                rps_client_error(client));
    }
}

void
bench_load_finish(struct bench_load *load)
{
    for (unsigned i = 0; i < load->lane_count; i++) {
        bench_lane_finish(&load->lanes[i]);
    }
    if (load->counts != NULL) {
        bench_model_finish(&load->model);
    }
    free(load->lanes);
    free(load->counts);
    free(load->scratch);
    free(load->gradients);
    *load = (struct bench_load){0};
}

static double
own_cpu_seconds(void)
{
    struct rusage usage = {0};

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* Every lane in a thread, the one beside until the others are through. */
static rps_status
run_lanes(struct bench_load *load, double seconds, struct rps_error *error)
{
    const uint64_t deadline = rps_clock_ns() + (uint64_t)(seconds * 1e9);
    atomic_bool stop = false;
    unsigned started = 0;

    for (; started < load->lane_count; started++) {
        struct bench_lane *lane = &load->lanes[started];
        lane->deadline_ns = lane->is_beside ? 0 : deadline;
        lane->stop = &stop;
        if (pthread_create(&lane->thread, NULL, bench_lane_run, lane) != 0) {
            break;
        }
    }
    for (unsigned i = 0; i < started && i < load->connections; i++) {
        pthread_join(load->lanes[i].thread, NULL);
    }
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    if (started > load->connections) {
        pthread_join(load->lanes[load->connections].thread, NULL);
    }
    return started == load->lane_count
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOMEM, "no thread for connection %u",
                             started);
}

/* The lanes' sums. */
static rps_status
gather(struct bench_load *load, struct bench_slice *slice,
        struct rps_error *error)
{
    uint64_t first = UINT64_MAX;
    uint64_t last = 0;
    rps_traffic sum = {0};

    for (unsigned i = 0; i < load->lane_count; i++) {
        const struct bench_lane *lane = &load->lanes[i];
        if (lane->status != RPS_OK) {
            *error = lane->error;
            return lane->status;
        }
        if (lane->is_beside) {
            slice->beside_ids = lane->ids;
            continue;
        }
        first = lane->first_ns < first ? lane->first_ns : first;
        last = lane->last_ns > last ? lane->last_ns : last;
        slice->requests += lane->requests;
        slice->ids += lane->ids;
        sum.requests += lane->traffic.requests;
        sum.sent_bytes += lane->traffic.sent_bytes;
        sum.received_bytes += lane->traffic.received_bytes;
        for (size_t j = 0; j < lane->micros.count; j++) {
            bench_series_add(&slice->micros, lane->micros.values[j]);
        }
    }
    slice->seconds = (double)(last - first) / 1e9;
    slice->bytes = sum.sent_bytes + sum.received_bytes;
    if (sum.requests > 0) {
        load->request_bytes = sum.sent_bytes / sum.requests;
        load->reply_bytes = sum.received_bytes / sum.requests;
    }
    return RPS_OK;
}

static void
begin_lane(struct bench_lane *lane, const struct bench_turn *turn)
{
    lane->turn = turn;
    lane->requests = lane->ids = 0;
    lane->micros.count = 0;
    bench_lane_draw(lane);
}

rps_status
bench_turn_run(void *context, double seconds, struct bench_slice *slice,
        struct rps_error *error)
{
    const struct bench_turn *turn = context;
    struct bench_load *load = turn->load;
    rps_status status = RPS_OK;

    for (unsigned i = 0; i < load->lane_count; i++) {
        begin_lane(&load->lanes[i], turn);
    }
    slice->client_cpu_seconds = -own_cpu_seconds();
    slice->server_cpu_seconds = -bench_process_cpu_seconds(load->server->pid);
    status = run_lanes(load, seconds, error);
    slice->client_cpu_seconds += own_cpu_seconds();
    slice->server_cpu_seconds += bench_process_cpu_seconds(load->server->pid);
    if (status == RPS_OK) {
        status = gather(load, slice, error);
    }
    for (unsigned i = 0; i < load->lane_count && status == RPS_OK; i++) {
        status = bench_lane_check(&load->lanes[i], error);
        load->checked += load->lanes[i].checked;
        load->lanes[i].checked = 0;
    }
    return status;
}

rps_status
bench_load_check_all(struct bench_load *load, struct rps_error *error)
{
    struct bench_lane *lane = &load->lanes[0];
    rps_status status = RPS_OK;

    for (uint64_t at = 0;
            load->counts != NULL && at < load->set->rows && status == RPS_OK;
            at += lane->batch) {
        const uint64_t left = load->set->rows - at;
        const size_t n = left < lane->batch ? (size_t)left : lane->batch;
        for (size_t i = 0; i < n; i++) {
            lane->rows[i] = (uint32_t)(at + i);
        }
        status = bench_lane_check_rows(lane, n, lane->rows, error);
    }
    load->checked += lane->checked;
    lane->checked = 0;
    return status;
}
