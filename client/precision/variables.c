/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which variables there are, and their order. What is in their rows is
 * variables_rows.c's.
 */
#include "client/precision/variables.h"

#include "base/spec.h"
#include "base/text.h"
#include "client/precision/variables_impl.h"
#include "embedding/checkpoint/replay.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool
rps_variable_is_below(const struct rps_variable *variable, double threshold)
{
    return variable->problem == NULL && !(variable->cosine >= threshold);
}

char *
rps_cosine_text(double cosine, char out[RPS_COSINE_TEXT_BYTES])
{
    (void)snprintf(out, RPS_COSINE_TEXT_BYTES, "%.9g", cosine);
    if (cosine != 1.0 && strcmp(out, "1") == 0) {
        (void)snprintf(out, RPS_COSINE_TEXT_BYTES, "1 - %.2g", 1.0 - cosine);
    }
    return out;
}

void
rps_variables_finish(struct rps_variables *variables)
{
    for (size_t i = 0; i < variables->count; i++) {
        free(variables->list[i].name);
        free(variables->list[i].table);
        free(variables->list[i].problem);
    }
    free(variables->list);
    *variables = (struct rps_variables){.count = 0};
}

/* --- order -----------------------------------------------------------------
 */

static int
rank_of(const struct rps_variable *variable)
{
    return variable->problem != NULL ? 2 : isnan(variable->cosine) ? 0 : 1;
}

static int
by_cosine(const void *a, const void *b)
{
    const struct rps_variable *x = a, *y = b;

    if (rank_of(x) != rank_of(y)) {
        return rank_of(x) < rank_of(y) ? -1 : 1;
    }
    if (rank_of(x) == 1 && x->cosine != y->cosine) {
        return x->cosine < y->cosine ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static bool
is_resized(const struct rps_variable *variable)
{
    return variable->dense && variable->problem != NULL && !variable->unread &&
           variable->slot == NULL && variable->in_a && variable->in_b;
}

static void
put_in_order(struct rps_variables *variables)
{
    qsort(variables->list, variables->count, sizeof(*variables->list),
            by_cosine);
    for (size_t i = 0; i < variables->count; i++) {
        const struct rps_variable *variable = &variables->list[i];

        const bool below =
                rps_variable_is_below(variable, variables->threshold);

        variables->problems += variable->problem != NULL;
        variables->unread += variable->unread;
        variables->resized += is_resized(variable);
        variables->below += below;
        variables->with_rows_below += !below && variable->below > 0;
    }
}

/* --- the tables ------------------------------------------------------------
 */

static const struct rps_ckpt_manifest *
manifest_of(const struct rps_variables_pair *pair, int side)
{
    const struct rps_ckpt_chain *chain = pair->chains[side];

    return &chain->links[chain->count - 1].manifest;
}

static const rps_table_spec *
spec_of(const struct rps_variables_pair *pair, int side, const char *name)
{
    const struct rps_ckpt_manifest *manifest = manifest_of(pair, side);
    const size_t at =
            rps_ckpt_table_find(manifest->tables, manifest->table_count, name);

    return at < manifest->table_count ? &manifest->tables[at].spec : NULL;
}

/* Why the two cannot be compared, in new words; NULL: they can (or there is no
 * memory, and *failed). */
static char *
problem_of(const struct rps_variables_table *table, bool slot, bool *failed)
{
    const rps_table_spec *a = table->specs[0], *b = table->specs[1];
    char *words = NULL;

    if (a == NULL || b == NULL) {
        words = rps_format("only in %s", a == NULL ? "B" : "A");
    } else if (a->dim != b->dim) {
        words = rps_format("rows of %" PRIu32 " columns in A, of %" PRIu32
                           " in B",
                a->dim, b->dim);
    } else if (a->dense_elements != b->dense_elements) {
        words = rps_format("%" PRIu64 " elements in A, %" PRIu64 " in B",
                a->dense_elements, b->dense_elements);
    } else if (slot && a->optimizer != b->optimizer) {
        words = rps_format("slots of %s in A, of %s in B",
                rps_optimizer_str(a->optimizer),
                rps_optimizer_str(b->optimizer));
    } else {
        return NULL;
    }
    *failed = *failed || words == NULL;
    return words;
}

/* One more variable of the table; `slot` NULL: its values. */
static bool
add_variable(struct rps_variables *variables,
        const struct rps_variables_table *table, const char *slot)
{
    const rps_table_spec *spec =
            table->specs[0] != NULL ? table->specs[0] : table->specs[1];
    struct rps_variable *variable = &variables->list[variables->count++];
    bool failed = false;

    *variable = (struct rps_variable){
            .name = slot == NULL ? strdup(table->name)
                                 : rps_format("%s/%s", table->name, slot),
            .table = strdup(table->name),
            .slot = slot,
            .optimizer = rps_optimizer_str(spec->optimizer),
            .dense = spec->dense_elements > 0,
            .problem = problem_of(table, slot != NULL, &failed),
            .in_a = table->specs[0] != NULL,
            .in_b = table->specs[1] != NULL,
            .cosine = 1.0};
    return variable->name != NULL && variable->table != NULL && !failed;
}

/* The one whose optimizer has more slots, where both are there. */
static const rps_table_spec *
slots_of(const struct rps_variables_table *table)
{
    const rps_table_spec *a = table->specs[0], *b = table->specs[1];

    if (a == NULL || b == NULL) {
        return a != NULL ? a : b;
    }
    return rps_spec_slot_count(b) > rps_spec_slot_count(a) ? b : a;
}

/* Its files cannot be read: that is all that is said of it. */
static rps_status
name_unread(struct rps_variables_pair *pair, struct rps_variables_table *table,
        const struct rps_error *cause, struct rps_error *error)
{
    struct rps_error causes[2] = {{.text = ""}, {.text = ""}};
    rps_status status = rps_variables_unread(pair, table, causes, error);
    const char *a = causes[0].text, *b = causes[1].text;

    for (size_t i = 0; i < table->vector_count && status == RPS_OK; i++) {
        struct rps_variable *variable = &table->vectors[i];

        free(variable->problem);
        *variable = (struct rps_variable){.name = variable->name,
                .table = variable->table,
                .slot = variable->slot,
                .optimizer = variable->optimizer,
                .dense = variable->dense,
                .unread = true,
                .problem = a[0] == '\0' && b[0] == '\0'
                                   ? strdup(cause->text)
                                   : rps_format("%s%s%s", a,
                                             a[0] != '\0' && b[0] != '\0' ? "; "
                                                                          : "",
                                             b),
                .in_a = variable->in_a,
                .in_b = variable->in_b,
                .cosine = 1.0};
        if (variable->problem == NULL) {
            status = rps_fail(error, RPS_E_NOMEM, "no memory");
        }
    }
    return status;
}

/* The values and, where they are asked for, the slots of one table. */
static rps_status
compare_table(struct rps_variables_pair *pair, struct rps_variables *variables,
        const char *name, struct rps_error *error)
{
    struct rps_variables_table table = {.name = name,
            .specs = {spec_of(pair, 0, name), spec_of(pair, 1, name)},
            .first = variables->count};
    const rps_table_spec *spec = slots_of(&table);
    const uint32_t slots = pair->options->slots ? rps_spec_slot_count(spec) : 0;
    bool good = add_variable(variables, &table, NULL);
    struct rps_error cause = {.text = ""};
    rps_status status;

    for (uint32_t slot = 0; slot < slots && good; slot++) {
        good = add_variable(variables, &table, rps_spec_slot_name(spec, slot));
    }
    table.vectors = variables->list + table.first;
    table.vector_count = variables->count - table.first;
    if (!good) {
        return rps_fail(error, RPS_E_NOMEM, "no memory");
    }
    status = rps_variables_rows(pair, &table, &cause);
    if (status == RPS_E_NOMEM) {
        return rps_fail(error, status, "%s", cause.text);
    }
    return status == RPS_OK ? RPS_OK : name_unread(pair, &table, &cause, error);
}

/* Every table of both once, those of A first. NULL in `names` ends it. */
static rps_status
list_tables(const struct rps_variables_pair *pair, const char ***names_out,
        struct rps_error *error)
{
    const size_t room = manifest_of(pair, 0)->table_count +
                        manifest_of(pair, 1)->table_count;
    const char **names = calloc(room + 1, sizeof(*names));
    const char *only = pair->options->table;
    size_t count = 0;

    if (names == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory");
    }
    for (int side = 0; side < 2; side++) {
        const struct rps_ckpt_manifest *manifest = manifest_of(pair, side);

        for (size_t i = 0; i < manifest->table_count; i++) {
            const char *name = manifest->tables[i].spec.name;

            if ((only == NULL || strcmp(only, name) == 0) &&
                    (side == 0 || spec_of(pair, 0, name) == NULL)) {
                names[count++] = name;
            }
        }
    }
    if (only != NULL && count == 0) {
        free(names);
        return rps_fail(error, RPS_E_NOT_FOUND, "neither has a table %s", only);
    }
    *names_out = names;
    return RPS_OK;
}

/* Room for all of them, and how much there is to read. */
static rps_status
prepare(struct rps_variables_pair *pair, struct rps_variables *variables,
        const char *const *names, struct rps_error *error)
{
    size_t room = 0;

    for (; *names != NULL; names++) {
        const struct rps_variables_table table = {
                .specs = {spec_of(pair, 0, *names), spec_of(pair, 1, *names)}};

        room += 1 + rps_spec_slot_count(slots_of(&table));
        for (int side = 0; side < 2; side++) {
            const struct rps_ckpt_replay replay =
                    rps_variables_replay(pair, side, *names);

            pair->total += rps_ckpt_replay_bytes(&replay);
        }
    }
    variables->list = calloc(room + 1, sizeof(*variables->list));
    return variables->list == NULL ? rps_fail(error, RPS_E_NOMEM, "no memory")
                                   : RPS_OK;
}

rps_status
rps_variables_compare(struct rps_variables *variables,
        const struct rps_ckpt_chain *a, const struct rps_ckpt_chain *b,
        const struct rps_variables_options *options, struct rps_error *error)
{
    struct rps_variables_pair pair = {.chains = {a, b},
            .options = options,
            .memory_bytes = options->memory_bytes > 0
                                    ? options->memory_bytes
                                    : RPS_VARIABLES_MEMORY_BYTES};
    const char **names = NULL;
    rps_status status;

    *variables = (struct rps_variables){.threshold = options->threshold};
    pair.by_hash =
            manifest_of(&pair, 0)->job_seed != manifest_of(&pair, 1)->job_seed;
    status = list_tables(&pair, &names, error);
    if (status == RPS_OK) {
        status = prepare(&pair, variables, names, error);
    }
    for (size_t i = 0; status == RPS_OK && names[i] != NULL; i++) {
        status = compare_table(&pair, variables, names[i], error);
    }
    free(names);
    if (status == RPS_OK) {
        put_in_order(variables);
    } else {
        rps_variables_finish(variables);
    }
    return status;
}
