/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a dump: every operator of chosen steps, with its inputs as they were
 * before it ran and its outputs after it.
 *
 *   PATH/dump/{YYYYMMDDHHMMSS}/{device}/{model}/{model_id}/{data_index}/
 *     {type}.{name}.{task}.{stream}.{timestamp}.{input|output}.{i}.npy
 *   PATH/dump/{YYYYMMDDHHMMSS}/{device}/{model}/{model_id}/{data_index}.json
 *
 * Names are cleaned: dots, slashes, backslashes and spaces become underscores,
 * so that the fifth field, microseconds, orders a folder's files; no two have
 * the same. The .json, the step's manifest, is written last and says what the
 * names cannot (read.h). A folder without it is of a step that did not end.
 * bf16 is written as f32, which holds it exactly; the manifest says bf16.
 *
 * Threads: begin, step and end by one; before and after by any, at any time.
 */
#ifndef RPS_PRECISION_DUMP_H
#define RPS_PRECISION_DUMP_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define RPS_DUMP_DIMS_MAX    4u
#define RPS_DUMP_TENSORS_MAX 16u
#define RPS_DUMP_STEPS_MAX   64u /* ranges of a list */

/** From and to are both in it; counted from 0, the first step of the job. */
struct rps_dump_range {
    uint64_t first;
    uint64_t last; /* UINT64_MAX: without end */
};

struct rps_dump_steps {
    uint32_t count;
    struct rps_dump_range ranges[RPS_DUMP_STEPS_MAX]; /* ascending, apart */
};

/** "0|5|10", "0-3|7", "all". Errors: INVAL says which word is wrong. */
rps_status rps_dump_steps_parse(struct rps_dump_steps *steps, const char *text,
        struct rps_error *error);
bool rps_dump_steps_has(const struct rps_dump_steps *steps, uint64_t step);
/** Of steps below `end`. */
uint64_t rps_dump_steps_count(const struct rps_dump_steps *steps, uint64_t end);

struct rps_dump_options {
    const char *path;
    /* PATH/dump is there: true moves PATH to the next name (debug_0 to debug_1,
     * where it ends in a number; else PATH.1), and what lies there to the one
     * behind it; false refuses */
    bool rotate;
    struct rps_dump_steps steps;
    /* data_index is the step; else 0, 1, 2, … */
    bool index_is_step;
    uint32_t device;
    const char *model;
    uint32_t model_id;
    uint64_t bytes_max; /* of all files; what would go beyond ends the dump */
    /* a JSON object that every manifest has as "run": device, fusion,
     * deterministic, precision_mode, implmode, seed, loop_size, rank,
     * ps_count, batch_size, options (what is not its default), environment
     * (of these, the variables), command, version */
    const char *run;
};

struct rps_dump_result {
    char folder[512]; /* PATH/dump/{time} */
    uint64_t steps;   /* whole ones */
    uint64_t files;   /* .npy */
    uint64_t bytes;   /* of all files; 0: nothing was written, and no folder is
                       * left of it */
    bool moved_back;  /* that, and what lay in PATH before lies there again */
};

enum rps_dump_dtype {
    RPS_DUMP_F32 = 0,
    RPS_DUMP_BF16,
    RPS_DUMP_F64,
    RPS_DUMP_I32,
    RPS_DUMP_U32,
    RPS_DUMP_I64,
    RPS_DUMP_U64
};

struct rps_dump_tensor {
    const char *label; /* "keys", "rows", "weight"; NULL: none */
    enum rps_dump_dtype dtype;
    uint32_t ndim;
    uint64_t shape[RPS_DUMP_DIMS_MAX];
    uint64_t strides[RPS_DUMP_DIMS_MAX]; /* elements */
    const void *bytes;                   /* borrowed for the call */
    /* Where it lies, so that who wrote it can be found: bytes with the same
     * place are the same memory. Host: the pointer. 0: not said */
    uint64_t place;
    /* where `place` is of other memory than `bytes`: its strides, which the
     * manifest has; NULL: those above */
    const uint64_t *place_strides;
};

struct rps_dump_operator {
    const char *type;
    const char *name;
    const char *holds;      /* NULL: it is no fused one */
    const char *attributes; /* JSON object */
    uint32_t stream;
    const struct rps_dump_tensor *inputs;
    uint32_t input_count;
    const struct rps_dump_tensor *outputs;
    uint32_t output_count;
};

struct rps_dump;
struct rps_dump_token;

/**
 * Make the folder. Nothing is written before the first step.
 *
 * Owns:    copies *options; *dump_out is released by rps_dump_end().
 * Errors:  INVAL (a dump is there and may not be moved: says --rotate), IO,
 *          NOMEM, LIMIT (a thousand were moved aside already).
 */
rps_status rps_dump_begin(struct rps_dump **dump_out,
        const struct rps_dump_options *options, struct rps_error *error);

/** What is expected to be written, before it begins: checked against bytes_max
 * and what the file system has free. Errors: LIMIT says both numbers. */
rps_status rps_dump_expect(
        struct rps_dump *dump, uint64_t bytes, struct rps_error *error);

/* What a dump has beside its tensors' elements, at most: an operator's headers
 * of files and its entry in the manifest, and a step's frame of it. */
#define RPS_DUMP_OPERATOR_BYTES UINT64_C(8192)
#define RPS_DUMP_STEP_BYTES     UINT64_C(4096)

/** What steps of so many operators, whose tensors have `bytes` (bf16 as f32),
 * take at most: for rps_dump_expect(). UINT64_MAX: more than can be said. */
uint64_t rps_dump_bytes(uint64_t steps, uint64_t operations, uint64_t bytes);

/** Step `step`, from 0, begins; the one before ends, and its manifest is
 * written, or where it cannot be its folder goes. What could not be written is
 * told by rps_dump_failed() and rps_dump_end(). */
void rps_dump_step(struct rps_dump *dump, uint64_t step);
/** No step runs until the next one. */
void rps_dump_step_end(struct rps_dump *dump);

/** Is the step that runs one that is dumped? One relaxed load; NULL: no. */
bool rps_dump_is_on(const struct rps_dump *dump);

/** Write the inputs. NULL: nobody asks, or it failed. */
struct rps_dump_token *rps_dump_before(
        struct rps_dump *dump, const struct rps_dump_operator *op);
/** Write the outputs. A NULL token is allowed. */
void rps_dump_after(struct rps_dump *dump, struct rps_dump_token *token,
        const struct rps_dump_operator *op);

/** The first failure of writing, which ended the dump, or OK. Any thread. */
rps_status rps_dump_failed(struct rps_dump *dump, struct rps_error *error);

/** End the step, and release; no operator is between before and after any more.
 * NULL is allowed. Errors: the first failure of
 * writing: IO, LIMIT (bytes_max), NOMEM. */
rps_status rps_dump_end(struct rps_dump *dump, struct rps_dump_result *result,
        struct rps_error *error);

#endif /* RPS_PRECISION_DUMP_H */
