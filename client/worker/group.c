/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the group and its copies of the dense variables: engine tables of the
 * same specs as the servers', so that slots, counts and refusals are theirs.
 */
#include "client/worker/group.h"

#include "base/spec.h"
#include "base/text.h"
#include "client/worker/group_impl.h"
#include "client/worker/ring_order.h"
#include "embedding/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIM RPS_GROUP_DIM

rps_status
rps_group_failed(const struct rps_group *group, rps_status status,
        const char *what, struct rps_error *error)
{
    return status == RPS_OK
                   ? RPS_OK
                   : rps_fail(error, status, "--dense allreduce: %s: %s", what,
                             rps_collective_error(group->collective));
}

void
rps_group_number_keys(struct rps_group *group, uint64_t rows)
{
    for (uint64_t k = 0; k < rows; k++) {
        group->keys[k] = k;
    }
}

/* --- joining ------------------------------------------------------------- */

static rps_status
fail_count(const struct rps_settings *settings, uint32_t size,
        struct rps_error *error)
{
    if (size == 1) {
        return rps_fail(error, RPS_E_INVAL,
                "--dense allreduce: the cluster has %u replicas, and this "
                "process is alone: start them under mpirun, which `recps "
                "launch --mpi` does (docs/TRAINING.md)",
                settings->replicas);
    }
    return rps_fail(error, RPS_E_INVAL,
            "--dense allreduce: the cluster has %u replicas, mpirun started "
            "%u ranks: they must be as many",
            settings->replicas, size);
}

/* What starts ranks tells each so: mpirun, or another through PMIx or PMI. */
rps_status
rps_group_check(const struct rps_settings *settings, struct rps_error *error)
{
    static const char *const others[] = {
            "PMIX_RANK", "PMI_RANK", "PMI_FD", "OMPI_MCA_orte_ess_jobid"};
    const char *text = getenv("OMPI_COMM_WORLD_SIZE");
    uint64_t size = text == NULL ? 1 : 0;

    for (size_t i = 0; text == NULL && i < sizeof(others) / sizeof(others[0]);
            i++) {
        if (getenv(others[i]) != NULL) {
            return RPS_OK; /* how many, MPI will say */
        }
    }
    if (text != NULL && (!rps_parse_u64(text, &size) || size > UINT32_MAX)) {
        return RPS_OK;
    }
    return size == settings->replicas
                   ? RPS_OK
                   : fail_count(settings, (uint32_t)size, error);
}

static rps_status
check_place(const struct rps_group *group, struct rps_error *error)
{
    const struct rps_settings *settings = group->settings;
    const uint32_t size = rps_collective_size(group->collective);
    const uint32_t rank = rps_collective_rank(group->collective);

    if (size != settings->replicas) {
        return fail_count(settings, size, error);
    }
    if (rank != settings->rank) {
        return rps_fail(error, RPS_E_INVAL,
                "--dense allreduce: the cluster says that this process is "
                "replica %u, MPI that it is rank %u: give rank 0 the chief's "
                "task (worker 0 where there is no chief) and the others those "
                "of the workers in their order",
                settings->rank, rank);
    }
    return RPS_OK;
}

static rps_status
initialize(struct rps_group *group, struct rps_error *error)
{
    const struct rps_options *given = group->settings->options;
    rps_collective_options options;
    uint32_t *order = NULL;
    rps_status status = RPS_OK;

    rps_collective_options_init(&options);
    options.algorithm = strcmp(given->allreduce, "ring") == 0
                                ? RPS_ALLREDUCE_RING
                                : RPS_ALLREDUCE_DEFAULT;
    options.bucket_bytes = given->allreduce_bucket;
    if (given->ring_order[0] != '\0') {
        status = rps_ring_order_read(
                given->ring_order, group->settings->replicas, &order, error);
        options.order = order;
        options.order_count = group->settings->replicas;
    }
    if (status == RPS_OK) {
        status = rps_group_failed(group,
                rps_collective_initialize(&group->collective, &options),
                "joining the group", error);
    }
    free(order);
    return status;
}

rps_status
rps_group_open(struct rps_group **group_out,
        const struct rps_settings *settings, struct rps_error *error)
{
    struct rps_group *group = calloc(1, sizeof(*group));
    rps_status status;

    *group_out = NULL;
    if (group == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the group");
    }
    group->settings = settings;
    status = initialize(group, error);
    if (status != RPS_OK) {
        free(group);
        return status;
    }
    *group_out = group;
    return check_place(group, error);
}

rps_status
rps_group_end(struct rps_group *group, int code, struct rps_error *error)
{
    rps_status status = RPS_OK;

    if (group == NULL) {
        return RPS_OK;
    }
    if (code != 0) {
        rps_collective_abort(group->collective, code);
    }
    status = rps_group_failed(group, rps_collective_shutdown(group->collective),
            "leaving the group", error);
    for (uint32_t v = 0; v < group->variable_count; v++) {
        rps_table_destroy(group->variables[v].table);
        free(group->variables[v].live);
    }
    free(group->keys);
    free(group->counts);
    free(group->rows);
    free(group->slots);
    free(group->meta);
    free(group);
    return status;
}

/* --- beginning ----------------------------------------------------------- */

static rps_status
make_variable(struct rps_group *group, const struct rps_variable *model,
        struct rps_error *error)
{
    struct rps_group_variable *variable =
            &group->variables[group->variable_count];
    rps_table_spec spec;
    rps_status status;

    rps_dense_spec(&spec, model, group->settings);
    variable->model = model;
    variable->slot_floats = rps_spec_slot_floats(&spec);
    status = rps_table_create(
            &variable->table, &spec, group->settings->options->job_seed, error);
    if (status != RPS_OK) {
        return status;
    }
    group->variable_count++;
    variable->live = calloc((size_t)model->rows, sizeof(*variable->live));
    return variable->live != NULL
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOMEM, "no memory for variable %s",
                             model->name);
}

static rps_status
make_scratch(struct rps_group *group, struct rps_error *error)
{
    const size_t rows = (size_t)group->rows_max;
    /* one optimizer for all of them */
    const size_t slots =
            group->variable_count > 0 ? group->variables[0].slot_floats : 0;

    group->keys = calloc(rows, sizeof(*group->keys));
    group->counts = calloc(rows, sizeof(*group->counts));
    group->rows = calloc(rows * DIM, sizeof(*group->rows));
    group->meta = calloc(rows, sizeof(*group->meta));
    group->slots =
            slots > 0 ? calloc(rows * slots, sizeof(*group->slots)) : NULL;
    return group->keys != NULL && group->counts != NULL &&
                           group->rows != NULL && group->meta != NULL &&
                           (slots == 0 || group->slots != NULL)
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOMEM,
                             "no memory for the dense variables");
}

static rps_status
make_variables(struct rps_group *group, const struct rps_model *model,
        struct rps_error *error)
{
    rps_status status = RPS_OK;

    group->rows_max = 1;
    for (uint32_t v = 0; v < model->variable_count && status == RPS_OK; v++) {
        if (model->variables[v].rows > group->rows_max) {
            group->rows_max = model->variables[v].rows;
        }
        status = make_variable(group, &model->variables[v], error);
    }
    return status == RPS_OK ? make_scratch(group, error) : status;
}

static rps_status
broadcast(struct rps_group *group, void *data, size_t bytes,
        struct rps_error *error)
{
    return rps_group_failed(group,
            rps_collective_broadcast(group->collective, data, bytes, 0),
            "broadcast of the dense variables", error);
}

/* What lies in the scratch of rank 0 is every rank's from here on. */
static rps_status
spread(struct rps_group *group, const struct rps_group_variable *variable,
        bool restored, struct rps_error *error)
{
    const size_t rows = (size_t)variable->model->rows;
    const size_t slot_floats = variable->slot_floats;
    const bool slots = restored && slot_floats > 0;
    rps_status status =
            broadcast(group, group->rows, rows * DIM * sizeof(float), error);

    if (status == RPS_OK && slots) {
        status = broadcast(
                group, group->slots, rows * slot_floats * sizeof(float), error);
    }
    if (status == RPS_OK && restored) {
        status = broadcast(
                group, group->meta, rows * sizeof(*group->meta), error);
    }
    if (status != RPS_OK) {
        return status;
    }
    memcpy(variable->model->values, group->rows, rows * DIM * sizeof(float));
    rps_group_number_keys(group, rows);
    return rps_table_assign(variable->table, rows, group->keys, group->rows,
            slots ? group->slots : NULL, restored ? group->meta : NULL, error);
}

rps_status
rps_group_begin(struct rps_group *group, struct rps_tables *tables,
        bool restored, enum rps_combine combine, struct rps_error *error)
{
    const bool root = rps_collective_rank(group->collective) == 0;
    rps_status status = RPS_OK;

    group->combine = combine;
    if (!root) { /* rank 0's come over them, as in every such program */
        rps_model_start_values(tables->model, group->settings->dense_seed);
    }
    status = make_variables(group, tables->model, error);
    for (uint32_t v = 0; v < group->variable_count && status == RPS_OK; v++) {
        const struct rps_group_variable *variable = &group->variables[v];

        if (root && restored) {
            status = rps_group_fetch(group, tables, v, error);
        } else if (root) {
            memcpy(group->rows, variable->model->values,
                    (size_t)variable->model->rows * DIM * sizeof(float));
        }
        if (status == RPS_OK) {
            status = spread(group, variable, restored, error);
        }
    }
    return status;
}

/* --- the same everywhere ------------------------------------------------- */

rps_status
rps_group_compare(struct rps_group *group, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (uint32_t v = 0; v < group->variable_count && status == RPS_OK; v++) {
        const struct rps_group_variable *variable = &group->variables[v];
        const struct rps_digest own = rps_table_digest(variable->table);
        struct rps_digest root = own;

        status = broadcast(group, &root, sizeof(root), error);
        if (status == RPS_OK && memcmp(&root, &own, sizeof(own)) != 0) {
            status = rps_fail(error, RPS_E_MISMATCH,
                    "--dense allreduce: variable %s of rank %u is not that of "
                    "rank 0: give all ranks the same options, and the same "
                    "processors and MPI",
                    variable->model->name,
                    rps_collective_rank(group->collective));
        }
    }
    return status;
}

char *
rps_group_describe(const struct rps_group *group, char out[128])
{
    uint64_t bytes = 0;
    char size[32];

    for (uint32_t v = 0; v < group->variable_count; v++) {
        bytes += group->variables[v].model->elements * sizeof(float);
    }
    (void)snprintf(out, 128, "%u ranks, %s allreduce, %u dense variables of %s",
            rps_collective_size(group->collective),
            group->settings->options->allreduce, group->variable_count,
            rps_format_bytes(bytes, size));
    return out;
}
