/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a dump: a step's operators in order of execution, their tensors as
 * files that are loaded when they are looked at.
 *
 * A manifest:
 *   {"recps_dump": 1, "step": 6, "complete": true, "run": {…},
 *    "operators": [{"type": "linear", "name": "top.2/linear",
 *      "holds": "linear + bias + relu", "attributes": {…}, "task": 12,
 *      "stream": 0, "inputs": [{"file": "linear.top_2_linear.12.0.1….npy",
 *        "label": "x", "dtype": "f32", "shape": [128, 64],
 *        "place": "0x…", "strides": [64, 1]}, …], "outputs": […]}, …]}
 *
 * A folder of .npy files alone (another framework's, or find's) is read by
 * their names: then names are the cleaned ones, and places are unknown.
 *
 * Bytes from the disk are hostile: each file is checked when it is loaded.
 */
#ifndef RPS_PRECISION_READ_H
#define RPS_PRECISION_READ_H

#include "client/precision/dump.h"

#include <jansson.h>

struct rps_dumped_tensor {
    char *file;  /* path; NULL: it was not written (no elements) */
    char *label; /* NULL: none */
    enum rps_dump_dtype dtype;
    uint32_t ndim;
    uint64_t shape[RPS_DUMP_DIMS_MAX];
    uint64_t strides[RPS_DUMP_DIMS_MAX]; /* where it lay; of `place` */
    uint64_t place;                      /* 0: not known */
    uint64_t timestamp;                  /* microseconds; the file's name */
    uint32_t index;                      /* of its name */
};

struct rps_dumped_operator {
    char *type;
    char *name;         /* as the manifest has it; else the cleaned one */
    char *clean;        /* as file names have it */
    char *holds;        /* NULL: none */
    json_t *attributes; /* object; NULL: not known */
    uint64_t task;
    uint64_t stream;
    uint64_t timestamp;  /* of its first file */
    uint32_t occurrence; /* of this type and name in the step, from 0 */
    struct rps_dumped_tensor *inputs;
    uint32_t input_count;
    struct rps_dumped_tensor *outputs;
    uint32_t output_count;
};

/** Of one step. */
struct rps_dumped {
    char *folder; /* of its .npy files */
    uint64_t step;
    bool has_manifest;
    bool complete; /* by its manifest; true without one */
    json_t *run;   /* object; NULL: not known */
    char *model;   /* {model} of the path; NULL */
    struct rps_dumped_operator *operators; /* in order of execution */
    uint32_t operator_count;
    uint32_t missing; /* files that the manifest names and that are not there */
};

/** The steps under a path, ascending. */
struct rps_dumped_steps {
    char **folders;
    uint64_t *steps;
    uint32_t count;
};

/**
 * What is there: `path` is a step's folder, or any above it ({model_id} …
 * PATH, debug_0). Of several {time}s the newest; of several devices, models or
 * ids: INVAL names them.
 *
 * Errors: NOT_FOUND (no dump under it), INVAL, IO, NOMEM.
 */
rps_status rps_dumped_find(const char *path, struct rps_dumped_steps *steps_out,
        struct rps_error *error);
void rps_dumped_steps_free(struct rps_dumped_steps *steps);

/** Errors: IO, CORRUPT (manifest or a name), NOMEM. */
rps_status rps_dumped_open(const char *folder, struct rps_dumped **dumped_out,
        struct rps_error *error);
void rps_dumped_close(struct rps_dumped *dumped);

/** A tensor's elements, in C order. Numbers are f64, keys whole. */
struct rps_dumped_values {
    uint64_t count;
    double *numbers; /* [count]; of u64 and i64 rounded */
    uint64_t *keys;  /* [count], of u64 and i64 alone; else NULL */
};

/** Errors: IO (not there, cannot be read), CORRUPT (no .npy, other shape or
 * dtype than the manifest's, cut), NOMEM; they name the file. */
rps_status rps_dumped_load(const struct rps_dumped_tensor *tensor,
        struct rps_dumped_values *values_out, struct rps_error *error);
void rps_dumped_values_free(struct rps_dumped_values *values);

#endif /* RPS_PRECISION_READ_H */
