/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the group and its copies of the dense variables: engine tables of the
 * same specs as the servers', so that slots, counts and refusals are theirs.
 * A step's bits differ from a server's only in the order in which the ranks'
 * gradients are added, and with two ranks in nothing.
 */
#include "client/worker/group.h"

#include "base/log.h"
#include "base/spec.h"
#include "base/text.h"
#include "client/worker/ring_order.h"
#include "embedding/table.h"

#include <recps/collective.h>

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIM RPS_DENSE_ROW_FLOATS

/* A dense variable here, and what of it goes from rank to rank. */
struct variable {
    const struct rps_variable *model; /* name, values, gradients; borrowed */
    struct rps_table *table;
    uint32_t slot_floats; /* of a row */
    float *live;          /* [rows]: 1 where a rank adds; then how many did */
};

struct rps_group {
    const struct rps_settings *settings; /* borrowed */
    rps_collective *collective;
    enum rps_combine combine;
    struct variable variables[RPS_MODEL_VARIABLES_MAX];
    uint32_t variable_count;
    uint64_t rows_max; /* of a variable */
    uint64_t *keys;    /* [rows_max] scratch, as are all that follow */
    uint32_t *counts;  /* [rows_max] */
    float *rows;       /* [rows_max][DIM] */
    float *slots;      /* [rows_max][slot floats]; NULL: there are none */
    uint32_t *meta;    /* [rows_max] */
    bool told;         /* that rows were refused */
};

static rps_status
failed(const struct rps_group *group, rps_status status, const char *what,
        struct rps_error *error)
{
    return status == RPS_OK
                   ? RPS_OK
                   : rps_fail(error, status, "--dense allreduce: %s: %s", what,
                             rps_collective_error(group->collective));
}

/* --- joining ------------------------------------------------------------- */

static rps_status
check_place(const struct rps_group *group, struct rps_error *error)
{
    const struct rps_settings *settings = group->settings;
    const uint32_t size = rps_collective_size(group->collective);
    const uint32_t rank = rps_collective_rank(group->collective);

    if (size != settings->replicas && size == 1) {
        return rps_fail(error, RPS_E_INVAL,
                "--dense allreduce: the cluster has %u replicas, and this "
                "process is alone: start them under mpirun, which `recps "
                "launch --mpi` does (docs/TRAINING.md)",
                settings->replicas);
    }
    if (size != settings->replicas) {
        return rps_fail(error, RPS_E_INVAL,
                "--dense allreduce: the cluster has %u replicas, mpirun "
                "started %u ranks: they must be as many",
                settings->replicas, size);
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
        status = failed(group,
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
    status = failed(group, rps_collective_shutdown(group->collective),
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
    struct variable *variable = &group->variables[group->variable_count];
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

static void
number_keys(struct rps_group *group, uint64_t rows)
{
    for (uint64_t k = 0; k < rows; k++) {
        group->keys[k] = k;
    }
}

#define PAGE_ROWS 64u /* asked for at once */

/* A page's rows to their places. Returns how many are the variable's. */
static uint64_t
place_page(struct rps_group *group, const struct variable *variable,
        const rps_rows *page, size_t count)
{
    const size_t slot_floats = variable->slot_floats;
    uint64_t placed = 0;

    for (size_t i = 0; i < count; i++) {
        const uint64_t key = page->keys[i];

        if (key >= variable->model->rows) {
            continue;
        }
        memcpy(group->rows + key * DIM, page->rows + i * DIM,
                DIM * sizeof(float));
        if (slot_floats > 0) {
            memcpy(group->slots + key * slot_floats,
                    page->slots + i * slot_floats, slot_floats * sizeof(float));
        }
        group->meta[key] = page->meta[i];
        placed++;
    }
    return placed;
}

static rps_status
fetch_pages(struct rps_group *group, struct rps_tables *tables, uint32_t v,
        const rps_rows *page, struct rps_error *error)
{
    const struct variable *variable = &group->variables[v];
    rps_scan scan = {0};
    uint64_t placed = 0;

    while (scan.done == 0) {
        size_t count = 0;
        const rps_status status = rps_read_rows(tables->client,
                tables->dense.tables[v], &scan, PAGE_ROWS, page, &count);

        if (status != RPS_OK) {
            return rps_fail(error, status, "reading variable %s: %s",
                    variable->model->name, rps_client_error(tables->client));
        }
        placed += place_page(group, variable, page, count);
    }
    return placed == variable->model->rows
                   ? RPS_OK
                   : rps_fail(error, RPS_E_CORRUPT,
                             "the servers have %" PRIu64 " of the %" PRIu64
                             " rows of variable %s",
                             placed, variable->model->rows,
                             variable->model->name);
}

/* What the servers restored of a variable, into the scratch. */
static rps_status
fetch_restored(struct rps_group *group, struct rps_tables *tables, uint32_t v,
        struct rps_error *error)
{
    const size_t floats = DIM + group->variables[v].slot_floats;
    float *values = malloc(PAGE_ROWS * floats * sizeof(*values));
    uint64_t keys[PAGE_ROWS];
    uint32_t meta[PAGE_ROWS];
    const rps_rows page = {.keys = keys,
            .rows = values,
            .slots = values != NULL ? values + PAGE_ROWS * DIM : NULL,
            .meta = meta};
    rps_status status;

    if (values == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for a variable's rows");
    }
    status = fetch_pages(group, tables, v, &page, error);
    free(values);
    return status;
}

static rps_status
broadcast(struct rps_group *group, void *data, size_t bytes,
        struct rps_error *error)
{
    return failed(group,
            rps_collective_broadcast(group->collective, data, bytes, 0),
            "broadcast of the dense variables", error);
}

/* What lies in the scratch of rank 0 is every rank's from here on. */
static rps_status
spread(struct rps_group *group, const struct variable *variable, bool restored,
        struct rps_error *error)
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
    number_keys(group, rows);
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
        const struct variable *variable = &group->variables[v];

        if (root && restored) {
            status = fetch_restored(group, tables, v, error);
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

/* --- a step -------------------------------------------------------------- */

static bool
is_finite(const float *row)
{
    for (size_t i = 0; i < DIM; i++) {
        if (!isfinite(row[i])) {
            return false;
        }
    }
    return true;
}

/* Once: each later one would say the same. */
static void
say_refused(struct rps_group *group, const struct variable *variable,
        uint64_t row, uint64_t step)
{
    if (!group->told) {
        rps_log(RPS_LOG_WARN, "nonfinite",
                "variable=%s row=%" PRIu64 " step=%" PRIu64
                " gradient is not finite, and not counted; more are not told",
                variable->model->name, row, step);
        group->told = true;
    }
}

/* A rank's part of a row counts if all of it is finite: zeros do not change
 * the sum, and `live` says how many there were. */
static void
sort_out(struct rps_group *group, const struct variable *variable,
        uint64_t step, bool skip)
{
    for (uint64_t k = 0; k < variable->model->rows; k++) {
        float *row = variable->model->gradients + k * DIM;
        const bool good = !skip && is_finite(row);

        variable->live[k] = good ? 1.0f : 0.0f;
        if (!good) {
            memset(row, 0, DIM * sizeof(*row));
        }
        if (!good && !skip) {
            say_refused(group, variable, k, step);
        }
    }
}

static rps_status
sum_gradients(struct rps_group *group, struct rps_error *error)
{
    rps_tensor tensors[2 * RPS_MODEL_VARIABLES_MAX];
    size_t n = 0;

    for (uint32_t v = 0; v < group->variable_count; v++) {
        const struct variable *variable = &group->variables[v];
        const size_t rows = (size_t)variable->model->rows;

        tensors[n++] = (rps_tensor){
                .values = variable->model->gradients, .count = rows * DIM};
        tensors[n++] = (rps_tensor){.values = variable->live, .count = rows};
    }
    return failed(group,
            rps_collective_allreduce_many(
                    group->collective, tensors, n, RPS_REDUCE_SUM),
            "allreduce of the gradients", error);
}

/* The rows that a rank added to, packed as the engine takes them: the sum as
 * one contribution that counts for as many. */
static size_t
pack_live(struct rps_group *group, const struct variable *variable)
{
    size_t n = 0;

    for (uint64_t k = 0; k < variable->model->rows; k++) {
        if (variable->live[k] > 0.0f) {
            group->keys[n] = k;
            group->counts[n] = (uint32_t)variable->live[k];
            memcpy(group->rows + n * DIM, variable->model->gradients + k * DIM,
                    DIM * sizeof(float));
            n++;
        }
    }
    return n;
}

static rps_status
apply(struct rps_group *group, const struct variable *variable, uint64_t step,
        double rate, struct rps_error *error)
{
    const uint64_t rows = variable->model->rows;
    const struct rps_update update = {.step = step,
            .t = step,
            .learning_rate = (float)rate,
            .scale = group->combine == RPS_COMBINE_MEAN
                             ? 1.0f / (float)group->settings->replicas
                             : 1.0f};
    const struct rps_contribution sum = {.count = pack_live(group, variable),
            .keys = group->keys,
            .counts = group->counts,
            .gradients = group->rows};
    struct rps_apply_report report;
    rps_status status =
            rps_table_apply(variable->table, &update, &sum, 1, &report);

    if (status != RPS_OK) {
        return rps_fail(error, status, "step of variable %s: no memory",
                variable->model->name);
    }
    if (report.nonfinite > 0) {
        say_refused(group, variable, report.nonfinite_key, step);
    }
    number_keys(group, rows);
    rps_table_lookup(variable->table,
            &(struct rps_read){.count = (size_t)rows, .keys = group->keys},
            variable->model->values, DIM * sizeof(float));
    return RPS_OK;
}

rps_status
rps_group_step(struct rps_group *group, uint64_t step, double rate, bool skip,
        struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (uint32_t v = 0; v < group->variable_count; v++) {
        sort_out(group, &group->variables[v], step, skip);
    }
    status = sum_gradients(group, error);
    for (uint32_t v = 0; v < group->variable_count && status == RPS_OK; v++) {
        status = apply(group, &group->variables[v], step, rate, error);
    }
    return status;
}

/* --- to the servers ------------------------------------------------------ */

static rps_status
publish(struct rps_group *group, struct rps_tables *tables, uint32_t v,
        struct rps_error *error)
{
    const struct variable *variable = &group->variables[v];
    const size_t rows = (size_t)variable->model->rows;
    const rps_assign assign = {.table = tables->dense.tables[v],
            .keys = group->keys,
            .key_count = rows,
            .rows = group->rows,
            .slots = variable->slot_floats > 0 ? group->slots : NULL,
            .meta = group->meta};
    size_t found = 0;
    rps_status status = RPS_OK;

    number_keys(group, rows);
    found = rps_table_read(variable->table, rows, group->keys, group->rows,
            group->slots, group->meta);
    assert(found == rows); /* a dense row never leaves */
    (void)found;
    status = rps_assign_rows(tables->client, &assign);
    return status == RPS_OK ? RPS_OK
                            : rps_fail(error, status, "writing variable %s: %s",
                                      variable->model->name,
                                      rps_client_error(tables->client));
}

rps_status
rps_group_publish(struct rps_group *group, struct rps_tables *tables,
        struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (uint32_t v = 0; v < group->variable_count && status == RPS_OK; v++) {
        status = publish(group, tables, v, error);
    }
    return status;
}

/* --- the same everywhere ------------------------------------------------- */

rps_status
rps_group_compare(struct rps_group *group, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (uint32_t v = 0; v < group->variable_count && status == RPS_OK; v++) {
        const struct variable *variable = &group->variables[v];
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
