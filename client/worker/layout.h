/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which fields of the data go into which bag of which table: what a model's
 * description says, once the number of fields is known.
 */
#ifndef RPS_WORKER_LAYOUT_H
#define RPS_WORKER_LAYOUT_H

#include "client/worker/model_config.h"

struct rps_layout {
    uint32_t table_count;
    struct rps_model_table tables[RPS_MODEL_TABLES_MAX]; /* names: config's */
    uint32_t *numbers; /* what their fields and bag_starts point into */
};

/**
 * Every field goes to one bag, or is named as unused. The config is borrowed
 * for the layout's life.
 *
 * Errors: INVAL names the config's file, the table and the field.
 */
rps_status rps_layout_init(struct rps_layout *layout,
        const struct rps_model_config *config, uint32_t fields,
        struct rps_error *error);
void rps_layout_finish(struct rps_layout *layout);

#endif /* RPS_WORKER_LAYOUT_H */
