/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small model on a device: three layers, binary cross entropy, plain SGD;
 * its input is one piece of memory, so that a step's input is one copy.
 */
#ifndef RPS_BENCH_NPU_MODEL_H
#define RPS_BENCH_NPU_MODEL_H

#include <recps/npu_ops.h>

#include <stdint.h>

#define BENCH_NPU_LAYERS 3u

struct bench_npu_layer {
    rps_npu_tensor weight; /* [out][in] */
    rps_npu_tensor bias;   /* [out] */
    rps_npu_tensor y;      /* [batch][out] */
    rps_npu_tensor dy;
    rps_npu_tensor dweight;
    rps_npu_tensor dbias;
};

struct bench_npu_model {
    uint64_t batch;
    uint64_t width;
    uint64_t input_floats;  /* of a step: [batch][width], then [batch] labels */
    rps_npu_stream *stream; /* borrowed */
    rps_npu_tensor input;   /* [input_floats] */
    rps_npu_tensor x;       /* view: [batch][width] */
    rps_npu_tensor labels;  /* view: [batch][1] */
    rps_npu_tensor rate;    /* f64 [1] */
    rps_npu_tensor loss;    /* f64 [1] */
    rps_npu_tensor scale;   /* f64 [2] */
    struct bench_npu_layer layers[BENCH_NPU_LAYERS];
};

/** Finish it in any case. Errors: rps_npu_error(). */
rps_status bench_npu_model_init(struct bench_npu_model *model,
        rps_npu_stream *stream, uint64_t batch, uint64_t width);
void bench_npu_model_finish(struct bench_npu_model *model);

/** Start values from `seed`. */
rps_status bench_npu_model_reset(struct bench_npu_model *model, uint64_t seed);

/** A step, given to the stream: done or captured. With a queue it takes its
 * input there. */
rps_status bench_npu_model_step(
        const struct bench_npu_model *model, rps_npu_queue *queue);

/** XXH3_64 of all weights, once the stream is done; and the last loss. */
rps_status bench_npu_model_digest(const struct bench_npu_model *model,
        uint64_t *digest_out, double *loss_out);

/** Input of a step, from (seed, step). floats[input_floats] */
void bench_npu_model_fill(const struct bench_npu_model *model, uint64_t seed,
        uint64_t step, float *floats);

#endif /* RPS_BENCH_NPU_MODEL_H */
