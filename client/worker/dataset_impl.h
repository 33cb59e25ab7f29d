/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the readers share: the row under construction, the table of hashed
 * tokens, and the hooks that dataset.c calls.
 */
#ifndef RPS_WORKER_DATASET_IMPL_H
#define RPS_WORKER_DATASET_IMPL_H

#include "client/worker/dataset.h"
#include "client/worker/tokens.h"

/* The row that rps_dataset_next() shows; arrays are owned. */
struct rps_row_builder {
    float *labels;
    float *dense;
    uint64_t *keys;
    size_t key_count;
    size_t key_capacity;
    uint32_t *offsets;
};

struct rps_dataset_ops {
    /* Fill dataset->row; NOT_FOUND at the end, INVAL for a bad row. */
    rps_status (*next)(struct rps_dataset *dataset, struct rps_error *error);
    rps_status (*rewind)(struct rps_dataset *dataset, struct rps_error *error);
    /* Leave out n rows without looking; NULL: they are read. */
    rps_status (*skip)(
            struct rps_dataset *dataset, uint64_t n, struct rps_error *error);
    /* Set dataset->rows; NULL: it is known since open. */
    rps_status (*count)(struct rps_dataset *dataset, struct rps_error *error);
    rps_status (*key)(const struct rps_dataset *dataset, uint32_t field,
            const char *token, uint64_t *key_out, struct rps_error *error);
    void (*close)(struct rps_dataset *dataset);
};

struct rps_dataset {
    const struct rps_dataset_ops *ops;
    struct rps_dataset_shape shape;
    struct rps_dataset_options options;
    struct rps_row_builder row;
    struct rps_tokens tokens;
    uint64_t rows; /* valid if rows_known */
    bool rows_known;
    uint64_t bad_rows;     /* of this pass over the data */
    uint64_t bad_rows_max; /* of the pass that saw most of them */
    void *reader;          /* the ops' own */
};

rps_status rps_dataset_open_criteo(
        struct rps_dataset *dataset, const char *path, struct rps_error *error);
rps_status rps_dataset_open_ml100k(
        struct rps_dataset *dataset, const char *path, struct rps_error *error);
rps_status rps_dataset_open_libfm(
        struct rps_dataset *dataset, const char *path, struct rps_error *error);
rps_status rps_dataset_open_feasign(
        struct rps_dataset *dataset, const char *path, struct rps_error *error);
rps_status rps_dataset_open_synthetic(struct rps_dataset *dataset,
        const char *settings, struct rps_error *error);

/** Allocate the arrays of dataset->row for dataset->shape. */
rps_status rps_row_builder_init(
        struct rps_dataset *dataset, struct rps_error *error);
void rps_row_builder_finish(struct rps_row_builder *row);

/** Room for `count` keys in all. */
rps_status rps_row_builder_reserve(
        struct rps_row_builder *row, size_t count, struct rps_error *error);

/** One more malformed row was left out of this pass. */
void rps_dataset_note_bad(struct rps_dataset *dataset);

/** The key of formats that take keys as they are: a decimal below 2^64. */
rps_status rps_dataset_plain_key(const struct rps_dataset *dataset,
        uint32_t field, const char *token, uint64_t *key_out,
        struct rps_error *error);

#endif /* RPS_WORKER_DATASET_IMPL_H */
