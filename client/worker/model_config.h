/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is trained, as options or a file (--model-config) say it: layers,
 * tables, and how each is made and moved. It knows no data yet: layout.h
 * joins it with the fields of one.
 */
#ifndef RPS_WORKER_MODEL_CONFIG_H
#define RPS_WORKER_MODEL_CONFIG_H

#include "client/worker/model.h"

#include <stdbool.h>

/* bytes of a file; fields that one names, ranges written out */
#define RPS_MODEL_CONFIG_BYTES_MAX  ((size_t)16 << 20)
#define RPS_MODEL_CONFIG_FIELDS_MAX (1u << 20)

struct rps_table_config {
    rps_table_spec spec;  /* without the seed, which is the run's */
    double learning_rate; /* as it was written: schedules work in double */
    enum rps_pooling pooling;
    /* Bag b has fields[bag_ends[b - 1] .. bag_ends[b]); bag_count 0: each
     * field that no table names is a bag. Owned. */
    uint32_t bag_count;
    uint32_t *bag_ends;
    uint32_t *fields;
};

struct rps_model_config {
    const char *file; /* for messages: its path, or the options; borrowed */
    bool is_file;
    enum rps_model_kind kind;
    struct rps_model_layers bottom; /* dlrm */
    struct rps_model_layers top;
    struct rps_model_layers trunk; /* little_demo */
    rps_table_spec dense;          /* optimizer and numbers of all variables */
    double dense_learning_rate;
    uint32_t table_count;
    struct rps_table_config tables[RPS_MODEL_TABLES_MAX];
    uint32_t unused_count; /* fields that go nowhere; owned */
    uint32_t *unused;
};

/**
 * Read --model-config's file, whose path is borrowed.
 *
 * Errors: INVAL (file and field in words, or line and column), NOT_FOUND, IO,
 * NOMEM; the config needs no finish then.
 */
rps_status rps_model_config_read(struct rps_model_config *config,
        const char *path, struct rps_error *error);

/** The tables, layers and optimizers of the guide's example. Errors: NOMEM. */
rps_status rps_model_config_little_demo(
        struct rps_model_config *config, struct rps_error *error);

/** Also of a zeroed one. */
void rps_model_config_finish(struct rps_model_config *config);

#endif /* RPS_WORKER_MODEL_CONFIG_H */
