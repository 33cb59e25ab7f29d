/* SPDX-License-Identifier: Apache-2.0 */
/* What a group reads from the servers when it restores, and writes to them
 * before they save. */
#include "client/worker/group_impl.h"
#include "embedding/table.h"

#include <recps/rows.h>

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DIM RPS_GROUP_DIM

#define PAGE_ROWS 64u /* asked for at once */

/* A page's rows to their places. Returns how many are the variable's. */
static uint64_t
place_page(struct rps_group *group, const struct rps_group_variable *variable,
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
    const struct rps_group_variable *variable = &group->variables[v];
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

rps_status
rps_group_fetch(struct rps_group *group, struct rps_tables *tables, uint32_t v,
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
publish(struct rps_group *group, struct rps_tables *tables, uint32_t v,
        struct rps_error *error)
{
    const struct rps_group_variable *variable = &group->variables[v];
    const size_t rows = (size_t)variable->model->rows;
    const rps_assign assign = {.table = tables->dense.tables[v],
            .keys = group->keys,
            .key_count = rows,
            .rows = group->rows,
            .slots = variable->slot_floats > 0 ? group->slots : NULL,
            .meta = group->meta};
    size_t found = 0;
    rps_status status = RPS_OK;

    rps_group_number_keys(group, rows);
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
