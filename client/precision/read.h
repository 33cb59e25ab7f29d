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
    bool shape_known; /* false: no manifest, and its file has no good head */
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

struct rps_text;

/** "linear.top_0_linear": as its files' names begin. free(); NULL: no memory.
 */
char *rps_dumped_file_name(const struct rps_dumped_operator *op);

/** "[128, 64]", for people. */
void rps_dumped_add_shape(
        struct rps_text *text, const struct rps_dumped_tensor *tensor);

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
    /* what is wrong with the folder itself, each names a file: a manifest that
     * is damaged (then it is read by names) or missing, files that are no
     * tensor's. Of a tensor's own file rps_dumped_load() tells */
    char **problems;
    uint32_t problem_count;
};

/** The steps under a path, ascending. */
struct rps_dumped_steps {
    char **folders;
    uint64_t *steps; /* as the manifest says; else the folder's number */
    uint32_t count;
};

/**
 * What is there: `path` is a step's folder, or any above it ({model_id} …
 * PATH, debug_0). Of several {time}s the newest; of several devices, models or
 * ids: INVAL names them.
 *
 * Owns: steps_out is the caller's to free, whatever the status.
 *
 * Errors: NOT_FOUND (no dump under it), INVAL, IO, NOMEM.
 */
rps_status rps_dumped_find(const char *path, struct rps_dumped_steps *steps_out,
        struct rps_error *error);
/** The same of one model of several, by its folder's name ({model}). Errors:
 * also NOT_FOUND where there is none. */
rps_status rps_dumped_find_model(const char *path, const char *model,
        struct rps_dumped_steps *steps_out, struct rps_error *error);
void rps_dumped_steps_free(struct rps_dumped_steps *steps);

/** What is damaged in it stands in its problems; so does a folder that is
 * missing beside its manifest. Errors: NOT_FOUND (neither is there), IO, LIMIT
 * (of operators or files), NOMEM. */
rps_status rps_dumped_open(const char *folder, struct rps_dumped **dumped_out,
        struct rps_error *error);
void rps_dumped_close(struct rps_dumped *dumped);

/** A tensor's elements, in C order. Numbers are f64, keys whole. */
struct rps_dumped_values {
    uint64_t count;
    double *numbers; /* [count]; of u64 and i64 rounded */
    uint64_t *keys;  /* [count], of u64 and i64 alone; else NULL */
};

/** Errors: NOT_FOUND, IO (cannot be read), CORRUPT (no .npy, other shape or
 * dtype than the manifest's, cut), NOMEM; they name the file. */
rps_status rps_dumped_load(const struct rps_dumped_tensor *tensor,
        struct rps_dumped_values *values_out, struct rps_error *error);
void rps_dumped_values_free(struct rps_dumped_values *values);

/** The same, a part at a time: a table's rows may be larger than memory. */
struct rps_dumped_stream {
    int fd; /* -1: closed, or a tensor without a file */
    const struct rps_dumped_tensor *tensor; /* borrowed */
    enum rps_dump_dtype dtype;              /* of the file: bf16 is f32 there */
    uint64_t count;                         /* elements */
    uint64_t at;                            /* that are read */
};

/** Errors: as rps_dumped_load(). A stream that failed is closed. */
rps_status rps_dumped_stream_open(struct rps_dumped_stream *stream,
        const struct rps_dumped_tensor *tensor, struct rps_error *error);
/**
 * The next n elements, at <= count - n. keys: of u64 and i64 alone, or NULL.
 *
 * Shapes: numbers[n], keys[n].
 * Errors: as rps_dumped_load().
 */
rps_status rps_dumped_stream_read(struct rps_dumped_stream *stream, uint64_t n,
        double *numbers, uint64_t *keys, struct rps_error *error);
/** A closed one is fine. */
void rps_dumped_stream_close(struct rps_dumped_stream *stream);

/** "f32", "bf16", … as manifests have it. */
const char *rps_dump_dtype_name(enum rps_dump_dtype dtype);
/** false: no such dtype. */
bool rps_dump_dtype_parse(const char *name, enum rps_dump_dtype *dtype_out);

#endif /* RPS_PRECISION_READ_H */
