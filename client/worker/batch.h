/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of one replica: sample i of a global batch goes to rank i mod R.
 */
#ifndef RPS_WORKER_BATCH_H
#define RPS_WORKER_BATCH_H

#include "client/worker/dataset.h"

struct rps_batch {
    size_t rows; /* real rows; the rest up to capacity is padding */
    size_t capacity;
    struct rps_dataset_shape shape;
    float *labels;     /* [capacity][labels] */
    float *dense;      /* [capacity][dense]; padding: zeros */
    uint64_t *keys;    /* bag (row r, field f): keys[offsets[r fields + f]..] */
    uint32_t *offsets; /* [capacity * fields + 1]; padding: empty bags */
    size_t key_count;
    size_t key_capacity;
    uint64_t *other_keys; /* [other_count]: of the other ranks' rows */
    size_t other_count;   /* 0 unless they are asked for */
    size_t other_capacity;
};

struct rps_batcher_options {
    uint64_t first_row;
    uint64_t end_row;  /* 0: the end of the data */
    size_t batch_rows; /* of this replica */
    uint32_t rank;
    uint32_t replicas;
    uint64_t shuffle; /* rows of the buffer; 0: file order */
    uint64_t seed;
    bool pad_last;   /* evaluation: the last batch is padded, not dropped */
    bool other_keys; /* keep the keys of the other ranks' rows */
};

struct rps_batcher;

/** The dataset is borrowed; one batcher at a time walks through it: start()
 * rewinds it. */
rps_status rps_batcher_create(struct rps_batcher **batcher_out,
        struct rps_dataset *dataset, const struct rps_batcher_options *options,
        struct rps_error *error);
void rps_batcher_destroy(struct rps_batcher *batcher);

/** Begin an epoch (0, 1, …: part of the shuffle's seed), after `skip`
 * global batches of it. */
rps_status rps_batcher_start(struct rps_batcher *batcher, uint64_t epoch,
        uint64_t skip, struct rps_error *error);

/** Rows of [first_row, end_row) read so far in this epoch; after NOT_FOUND
 * all of them, those of a dropped last batch included. */
uint64_t rps_batcher_epoch_rows(const struct rps_batcher *batcher);

/** Next batch of this rank; NOT_FOUND at the epoch's end. The batch's arrays
 * belong to the caller's struct and are reused. */
rps_status rps_batcher_next(struct rps_batcher *batcher,
        struct rps_batch *batch, struct rps_error *error);

void rps_batch_finish(struct rps_batch *batch);

#endif /* RPS_WORKER_BATCH_H */
