/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/npu/ways.h"

#include "base/clock.h"
#include "bench/series.h"
#include "client/npu/pause.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const char *
bench_npu_way_str(enum bench_npu_way way)
{
    static const char *const names[BENCH_NPU_WAYS] = {
            [BENCH_NPU_OWN] = "own",
            [BENCH_NPU_AHEAD] = "ahead",
            [BENCH_NPU_OFFLOAD] = "offload",
    };

    return names[way];
}

/* --- made once ------------------------------------------------------------ */

static rps_status
compile_step(struct bench_npu_ways *ways, enum bench_npu_way way)
{
    rps_status status = rps_npu_capture_begin(ways->stream);

    if (status == RPS_OK) {
        status = bench_npu_model_step(&ways->model, ways->queues[way]);
    }
    return status == RPS_OK
                   ? rps_npu_capture_end(ways->stream, &ways->steps[way])
                   : status;
}

static rps_status
compile_ways(struct bench_npu_ways *ways)
{
    const uint64_t bytes = ways->model.input_floats * sizeof(float);
    rps_status status = RPS_OK;

    for (int way = 0; way < BENCH_NPU_WAYS && status == RPS_OK; way++) {
        const uint32_t depth =
                way == BENCH_NPU_OFFLOAD ? (uint32_t)ways->loop : 1;

        if (way != BENCH_NPU_OWN) {
            status = rps_npu_queue_create(ways->npu,
                    bench_npu_way_str((enum bench_npu_way)way), depth, &bytes,
                    1, &ways->queues[way]);
        }
        if (status == RPS_OK) {
            status = compile_step(ways, (enum bench_npu_way)way);
        }
    }
    return status;
}

static rps_status
be_busy(void *context)
{
    const struct bench_npu_ways *ways = context;
    const uint64_t end = rps_clock_ns() + ways->busy_ns;

    while (rps_clock_ns() < end) {
        rps_npu_relax();
    }
    return RPS_OK;
}

static rps_status
compile_busy(struct bench_npu_ways *ways)
{
    rps_status status = rps_npu_capture_begin(ways->stream);

    if (status == RPS_OK) {
        status = rps_npu_call_async(ways->stream, "busy", be_busy, ways);
    }
    return status == RPS_OK ? rps_npu_capture_end(ways->stream, &ways->busy)
                            : status;
}

static rps_status
make_sets(struct bench_npu_ways *ways)
{
    const uint64_t floats = ways->model.input_floats;

    ways->sets = malloc(BENCH_NPU_SETS * floats * sizeof(float));
    for (uint64_t s = 0; ways->sets != NULL && s < BENCH_NPU_SETS; s++) {
        bench_npu_model_fill(
                &ways->model, ways->seed, s, ways->sets + s * floats);
    }
    return ways->sets != NULL ? RPS_OK : RPS_E_NOMEM;
}

rps_status
bench_npu_ways_init(struct bench_npu_ways *ways,
        const struct bench_npu_args *args, bool simulated, uint64_t scale)
{
    rps_npu_options options;
    rps_status status;

    memset(ways, 0, sizeof(*ways));
    ways->loop = args->loop;
    ways->seed = args->seed;
    rps_npu_options_init(&options);
    if (simulated) {
        options.launch_latency_ns = args->launch_latency_ns;
        options.link_bytes_per_second = args->link_bytes_per_second;
    }
    status = rps_npu_open(&ways->npu, args->device, &options);
    if (status == RPS_OK) {
        status = rps_npu_stream_create(ways->npu, "compute", &ways->stream);
    }
    if (status == RPS_OK) {
        status = bench_npu_model_init(&ways->model, ways->stream,
                args->batch * scale, args->width * scale);
    }
    if (status == RPS_OK) {
        status = compile_ways(ways);
    }
    if (status == RPS_OK) {
        status = compile_busy(ways);
    }
    return status == RPS_OK ? make_sets(ways) : status;
}

void
bench_npu_ways_finish(struct bench_npu_ways *ways)
{
    for (int way = 0; way < BENCH_NPU_WAYS; way++) {
        rps_npu_step_destroy(ways->steps[way]);
        rps_npu_queue_destroy(ways->queues[way]);
    }
    rps_npu_step_destroy(ways->busy);
    bench_npu_model_finish(&ways->model);
    rps_npu_stream_destroy(ways->stream);
    rps_npu_close(ways->npu);
    free(ways->sets);
    memset(ways, 0, sizeof(*ways));
}

/* --- a run ---------------------------------------------------------------- */

/** What the input thread does. */
struct feed {
    struct bench_npu_ways *ways;
    rps_npu_queue *queue;
    uint64_t steps;
    const uint64_t *prepare_ns;
    rps_status status;
};

static const void *
prepare(const struct bench_npu_ways *ways, uint64_t step,
        const uint64_t *prepare_ns)
{
    if (prepare_ns != NULL) {
        rps_npu_pause_until(rps_clock_ns() + prepare_ns[step]);
    }
    return ways->sets + step % BENCH_NPU_SETS * ways->model.input_floats;
}

static void *
feed(void *context)
{
    struct feed *feed = context;

    for (uint64_t k = 0; k < feed->steps && feed->status == RPS_OK; k++) {
        const void *const from[1] = {prepare(feed->ways, k, feed->prepare_ns)};

        feed->status = rps_npu_queue_put(feed->queue, from);
    }
    rps_npu_queue_end(feed->queue);
    return NULL;
}

static rps_status
run_own(struct bench_npu_ways *ways, uint64_t steps, const uint64_t *prepare_ns)
{
    const uint64_t bytes = ways->model.input_floats * sizeof(float);
    void *input = rps_npu_tensor_address(&ways->model.input);
    rps_status status = RPS_OK;

    for (uint64_t k = 0; k < steps && status == RPS_OK; k++) {
        status = rps_npu_copy_async(ways->stream, input,
                prepare(ways, k, prepare_ns), bytes, RPS_NPU_TO_DEVICE);
        if (status == RPS_OK) {
            status =
                    rps_npu_launch(ways->stream, ways->steps[BENCH_NPU_OWN], 1);
        }
        if (status == RPS_OK) {
            status = rps_npu_stream_synchronize(ways->stream);
        }
    }
    return status;
}

static rps_status
run_fed(struct bench_npu_ways *ways, enum bench_npu_way way, uint64_t steps,
        const uint64_t *prepare_ns)
{
    struct feed work = {.ways = ways,
            .queue = ways->queues[way],
            .steps = steps,
            .prepare_ns = prepare_ns};
    uint64_t done = 0;
    pthread_t thread;
    rps_status status;

    rps_npu_queue_restart(work.queue);
    rps_npu_queue_expect(work.queue, steps);
    status = rps_npu_set_loop_size(way == BENCH_NPU_OFFLOAD ? ways->loop : 1);
    if (status != RPS_OK) {
        return status;
    }
    if (pthread_create(&thread, NULL, feed, &work) != 0) {
        return RPS_E_NOMEM;
    }
    status = rps_npu_run(ways->stream, ways->steps[way], steps, &done);
    if (status != RPS_OK) {
        rps_npu_queue_cancel(work.queue);
    }
    pthread_join(thread, NULL);
    if (status == RPS_OK && done != steps) {
        return rps_npu_host_failed(RPS_E_MISMATCH, "steps are missing");
    }
    return status == RPS_OK ? work.status : status;
}

static void
subtract(rps_npu_counters *counters, const rps_npu_counters *before)
{
    counters->launches -= before->launches;
    counters->steps -= before->steps;
    counters->queue_copies -= before->queue_copies;
    counters->copies_to_device -= before->copies_to_device;
}

rps_status
bench_npu_ways_run(struct bench_npu_ways *ways, enum bench_npu_way way,
        uint64_t steps, const uint64_t *prepare_ns, struct bench_npu_run *run)
{
    rps_npu_counters before;
    uint64_t start;
    rps_status status = bench_npu_model_reset(&ways->model, ways->seed);

    rps_npu_read_counters(ways->npu, &before);
    start = rps_clock_ns();
    if (status == RPS_OK) {
        status = way == BENCH_NPU_OWN ? run_own(ways, steps, prepare_ns)
                                      : run_fed(ways, way, steps, prepare_ns);
    }
    run->seconds = (double)(rps_clock_ns() - start) * 1e-9;
    rps_npu_read_counters(ways->npu, &run->counters);
    subtract(&run->counters, &before);
    return status == RPS_OK ? bench_npu_model_digest(
                                      &ways->model, &run->digest, &run->loss)
                            : status;
}

/* --- latencies ------------------------------------------------------------ */

static rps_status
launch_busy(struct bench_npu_ways *ways, bool with_copy, double *seconds)
{
    const uint64_t start = rps_clock_ns();
    rps_status status = RPS_OK;

    if (with_copy) {
        status = rps_npu_copy_async(ways->stream,
                rps_npu_tensor_address(&ways->model.input), ways->sets,
                ways->model.input_floats * sizeof(float), RPS_NPU_TO_DEVICE);
    }
    if (status == RPS_OK) {
        status = rps_npu_launch(ways->stream, ways->busy, 1);
    }
    if (status == RPS_OK) {
        status = rps_npu_stream_synchronize(ways->stream);
    }
    *seconds = (double)(rps_clock_ns() - start) * 1e-9;
    return status;
}

rps_status
bench_npu_ways_latencies(struct bench_npu_ways *ways, uint64_t count,
        double step_seconds, double *launch_out, double *copy_out)
{
    struct bench_series alone = {0}, with_copy = {0};
    double seconds = 0.0;
    rps_status status = RPS_OK;

    ways->busy_ns = (uint64_t)(step_seconds * 1e9);
    for (uint64_t i = 0; i < count && status == RPS_OK; i++) {
        status = launch_busy(ways, false, &seconds);
        bench_series_add(&alone, seconds);
        if (status == RPS_OK) {
            status = launch_busy(ways, true, &seconds);
            bench_series_add(&with_copy, seconds);
        }
    }
    *launch_out = bench_series_median(&alone) - step_seconds;
    *copy_out = bench_series_median(&with_copy) - bench_series_median(&alone);
    bench_series_finish(&alone);
    bench_series_finish(&with_copy);
    return status;
}
