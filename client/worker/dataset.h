/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of training data, in a fixed order, from files or made up. A (field,
 * token) pair is one 64-bit key (docs/DATA.md has the rule); a field of a
 * row holds zero, one or several tokens.
 */
#ifndef RPS_WORKER_DATASET_H
#define RPS_WORKER_DATASET_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rps_dataset;

struct rps_dataset_shape {
    uint32_t labels; /* a row: 1, or 2 (little_demo's planted data) */
    uint32_t dense;
    uint32_t fields;
};

/** Valid until the next call on the dataset. */
struct rps_row {
    const float *labels;     /* [labels], 0 or 1 */
    const float *dense;      /* [dense] */
    const uint64_t *keys;    /* field f's: keys[offsets[f] .. offsets[f+1]) */
    const uint32_t *offsets; /* [fields + 1] */
};

struct rps_dataset_options {
    bool skip_bad_rows;
    bool little_demo; /* synthetic: data of the two-table example */
    /* libfm, feasign: spec of the run's other input, or NULL. The fields are
     * those of both, so that training and evaluation data agree. Borrowed
     * for the call of open. */
    const char *also;
};

/**
 * Open "criteo:PATH", "ml-100k:DIR", "libfm:PATH", "feasign:PATH" or
 * "synthetic:rows=N,…". PATH: a file, a folder or a glob; several files are
 * read in sorted name order.
 *
 * Errors: INVAL (the spec, or a row: file, line and column named),
 * NOT_FOUND (no such file), IO.
 */
rps_status rps_dataset_open(struct rps_dataset **dataset_out, const char *spec,
        const struct rps_dataset_options *options, struct rps_error *error);
void rps_dataset_close(struct rps_dataset *dataset);

struct rps_dataset_shape rps_dataset_shape_of(const struct rps_dataset *ds);

/** NOT_FOUND at the end; INVAL names file, line and column; MISMATCH: two
 * (field, token) pairs have one key (never skipped). */
rps_status rps_dataset_next(struct rps_dataset *dataset, struct rps_row *row,
        struct rps_error *error);

/** Leave out the next n rows, or all that are left. Made-up data jumps. */
rps_status rps_dataset_skip(
        struct rps_dataset *dataset, uint64_t n, struct rps_error *error);

/** Back to row 0. */
rps_status rps_dataset_rewind(
        struct rps_dataset *dataset, struct rps_error *error);

/** Rows in all; reads the input once if that is not known yet. */
rps_status rps_dataset_rows(struct rps_dataset *dataset, uint64_t *rows_out,
        struct rps_error *error);

/** Rows that were malformed and left out so far (skip_bad_rows). */
uint64_t rps_dataset_skipped(const struct rps_dataset *dataset);

/** Key of a keys.tsv line: field and token as dlrm_torch-like tools write
 * them; the dataset's kind says how a token is read ("-1" of criteo is the
 * missing value). */
rps_status rps_dataset_key(const struct rps_dataset *dataset, uint32_t field,
        const char *token, uint64_t *key_out, struct rps_error *error);

#endif /* RPS_WORKER_DATASET_H */
