/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npu_fragmentation: what it does to a device's memory when variables and slots
 * are asked for, told by a training run's requests without its kernels.
 *
 *   first  all variables, then all slots, then the steps
 *   mixed  each variable when the first step comes to it, its slots when they
 *          are first updated: among activations and gradients that go again
 *
 * The model is a DLRM (26 tables of dimension 128, MLPs 512-256-128 and
 * 1024-1024-512-256-1) with adam, its batches 2048, then 4096 for an
 * evaluation, then 2048 and 1024. Prints the table of docs/NPU.md; nothing in
 * it is measured in time, so it is the same everywhere.
 */
#include <recps/npu.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB    UINT64_C(1048576)
#define TABLES 26u
#define DIM    128u
#define DENSE  13u
#define PAIRS  479u /* 128 and 27 * 26 / 2 dots */
#define BOTTOM 3u
#define LAYERS 8u

static const uint64_t widths[LAYERS][2] = {/* in, out */
        {DENSE, 512}, {512, 256}, {256, DIM}, {PAIRS, 1024}, {1024, 1024},
        {1024, 512}, {512, 256}, {256, 1}};

/* A run: variables stay, the rest comes and goes. */
struct run {
    rps_npu *npu;
    rps_npu_stream *stream;
    bool mixed;
    bool failed; /* a request was: nothing is asked for any more */
    void *weight[LAYERS], *bias[LAYERS];
    void *slots[LAYERS][4];
    void *out[LAYERS];
    void *gradient[LAYERS][2];
};

static void *
ask(struct run *run, uint64_t floats)
{
    void *address = NULL;

    if (!run->failed &&
            rps_npu_pool_alloc(run->stream, 4 * floats, &address) != RPS_OK) {
        run->failed = true;
    }
    return address;
}

static void
give(struct run *run, void **address)
{
    (void)rps_npu_pool_free(run->npu, *address);
    *address = NULL;
}

static uint64_t
weight_floats(size_t l)
{
    return widths[l][0] * widths[l][1];
}

static void
make_variables(struct run *run, size_t l)
{
    if (run->weight[l] == NULL) {
        run->weight[l] = ask(run, weight_floats(l));
        run->bias[l] = ask(run, widths[l][1]);
    }
}

/* adam's m and v, of weight and bias */
static void
make_slots(struct run *run, size_t l)
{
    for (size_t i = 0; i < 4 && run->slots[l][i] == NULL; i++) {
        run->slots[l][i] = ask(run, i < 2 ? weight_floats(l) : widths[l][1]);
    }
}

static void
forward_layers(struct run *run, size_t from, size_t to, uint64_t batch)
{
    for (size_t l = from; l < to; l++) {
        make_variables(run, l);
        run->out[l] = ask(run, batch * widths[l][1]);
    }
}

/* dx of the layer: given back by whoever takes it. */
static void *
backward_layer(struct run *run, size_t l, uint64_t batch, void *dy)
{
    void *dx = ask(run, batch * widths[l][0]);

    run->gradient[l][0] = ask(run, weight_floats(l));
    run->gradient[l][1] = ask(run, widths[l][1]);
    give(run, &dy);
    give(run, &run->out[l]);
    return dx;
}

static void
update(struct run *run)
{
    for (size_t l = 0; l < LAYERS; l++) {
        make_slots(run, l);
        give(run, &run->gradient[l][0]);
        give(run, &run->gradient[l][1]);
    }
}

static void
backward(struct run *run, uint64_t batch, void *dy)
{
    void *drows = NULL;

    for (size_t l = LAYERS; l-- > BOTTOM;) {
        dy = backward_layer(run, l, batch, dy);
    }
    drows = ask(run, batch * TABLES * DIM);
    give(run, &dy);
    dy = ask(run, batch * DIM);
    for (size_t l = BOTTOM; l-- > 0;) {
        dy = backward_layer(run, l, batch, dy);
    }
    give(run, &dy);
    give(run, &drows);
    update(run);
}

static void
step(struct run *run, uint64_t batch, bool train)
{
    void *dense = ask(run, batch * DENSE);
    void *labels = ask(run, batch);
    void *rows = ask(run, batch * TABLES * DIM);
    void *pairs = NULL;

    forward_layers(run, 0, BOTTOM, batch);
    pairs = ask(run, batch * PAIRS);
    forward_layers(run, BOTTOM, LAYERS, batch);
    if (train) {
        backward(run, batch, ask(run, batch));
    }
    for (size_t l = 0; l < LAYERS; l++) {
        give(run, &run->out[l]);
    }
    give(run, &pairs);
    give(run, &rows);
    give(run, &labels);
    give(run, &dense);
}

static void
must(rps_status status)
{
    if (status != RPS_OK) {
        fprintf(stderr, "npu_fragmentation: %s\n", rps_npu_error());
        exit(EXIT_FAILURE);
    }
}

static struct run
begin(bool mixed, uint64_t memory)
{
    struct run run = {.mixed = mixed};
    rps_npu_options options;

    rps_npu_options_init(&options);
    options.memory_bytes = memory;
    must(rps_npu_open(&run.npu, 0, &options));
    must(rps_npu_stream_create(run.npu, "compute", &run.stream));
    for (size_t l = 0; l < LAYERS && !mixed; l++) {
        make_variables(&run, l);
    }
    for (size_t l = 0; l < LAYERS && !mixed; l++) {
        make_slots(&run, l);
    }
    return run;
}

static void
end(struct run *run)
{
    rps_npu_stream_destroy(run->stream);
    rps_npu_close(run->npu);
}

static void
train(struct run *run)
{
    static const uint64_t batches[] = {
            2048, 2048, 2048, 4096, 2048, 1024, 2048};

    for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
        step(run, batches[i], batches[i] != 4096);
    }
}

/* The least memory, in MiB, in which the whole run ends well. */
static uint64_t
least_memory(bool mixed)
{
    uint64_t low = 1;
    uint64_t high = 1024;

    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        struct run run = begin(mixed, middle * MIB);

        train(&run);
        if (run.failed) {
            low = middle + 1;
        } else {
            high = middle;
        }
        end(&run);
    }
    return low;
}

static double
mib(uint64_t bytes)
{
    return (double)bytes / (double)MIB;
}

static void
show(bool mixed)
{
    struct run run = begin(mixed, 1024 * MIB);
    rps_npu_pool_stats all, trimmed;

    train(&run);
    rps_npu_pool_read_stats(run.npu, &all);
    (void)rps_npu_pool_trim(run.npu);
    rps_npu_pool_read_stats(run.npu, &trimmed);
    end(&run);
    printf("| %s | %.1f MiB | %.1f MiB | %.1f MiB | %.1f %% | %" PRIu64
           " MiB |\n",
            mixed ? "mixed" : "variables and slots first",
            mib(all.allocated.now), mib(all.reserved.now),
            mib(trimmed.reserved.now), 100.0 * trimmed.fragmentation,
            least_memory(mixed));
}

int
main(void)
{
    printf("| order | allocated at rest | reserved | reserved after a trim | "
           "fragmentation then | fits in |\n"
           "|---|---|---|---|---|---|\n");
    show(false);
    show(true);
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
