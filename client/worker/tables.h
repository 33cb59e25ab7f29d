/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's tables at the servers: opened, fetched for a batch in one fused
 * request, pushed to in another.
 */
#ifndef RPS_WORKER_TABLES_H
#define RPS_WORKER_TABLES_H

#include "client/worker/bags.h"
#include "client/worker/dense.h"

/** Looks at what is pushed. Zeroed: nobody does. */
struct rps_tables_watcher {
    /* a table's gradients, as the model wrote them; NULL: nobody */
    void (*before)(void *context, uint32_t t, const struct rps_bags *bags,
            const float *pooled_gradients);
    /* and as they are pushed, [key_count][dim] */
    void (*after)(void *context, uint32_t t, const struct rps_bags *bags,
            const float *pooled_gradients, const float *gradients);
    void *context;
};

struct rps_tables {
    rps_client *client; /* borrowed */
    struct rps_model *model;
    const struct rps_settings *settings;
    struct rps_dense dense;
    struct rps_bags bags[RPS_MODEL_TABLES_MAX]; /* of evaluations */
    struct rps_bags_work work[RPS_MODEL_TABLES_MAX];
    rps_embedding_table *sparse[RPS_MODEL_TABLES_MAX];
    struct rps_tables_watcher watcher;
};

rps_status rps_tables_init(struct rps_tables *tables, rps_client *client,
        struct rps_model *model, const struct rps_settings *settings,
        struct rps_error *error);
void rps_tables_finish(struct rps_tables *tables);

/**
 * What RESTORE brought is what this model has: no table more, none less.
 *
 * Errors: MISMATCH names the table.
 */
rps_status rps_tables_check_restored(
        struct rps_tables *tables, struct rps_error *error);

/** Of sparse table t, as the settings say. */
void rps_tables_spec(
        const struct rps_tables *tables, uint32_t t, rps_table_spec *spec);

/** Open or create every table as the settings say. */
rps_status rps_tables_open(struct rps_tables *tables, struct rps_error *error);

/**
 * Open what a checkpoint restored, as it says: learning rates, seed and
 * initializer are the checkpoint's, the shapes must be the model's.
 */
rps_status rps_tables_open_restored(
        struct rps_tables *tables, struct rps_error *error);

/** Dense variables alone, for reading. */
rps_status rps_tables_fetch_dense(
        struct rps_tables *tables, struct rps_error *error);

/** A batch's rows for an evaluation; absent keys are zeros. `input` gets
 * everything but loss_scale. */
rps_status rps_tables_fetch(struct rps_tables *tables,
        const struct rps_batch *batch, struct rps_model_input *input,
        struct rps_error *error);

/** A batch whose rows are in its bags, pooled, as the model takes it; all
 * but loss_scale. NOMEM. */
rps_status rps_tables_input(const struct rps_tables *tables,
        const struct rps_batch *batch, struct rps_bags *bags, bool training,
        struct rps_model_input *input, struct rps_error *error);

/** What is pushed: the gradients that a model wrote for a batch. */
struct rps_tables_push {
    uint64_t step;
    struct rps_bags *bags; /* [tables], prepared */
    /* [bag_count][dim] of each table; changed */
    float *const *pooled_gradients;
    const struct rps_rates *rates; /* NULL: push nothing, which every step of
                                    * a replica needs at least */
};

/** Begin a push. */
rps_status rps_tables_push(struct rps_tables *tables,
        const struct rps_tables_push *push, rps_ticket *ticket_out,
        struct rps_error *error);

/** Every server has it. */
rps_status rps_tables_push_wait(struct rps_tables *tables, uint64_t step,
        rps_ticket ticket, struct rps_error *error);

#endif /* RPS_WORKER_TABLES_H */
