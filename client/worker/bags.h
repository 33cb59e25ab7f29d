/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch's keys of one sparse table: fetched a row a key, pooled to a row
 * a bag for the model, and its gradients spread back a row a key. Bags are
 * pooled here, in the order of their tokens, and not at the servers: so no
 * bit depends on the number of servers. A bag of n tokens, repeated ones
 * counted each time, is their rows' sum, for mean divided by n, for sqrtn by
 * sqrt(n), and so is what each of its tokens gets of the bag's gradient: the
 * same divisions as librecps has. A bag without tokens is zeros.
 */
#ifndef RPS_WORKER_BAGS_H
#define RPS_WORKER_BAGS_H

#include "client/worker/batch.h"
#include "client/worker/model.h"
#include "client/worker/operator.h"

#include <stdbool.h>

/** What the batch that is computed needs beside its rows: the same memory for
 * every batch of a table, so that those read ahead stay small. */
struct rps_bags_work {
    float *gradients;          /* [key_count][dim], to push */
    float *pooled;             /* [bag_count][dim] */
    float *pooled_gradients;   /* [bag_count][dim] */
    float *late;               /* [late keys][dim], fetched (late.h) */
    size_t gradients_capacity; /* floats */
    size_t pooled_capacity;
    size_t pooled_gradients_capacity;
    size_t late_capacity;
};

struct rps_bags {
    struct rps_model_table table;
    struct rps_bags_work *work; /* borrowed; the loop's, not the reader's */
    bool in_order;              /* its fields stand side by side in the data */
    size_t bag_count;
    size_t key_count;
    bool one_each; /* every bag has one key: rows are the bags */
    bool divides;  /* mean or sqrtn, and a bag has several keys */
    size_t bag_capacity;
    size_t key_capacity;
    uint64_t *keys;           /* [key_count]; the batch's, unchanged */
    uint32_t *offsets;        /* [bag_count + 1] */
    float *rows;              /* [key_count][dim], fetched */
    struct rps_operator pool; /* of a profile; where there is one to do */
    struct rps_operator spread;
};

/** A zeroed one is fine. */
void rps_bags_work_finish(struct rps_bags_work *work);

/** Room for `count` floats, which are not kept. NULL: no memory. */
float *rps_bags_work_reserve(float **floats, size_t *capacity, size_t count);

void rps_bags_init(struct rps_bags *bags, const struct rps_model_table *table,
        struct rps_bags_work *work);
void rps_bags_finish(struct rps_bags *bags);

/** Take the table's keys out of the batch's real rows. */
rps_status rps_bags_take(struct rps_bags *bags, const struct rps_batch *batch,
        struct rps_error *error);

/** Room in the work memory for what follows; pools: for rows that are pooled
 * here and their gradients, too. NOMEM. */
rps_status rps_bags_prepare(
        struct rps_bags *bags, bool pools, struct rps_error *error);

/** Pool the fetched rows. Returns [bag_count][dim]. */
const float *rps_bags_pool(struct rps_bags *bags);

/** Where a model whose rows were pooled here writes its gradients.
 * [bag_count][dim] */
float *rps_bags_gradient(struct rps_bags *bags);

/** From the gradients a bag, which are changed, to those a key. Returns
 * [key_count][dim]: `pooled_gradients` itself where every bag has one key. */
const float *rps_bags_spread(struct rps_bags *bags, float *pooled_gradients);

#endif /* RPS_WORKER_BAGS_H */
