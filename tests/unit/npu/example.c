/* SPDX-License-Identifier: Apache-2.0 */
#include <recps/npu_ops.h>

#include <pthread.h>
#include <stdio.h>

#define ROWS  64u
#define STEPS 100u

enum {
    X,
    Y,
    W,
    B,
    OUT,
    DOUT,
    DW,
    DB,
    RATE,
    TENSORS
};

struct fit {
    rps_npu *npu;
    rps_npu_stream *compute;
    rps_npu_queue *input;
    rps_npu_step *step;
    rps_npu_tensor t[TENSORS];
};

static int
failed(const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", what, rps_npu_error());
    return 1;
}

/* The input thread: y = 3 x - 1, one set a step, ahead of the device. */
static void *
feed(void *context)
{
    struct fit *fit = context;
    float x[ROWS];
    float y[ROWS];
    const void *const set[2] = {x, y};

    for (unsigned step = 0; step < STEPS; step++) {
        for (unsigned i = 0; i < ROWS; i++) {
            x[i] = (float)((step * 37 + i * 11) % 200) / 100.0f - 1.0f;
            y[i] = 3.0f * x[i] - 1.0f;
        }
        if (rps_npu_queue_put(fit->input, set) != RPS_OK) {
            return NULL; /* canceled */
        }
    }
    rps_npu_queue_end(fit->input);
    return NULL;
}

/* One step: take a set, forward, gradient of (out - y)^2 / 2, sgd. */
static rps_status
give_step(struct fit *fit)
{
    rps_npu_tensor *t = fit->t;
    void *const to[2] = {
            rps_npu_tensor_address(&t[X]), rps_npu_tensor_address(&t[Y])};
    rps_npu_ops ops = {.stream = fit->compute, .name = "line"};
    const rps_npu_linear forward = {
            .x = &t[X], .weight = &t[W], .bias = &t[B], .y = &t[OUT]};
    const rps_npu_linear_gradient backward = {
            .x = &t[X], .dy = &t[DOUT], .dweight = &t[DW], .dbias = &t[DB]};
    rps_npu_optimizer sgd;
    rps_status status = rps_npu_queue_take(fit->compute, fit->input, to);

    rps_npu_ops_options_init(&ops.options);
    rps_npu_optimizer_init(&sgd, RPS_NPU_SGD);
    sgd.learning_rate = &t[RATE];
    if (status == RPS_OK) {
        status = rps_npu_linear_forward(&ops, &forward);
    }
    if (status == RPS_OK) { /* out - y: y comes negated */
        status = rps_npu_scale(&ops, &t[Y], -1.0, NULL, &t[Y]);
    }
    if (status == RPS_OK) {
        status = rps_npu_add(&ops, &t[OUT], &t[Y], &t[DOUT]);
    }
    if (status == RPS_OK) {
        status = rps_npu_linear_backward(&ops, &backward);
    }
    if (status == RPS_OK) {
        status = rps_npu_optimizer_step(&ops, &sgd, &t[W], &t[DW], NULL, NULL);
    }
    if (status == RPS_OK) {
        status = rps_npu_optimizer_step(&ops, &sgd, &t[B], &t[DB], NULL, NULL);
    }
    return status;
}

static int
open_all(struct fit *fit)
{
    const uint64_t column[2] = {ROWS, 1};
    const uint64_t one[2] = {1, 1};
    const uint64_t bytes[2] = {ROWS * sizeof(float), ROWS * sizeof(float)};
    const double rate = 0.01;

    if (rps_npu_open(&fit->npu, 0, NULL) != RPS_OK ||
            rps_npu_stream_create(fit->npu, "compute", &fit->compute) !=
                    RPS_OK ||
            rps_npu_queue_create(
                    fit->npu, "input", 30, bytes, 2, &fit->input) != RPS_OK) {
        return failed("open");
    }
    for (int i = 0; i < TENSORS; i++) {
        const bool rows = i == X || i == Y || i == OUT || i == DOUT;
        const bool vector = i == B || i == DB || i == RATE;

        if (rps_npu_tensor_create(fit->compute,
                    i == RATE ? RPS_NPU_F64 : RPS_NPU_F32, vector ? 1 : 2,
                    rows ? column : one, &fit->t[i]) != RPS_OK ||
                rps_npu_fill_async(fit->compute,
                        rps_npu_tensor_address(&fit->t[i]), 0,
                        rps_npu_tensor_elements(&fit->t[i]) *
                                rps_npu_dtype_size(fit->t[i].dtype)) !=
                        RPS_OK) {
            return failed("tensor");
        }
    }
    if (rps_npu_tensor_from_host(fit->compute, &fit->t[RATE], &rate) !=
                    RPS_OK ||
            rps_npu_stream_synchronize(fit->compute) != RPS_OK) {
        return failed("copy");
    }
    return 0;
}

static int
train(struct fit *fit)
{
    rps_npu_counters before;
    rps_npu_counters after;
    pthread_t thread;
    uint64_t done = 0;
    rps_status status = rps_npu_capture_begin(fit->compute);

    if (status == RPS_OK) {
        status = give_step(fit); /* noted, not done */
    }
    if (status != RPS_OK ||
            rps_npu_capture_end(fit->compute, &fit->step) != RPS_OK) {
        return failed("capture");
    }
    rps_npu_read_counters(fit->npu, &before);
    if (pthread_create(&thread, NULL, feed, fit) != 0) {
        return failed("thread");
    }
    status = rps_npu_run(fit->compute, fit->step, STEPS, &done);
    rps_npu_queue_cancel(fit->input); /* where it failed: the thread ends */
    pthread_join(thread, NULL);
    if (status != RPS_OK) {
        return failed("run");
    }
    rps_npu_read_counters(fit->npu, &after);
    (void)printf("%u steps, %u launches, %u sets copied\n", (unsigned)done,
            (unsigned)(after.launches - before.launches),
            (unsigned)(after.queue_copies - before.queue_copies));
    return 0;
}

static int
show(struct fit *fit)
{
    float w = 0.0f;
    float b = 0.0f;

    if (rps_npu_tensor_to_host(fit->compute, &fit->t[W], &w) != RPS_OK ||
            rps_npu_tensor_to_host(fit->compute, &fit->t[B], &b) != RPS_OK ||
            rps_npu_stream_synchronize(fit->compute) != RPS_OK) {
        return failed("copy");
    }
    (void)printf("y = %.2f x + %.2f\n", (double)w, (double)b);
    return 0;
}

int
main(void)
{
    struct fit fit = {.npu = NULL};
    int code = open_all(&fit);

    if (code == 0) {
        code = train(&fit);
    }
    if (code == 0) {
        code = show(&fit);
    }
    rps_npu_step_destroy(fit.step);
    for (int i = 0; i < TENSORS; i++) {
        rps_npu_tensor_release(&fit.t[i]);
    }
    rps_npu_queue_destroy(fit.input);
    rps_npu_stream_destroy(fit.compute);
    rps_npu_close(fit.npu);
    return code;
}
