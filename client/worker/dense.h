/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dense variables as dense tables: row k of a table holds the elements
 * [1024 k, 1024 k + 1024) of its variable, and the variable's own buffers
 * have that form, so nothing is copied on the way.
 */
#ifndef RPS_WORKER_DENSE_H
#define RPS_WORKER_DENSE_H

#include "client/worker/model.h"
#include "client/worker/settings.h"

#include <recps/client.h>

struct rps_dense {
    struct rps_model *model; /* borrowed */
    rps_embedding_table *tables[RPS_MODEL_VARIABLES_MAX];
    /* of a checkpoint that is not this model's start: not assigned */
    bool has_values[RPS_MODEL_VARIABLES_MAX];
    uint64_t *keys; /* 0, 1, … up to the longest variable's rows */
};

rps_status rps_dense_init(struct rps_dense *dense, struct rps_model *model,
        const struct rps_settings *settings, struct rps_error *error);
void rps_dense_finish(struct rps_dense *dense);

void rps_dense_spec(rps_table_spec *spec, const struct rps_variable *variable,
        const struct rps_settings *settings);

/** Chief: write the variables' values as they are, with fresh slots; but of
 * those that have values. */
rps_status rps_dense_assign(
        struct rps_dense *dense, rps_client *client, struct rps_error *error);

/** Fill one entry a variable of a fused lookup into the values. */
void rps_dense_lookups(
        const struct rps_dense *dense, rps_lookup *lookups, uint32_t flags);

/** Fill one entry a variable of a fused push of the gradients. */
void rps_dense_pushes(
        const struct rps_dense *dense, rps_push *pushes, float learning_rate);

#endif /* RPS_WORKER_DENSE_H */
