/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of the dense variables. Its bits differ from a server's only in the
 * order in which the ranks' gradients are added, and with two ranks in nothing.
 */
#include "base/log.h"
#include "client/worker/group_impl.h"
#include "embedding/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define DIM RPS_GROUP_DIM

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
say_refused(struct rps_group *group, const struct rps_group_variable *variable,
        uint64_t row, uint64_t step)
{
    if (!group->told) {
        rps_log(RPS_LOG_WARN, "nonfinite_gradient",
                "variable %s: the gradient of key %" PRIu64 " at step %" PRIu64
                " is not finite and was refused; further ones are not told",
                variable->model->name, row, step);
        group->told = true;
    }
}

/* A rank's part of a row counts if all of it is finite: zeros do not change
 * the sum, and `live` says how many there were. */
static void
sort_out(struct rps_group *group, const struct rps_group_variable *variable,
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
        const struct rps_group_variable *variable = &group->variables[v];
        const size_t rows = (size_t)variable->model->rows;

        tensors[n++] = (rps_tensor){
                .values = variable->model->gradients, .count = rows * DIM};
        tensors[n++] = (rps_tensor){.values = variable->live, .count = rows};
    }
    return rps_group_failed(group,
            rps_collective_allreduce_many(
                    group->collective, tensors, n, RPS_REDUCE_SUM),
            "allreduce of the gradients", error);
}

/* The rows that a rank added to, packed as the engine takes them: the sum as
 * one contribution that counts for as many. */
static size_t
pack_live(struct rps_group *group, const struct rps_group_variable *variable)
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
apply(struct rps_group *group, const struct rps_group_variable *variable,
        uint64_t step, double rate, struct rps_error *error)
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
    rps_group_number_keys(group, rows);
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
