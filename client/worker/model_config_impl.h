/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that read a model's description share. */
#ifndef RPS_WORKER_MODEL_CONFIG_IMPL_H
#define RPS_WORKER_MODEL_CONFIG_IMPL_H

#include "client/worker/model_config.h"

#include <jansson.h>

#define RPS_CONFIG_WHERE_BYTES (RPS_NAME_BYTES_MAX + 64u)

/** Where in a file: "tables[1] (item_table)". */
struct rps_config_place {
    const struct rps_model_config *config;
    char where[RPS_CONFIG_WHERE_BYTES];
};

/** Numbers of a file, which grow. */
struct rps_config_list {
    uint32_t *items;
    uint32_t count;
    uint32_t capacity;
};

/** An object all of whose fields have one of these names; INVAL names the
 * one that has not, and the one that was meant. */
rps_status rps_config_check_names(const struct rps_config_place *place,
        json_t *object, const char *const *names, size_t count,
        struct rps_error *error);

/** Optimizer and numbers of all dense variables. */
rps_status rps_config_read_dense(struct rps_model_config *config,
        const json_t *value, struct rps_error *error);

/** Append table `index` of the file. */
rps_status rps_config_read_table(struct rps_model_config *config, size_t index,
        const json_t *value, struct rps_error *error);

/** Fields, "A-B" for a range, appended. */
rps_status rps_config_read_fields(const struct rps_config_place *place,
        const json_t *value, struct rps_config_list *list,
        struct rps_error *error);

/** true and false, where a spec has 1 and 0. */
void rps_config_plain_switches(json_t *object);

/** Take variance scaling out of a copy, for the reader of specs. */
void rps_config_drop_scaling(json_t *object);

/** Set *spec's initializer where it is variance_scaling; where it is not, the
 * fields of that are refused. dim and device_vocabulary_size are read. */
rps_status rps_config_read_scaling(const struct rps_config_place *place,
        const json_t *value, rps_table_spec *spec, struct rps_error *error);

#endif /* RPS_WORKER_MODEL_CONFIG_IMPL_H */
