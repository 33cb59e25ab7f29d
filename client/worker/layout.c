/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/layout.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a field goes: 1 + its table, or one of these. */
#define NOWHERE 0u
#define UNUSED  UINT32_MAX

#define PLACE_BYTES (RPS_NAME_BYTES_MAX + 32u)

struct making {
    struct rps_layout *layout;
    const struct rps_model_config *config;
    uint32_t fields;
    uint32_t *owners; /* [fields] */
    uint32_t *next;   /* free numbers of layout->numbers */
};

/* A table's place in the file, as the reader of it names it. Returns `out`. */
static const char *
place_of(const struct rps_model_config *config, uint32_t t,
        char out[PLACE_BYTES])
{
    const char *name = config->tables[t].spec.name;

    if (config->is_file) {
        (void)snprintf(out, PLACE_BYTES, "tables[%u] (%s)", t, name);
    } else {
        (void)snprintf(out, PLACE_BYTES, "table %s", name);
    }
    return out;
}

static rps_status
claim(struct making *making, const char *where, uint32_t field, uint32_t owner,
        struct rps_error *error)
{
    const struct rps_model_config *config = making->config;

    if (field >= making->fields) {
        return rps_fail(error, RPS_E_INVAL,
                "%s: %s: field %u is not one of the data's %u, which count "
                "from 0",
                config->file, where, field, making->fields);
    }
    if (making->owners[field] != NOWHERE) {
        return rps_fail(error, RPS_E_INVAL,
                "%s: %s: field %u is named twice: a field goes to one bag",
                config->file, where, field);
    }
    making->owners[field] = owner;
    return RPS_OK;
}

static rps_status
claim_unused(struct making *making, struct rps_error *error)
{
    const struct rps_model_config *config = making->config;
    rps_status status = RPS_OK;

    for (uint32_t i = 0; i < config->unused_count && status == RPS_OK; i++) {
        status = claim(
                making, "unused_fields", config->unused[i], UNUSED, error);
    }
    return status;
}

static rps_status
claim_named(struct making *making, struct rps_error *error)
{
    const struct rps_model_config *config = making->config;
    rps_status status = RPS_OK;
    char place[PLACE_BYTES];

    for (uint32_t t = 0; t < config->table_count; t++) {
        const struct rps_table_config *table = &config->tables[t];
        const uint32_t count = table->bag_count > 0
                                       ? table->bag_ends[table->bag_count - 1]
                                       : 0;

        for (uint32_t i = 0; i < count && status == RPS_OK; i++) {
            status = claim(making, place_of(config, t, place), table->fields[i],
                    t + 1, error);
        }
    }
    return status;
}

/* Its own bags, as they are named. */
static void
write_named(struct making *making, const struct rps_table_config *table,
        struct rps_model_table *to)
{
    uint32_t *starts = making->next;
    uint32_t *fields = starts + table->bag_count + 1;
    const uint32_t count = table->bag_ends[table->bag_count - 1];

    starts[0] = 0;
    memcpy(starts + 1, table->bag_ends, table->bag_count * sizeof(*starts));
    memcpy(fields, table->fields, count * sizeof(*fields));
    to->bags = table->bag_count;
    to->bag_starts = starts;
    to->fields = fields;
    making->next = fields + count;
}

/* A bag each of the fields that nobody named. */
static void
write_rest(struct making *making, uint32_t owner, struct rps_model_table *to)
{
    uint32_t count = 0, *starts = making->next, *fields;

    for (uint32_t f = 0; f < making->fields; f++) {
        count += making->owners[f] == NOWHERE;
    }
    fields = starts + count + 1;
    starts[0] = 0;
    to->bags = 0;
    for (uint32_t f = 0; f < making->fields; f++) {
        if (making->owners[f] == NOWHERE) {
            making->owners[f] = owner;
            fields[to->bags++] = f;
            starts[to->bags] = to->bags;
        }
    }
    to->bag_starts = starts;
    to->fields = fields;
    making->next = fields + count;
}

static rps_status
write_tables(struct making *making, struct rps_error *error)
{
    const struct rps_model_config *config = making->config;
    char place[PLACE_BYTES];

    for (uint32_t t = 0; t < config->table_count; t++) {
        const struct rps_table_config *table = &config->tables[t];
        struct rps_model_table *to = &making->layout->tables[t];

        to->name = table->spec.name;
        to->dim = table->spec.dim;
        to->pooling = table->pooling;
        if (table->bag_count > 0) {
            write_named(making, table, to);
        } else {
            write_rest(making, t + 1, to);
        }
        if (to->bags == 0) {
            return rps_fail(error, RPS_E_INVAL,
                    config->is_file
                            ? "%s: %s: no field of the data is left for it, "
                              "which has %u: name its own in \"fields\", or "
                              "leave the table out"
                            : "%s: %s: the data has no sparse field to embed "
                              "(%u)",
                    config->file, place_of(config, t, place), making->fields);
        }
    }
    return RPS_OK;
}

static rps_status
check_all_claimed(const struct making *making, struct rps_error *error)
{
    for (uint32_t f = 0; f < making->fields; f++) {
        if (making->owners[f] == NOWHERE) {
            return rps_fail(error, RPS_E_INVAL,
                    "%s: field %u of the data goes to no table: name it in "
                    "the \"fields\" of one, or in \"unused_fields\"",
                    making->config->file, f);
        }
    }
    return RPS_OK;
}

rps_status
rps_layout_init(struct rps_layout *layout,
        const struct rps_model_config *config, uint32_t fields,
        struct rps_error *error)
{
    struct making making = {
            .layout = layout, .config = config, .fields = fields};
    /* a number a field, an end a bag, and one more a table */
    const size_t numbers = 2 * (size_t)fields + config->table_count;
    rps_status status;

    assert(config->table_count <= RPS_MODEL_TABLES_MAX);
    memset(layout, 0, sizeof(*layout));
    layout->table_count = config->table_count;
    layout->numbers = calloc(numbers, sizeof(*layout->numbers));
    making.owners = calloc((size_t)fields + 1, sizeof(*making.owners));
    making.next = layout->numbers;
    if (layout->numbers == NULL || making.owners == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "no memory for the model");
        goto finish;
    }
    status = claim_unused(&making, error);
    if (status == RPS_OK) {
        status = claim_named(&making, error);
    }
    if (status == RPS_OK) {
        status = write_tables(&making, error);
    }
    if (status == RPS_OK) {
        status = check_all_claimed(&making, error);
    }
finish:
    free(making.owners);
    if (status != RPS_OK) {
        rps_layout_finish(layout);
    }
    return status;
}

void
rps_layout_finish(struct rps_layout *layout)
{
    free(layout->numbers);
    memset(layout, 0, sizeof(*layout));
}
