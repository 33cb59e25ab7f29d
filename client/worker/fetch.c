/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/fetch.h"

#include <string.h>

#define ENTRIES_MAX (RPS_MODEL_VARIABLES_MAX + RPS_MODEL_TABLES_MAX)

static rps_status
failed(const struct rps_fetch *fetch, rps_status status, uint64_t step,
        struct rps_error *error)
{
    return rps_fail(error, status, "lookup of step %llu: %s",
            (unsigned long long)step, rps_client_error(fetch->tables->client));
}

static rps_status
start(const struct rps_fetch *fetch, const rps_lookup *lookups, size_t count,
        uint64_t step, rps_ticket *ticket_out, struct rps_error *error)
{
    rps_status status = rps_lookup_start(
            fetch->tables->client, NULL, lookups, count, ticket_out);

    return status == RPS_OK ? RPS_OK : failed(fetch, status, step, error);
}

static rps_status
wait(const struct rps_fetch *fetch, rps_ticket *ticket, uint64_t step,
        struct rps_error *error)
{
    rps_status status = rps_wait(fetch->tables->client, *ticket, 0);

    *ticket = (rps_ticket){0}; /* done, or failed for good */
    return status == RPS_OK ? RPS_OK : failed(fetch, status, step, error);
}

/* --- ahead --------------------------------------------------------------- */

/* What the device has of its rows, if rows stay there. */
static rps_status
take_rows(const struct rps_fetch *fetch, struct rps_turn *turn,
        struct rps_error *error)
{
    return fetch->rows != NULL ? rps_device_rows_take(fetch->rows, turn, error)
                               : RPS_OK;
}

/* The rows of early keys go straight to their places; late places are zeros
 * for now, and so are those of rows that the device has. */
static rps_status
look_ahead(const struct rps_fetch *fetch, struct rps_turn *turn,
        struct rps_error *error)
{
    const struct rps_model *model = fetch->tables->model;
    rps_lookup lookups[RPS_MODEL_TABLES_MAX];
    rps_status status = take_rows(fetch, turn, error);

    if (status != RPS_OK) {
        return status;
    }
    for (uint32_t t = 0; t < model->table_count; t++) {
        const struct rps_late *late = &turn->late[t];
        const bool held = fetch->rows != NULL && turn->held[t].padded;

        lookups[t] = (rps_lookup){
                .table = fetch->tables->sparse[t],
                .keys = late->early_keys,
                .key_count = turn->bags[t].key_count,
                .flags = late->count > 0 || held ? RPS_PADDED : 0,
                .padding_key = late->padding,
                .rows = turn->bags[t].rows,
        };
    }
    turn->ahead_since = rps_lookup_step(fetch->tables->client);
    return start(fetch, lookups, model->table_count, turn->step, &turn->ahead,
            error);
}

static rps_status
look_all_ahead(const struct rps_fetch *fetch, struct rps_error *error)
{
    rps_status status = RPS_OK;
    struct rps_turn *turn;

    for (uint32_t behind = 1;
            status == RPS_OK && fetch->looks_ahead &&
            (turn = rps_reader_peek(fetch->reader, behind)) != NULL;
            behind++) {
        if (turn->ahead.id == 0 && turn->split) {
            status = look_ahead(fetch, turn, error);
        }
    }
    return status;
}

/* --- with the decision --------------------------------------------------- */

/* Late rows where the early ones were asked for, all rows else. NOMEM. */
static rps_status
rest_of_table(const struct rps_fetch *fetch, struct rps_turn *turn, uint32_t t,
        rps_lookup *lookup)
{
    struct rps_bags *bags = &turn->bags[t];
    const size_t late = turn->late[t].count;

    *lookup = (rps_lookup){
            .table = fetch->tables->sparse[t],
            .keys = bags->keys,
            .key_count = bags->key_count,
            .rows = bags->rows,
    };
    if (fetch->rows != NULL && turn->held[t].padded) {
        lookup->keys = turn->held[t].keys;
        lookup->flags = RPS_PADDED;
        lookup->padding_key = turn->held[t].padding;
    }
    if (turn->ahead.id != 0) {
        lookup->flags = 0;
        lookup->keys = turn->late[t].keys;
        lookup->key_count = late;
        lookup->rows = rps_bags_work_reserve(&bags->work->late,
                &bags->work->late_capacity, late * bags->table.dim);
    }
    return lookup->rows != NULL ? RPS_OK : RPS_E_NOMEM;
}

static rps_status
start_rest(const struct rps_fetch *fetch, struct rps_turn *turn,
        rps_ticket *ticket_out, struct rps_error *error)
{
    const struct rps_model *model = fetch->tables->model;
    rps_lookup lookups[ENTRIES_MAX];

    for (uint32_t t = 0; t < model->table_count; t++) {
        if (rest_of_table(fetch, turn, t, &lookups[t]) != RPS_OK) {
            return rps_fail(error, RPS_E_NOMEM, "no memory for a batch's rows");
        }
    }
    if (fetch->tables->settings->in_group) { /* dense variables are here */
        return start(fetch, lookups, model->table_count, turn->step, ticket_out,
                error);
    }
    rps_dense_lookups(&fetch->tables->dense, lookups + model->table_count, 0);
    return start(fetch, lookups, model->table_count + model->variable_count,
            turn->step, ticket_out, error);
}

/* --- together ------------------------------------------------------------ */

/* Before the rest: its rows are those of the turn's own step, too. */
static rps_status
refresh(const struct rps_fetch *fetch, struct rps_turn *turn,
        struct rps_error *error)
{
    rps_status status = take_rows(fetch, turn, error);

    if (status == RPS_OK && fetch->rows != NULL) {
        rps_spent_on(fetch->spent, RPS_SPENT_LOOKUP_WAIT);
        status = rps_device_rows_refresh(
                fetch->rows, fetch->tables, turn, error);
        rps_spent_on(fetch->spent, RPS_SPENT_LOOKUP);
    }
    return status;
}

static void
note_answer(const struct rps_fetch *fetch, const struct rps_turn *turn,
        bool was_ahead)
{
    if (fetch->rows != NULL) {
        rps_device_rows_answered(fetch->rows, turn,
                was_ahead ? turn->ahead_since
                          : rps_lookup_step(fetch->tables->client));
    }
}

rps_status
rps_fetch(
        struct rps_fetch *fetch, struct rps_turn *turn, struct rps_error *error)
{
    const bool was_ahead = turn->ahead.id != 0;
    rps_ticket rest;
    rps_status status;

    rps_spent_on(fetch->spent, RPS_SPENT_LOOKUP);
    status = refresh(fetch, turn, error);
    if (status == RPS_OK) {
        status = start_rest(fetch, turn, &rest, error);
    }
    if (status == RPS_OK) {
        rps_spent_on(fetch->spent, RPS_SPENT_LOOKUP_WAIT);
        status = wait(fetch, &rest, turn->step, error);
    }
    if (status == RPS_OK && was_ahead) {
        status = wait(fetch, &turn->ahead, turn->step, error);
    }
    if (status == RPS_OK) {
        rps_spent_on(fetch->spent, RPS_SPENT_LOOKUP);
        note_answer(fetch, turn, was_ahead);
        status = look_all_ahead(fetch, error);
    }
    rps_spent_on(fetch->spent, RPS_SPENT_ROWS);
    for (uint32_t t = 0; status == RPS_OK && was_ahead &&
                         t < fetch->tables->model->table_count;
            t++) {
        rps_late_place(&turn->late[t], &turn->bags[t]);
    }
    return status;
}

static void
drop(struct rps_fetch *fetch, struct rps_turn *turn)
{
    if (turn->ahead.id != 0) {
        rps_cancel(fetch->tables->client, turn->ahead);
        turn->ahead = (rps_ticket){0};
    }
}

/* Rows that the device was to have do not come, and turns behind may count on
 * them: they are looked up as a whole, in their own steps. */
static void
void_rows(struct rps_fetch *fetch)
{
    struct rps_turn *turn;

    for (uint32_t behind = 1;
            (turn = rps_reader_peek(fetch->reader, behind)) != NULL; behind++) {
        if (rps_device_rows_has(fetch->rows, turn)) {
            drop(fetch, turn);
            turn->split = false;
        }
    }
    rps_device_rows_clear(fetch->rows);
}

void
rps_fetch_drop(struct rps_fetch *fetch, struct rps_turn *turn)
{
    drop(fetch, turn);
    if (fetch->rows != NULL && rps_device_rows_has(fetch->rows, turn)) {
        void_rows(fetch);
    }
}

void
rps_fetch_cancel(struct rps_fetch *fetch)
{
    struct rps_turn *turn;

    for (uint32_t behind = 0;
            (turn = rps_reader_peek(fetch->reader, behind)) != NULL; behind++) {
        drop(fetch, turn);
    }
    if (fetch->rows != NULL) {
        rps_device_rows_clear(fetch->rows);
    }
}
