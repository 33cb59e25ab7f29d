/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/dense.h"

#include <stdlib.h>
#include <string.h>

rps_status
rps_dense_init(struct rps_dense *dense, struct rps_model *model,
        const struct rps_settings *settings, struct rps_error *error)
{
    uint64_t rows_max = 1;

    memset(dense, 0, sizeof(*dense));
    dense->model = model;
    for (uint32_t v = 0; v < model->variable_count; v++) {
        if (model->variables[v].rows > rows_max) {
            rows_max = model->variables[v].rows;
        }
    }
    dense->keys = calloc((size_t)rows_max, sizeof(*dense->keys));
    if (dense->keys == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the model");
    }
    for (uint64_t k = 0; k < rows_max; k++) {
        dense->keys[k] = k;
    }
    return RPS_OK;
}

void
rps_dense_finish(struct rps_dense *dense)
{
    free(dense->keys);
    memset(dense, 0, sizeof(*dense));
}

void
rps_dense_spec(rps_table_spec *spec, const struct rps_variable *variable,
        const struct rps_settings *settings)
{
    rps_table_spec named;

    rps_table_spec_init(&named, variable->name, RPS_DENSE_ROW_FLOATS,
            settings->model.dense.optimizer);
    *spec = settings->model.dense;
    memcpy(spec->name, named.name, sizeof(spec->name));
    spec->dim = RPS_DENSE_ROW_FLOATS;
    spec->dense_elements = variable->elements;
    spec->seed = settings->options->seed;
    spec->initializer = RPS_INITIALIZER_ZEROS;
    spec->initializer_low = 0.0f;
    spec->initializer_high = 0.0f;
}

rps_status
rps_dense_assign(
        struct rps_dense *dense, rps_client *client, struct rps_error *error)
{
    for (uint32_t v = 0; v < dense->model->variable_count; v++) {
        const struct rps_variable *variable = &dense->model->variables[v];
        rps_assign assign = {
                .table = dense->tables[v],
                .keys = dense->keys,
                .key_count = (size_t)variable->rows,
                .rows = variable->values,
        };
        rps_status status = dense->has_values[v]
                                    ? RPS_OK
                                    : rps_assign_rows(client, &assign);

        if (status != RPS_OK) {
            return rps_fail(error, status, "start values of %s: %s",
                    variable->name, rps_client_error(client));
        }
    }
    return RPS_OK;
}

void
rps_dense_lookups(
        const struct rps_dense *dense, rps_lookup *lookups, uint32_t flags)
{
    for (uint32_t v = 0; v < dense->model->variable_count; v++) {
        const struct rps_variable *variable = &dense->model->variables[v];

        lookups[v] = (rps_lookup){
                .table = dense->tables[v],
                .keys = dense->keys,
                .key_count = (size_t)variable->rows,
                .flags = flags,
                .rows = variable->values,
        };
    }
}

void
rps_dense_pushes(
        const struct rps_dense *dense, rps_push *pushes, float learning_rate)
{
    for (uint32_t v = 0; v < dense->model->variable_count; v++) {
        const struct rps_variable *variable = &dense->model->variables[v];

        pushes[v] = (rps_push){
                .table = dense->tables[v],
                .keys = dense->keys,
                .key_count = (size_t)variable->rows,
                .gradients = variable->gradients,
                .learning_rate = learning_rate,
        };
    }
}
