/* SPDX-License-Identifier: Apache-2.0 */
#include "server/warm.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/spec.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define TABLES_MAX 4096u

struct table {
    rps_table_spec spec; /* where it has one */
    bool has_spec;
    bool optional;
    bool there; /* the restore has told it */
    char *name; /* of the table that is made */
    char *from; /* NULL: the same */
};

struct rps_warm {
    bool begins;
    bool weights_only;
    bool all;      /* no list */
    char *asked;   /* the folder, as it was asked for; NULL: the own */
    char *dir;     /* as it was looked up */
    uint64_t step; /* 0: the newest, until it is looked up */
    struct table *tables;
    size_t table_count;
    struct rps_restore_table *list; /* [table_count], of tables */
    json_t *fresh;                  /* names of tables with fresh slots */
};

void
rps_warm_destroy(struct rps_warm *warm)
{
    if (warm == NULL) {
        return;
    }
    for (size_t i = 0; i < warm->table_count; i++) {
        free(warm->tables[i].name);
        free(warm->tables[i].from);
    }
    free(warm->tables);
    free(warm->list);
    free(warm->asked);
    free(warm->dir);
    json_decref(warm->fresh);
    free(warm);
}

bool
rps_warm_begins(const struct rps_warm *warm)
{
    return warm != NULL && warm->begins;
}

static rps_status
bad(struct rps_error *error, const char *field, const char *wanted)
{
    return rps_fail(
            error, RPS_E_INVAL, "RESTORE: %s must be %s", field, wanted);
}

static rps_status
read_table(const json_t *value, struct table *table, struct rps_error *error)
{
    const json_t *spec = json_object_get(value, "spec");
    const char *name = json_string_value(json_object_get(value, "name"));
    const json_t *from = json_object_get(value, "from");
    rps_status status = RPS_OK;

    if (spec != NULL) {
        table->has_spec = true;
        status = rps_spec_from_value(spec, &table->spec, error);
        name = table->spec.name;
    }
    if (status != RPS_OK) {
        return status;
    }
    if (name == NULL || name[0] == '\0' ||
            (from != NULL && !json_is_string(from))) {
        return bad(
                error, "tables", "a list of {\"name\" or \"spec\", \"from\"}");
    }
    table->optional = json_is_true(json_object_get(value, "optional"));
    table->name = strdup(name);
    table->from = from == NULL ? NULL : strdup(json_string_value(from));
    return table->name != NULL && (from == NULL || table->from != NULL)
                   ? RPS_OK
                   : RPS_E_NOMEM;
}

static rps_status
read_tables(struct rps_warm *warm, const json_t *list, struct rps_error *error)
{
    const size_t count = json_array_size(list);
    rps_status status = RPS_OK;

    warm->all = list == NULL;
    if (list == NULL) {
        return RPS_OK;
    }
    if (!json_is_array(list) || count == 0 || count > TABLES_MAX) {
        return bad(error, "tables", "a list of 1 to 4096 tables");
    }
    warm->tables = calloc(count, sizeof(*warm->tables));
    warm->list = calloc(count, sizeof(*warm->list));
    if (warm->tables == NULL || warm->list == NULL) {
        return RPS_E_NOMEM;
    }
    for (size_t i = 0; i < count && status == RPS_OK; i++) {
        warm->table_count++;
        status = read_table(json_array_get(list, i), &warm->tables[i], error);
    }
    return status;
}

static rps_status
read_from(struct rps_warm *warm, const json_t *from, struct rps_error *error)
{
    const char *dir = json_string_value(json_object_get(from, "dir"));

    if (from == NULL) {
        return RPS_OK;
    }
    if (dir == NULL || dir[0] != '/' || strlen(dir) >= PATH_MAX) {
        return bad(error, "from", "{\"dir\": a folder from / on, \"step\"}");
    }
    warm->begins = true;
    warm->step = 0;
    warm->asked = strdup(dir);
    if (json_object_get(from, "step") != NULL) {
        return rps_json_u64(from, "step", 999999999999u, &warm->step, error);
    }
    return warm->asked != NULL ? RPS_OK : RPS_E_NOMEM;
}

static rps_status
read_all(struct rps_warm *warm, const json_t *object, uint64_t step,
        struct rps_error *error)
{
    const json_t *from = json_object_get(object, "from");
    rps_status status;

    if (from != NULL && step != 0) {
        return bad(error, "step", "0 where the job begins \"from\" another");
    }
    if (from == NULL && step == 0) {
        return bad(error, "step",
                "that of a checkpoint where \"tables\" or "
                "\"weights_only\" are given without \"from\"");
    }
    warm->step = step;
    warm->weights_only = json_is_true(json_object_get(object, "weights_only"));
    warm->fresh = json_array();
    status = read_from(warm, from, error);
    return status == RPS_OK
                   ? read_tables(warm, json_object_get(object, "tables"), error)
                   : status;
}

rps_status
rps_warm_read(const json_t *object, uint64_t step, struct rps_warm **warm_out,
        struct rps_error *error)
{
    rps_status status;

    *warm_out = NULL;
    if (json_object_get(object, "from") == NULL &&
            json_object_get(object, "tables") == NULL &&
            !json_is_true(json_object_get(object, "weights_only"))) {
        return RPS_OK;
    }
    *warm_out = calloc(1, sizeof(**warm_out));
    status = *warm_out == NULL ? RPS_E_NOMEM
                               : read_all(*warm_out, object, step, error);
    if (status != RPS_OK) {
        rps_warm_destroy(*warm_out);
        *warm_out = NULL;
    }
    return status;
}

/* Is `path` this folder, or in it? Both are looked up: no links, no "..". */
static bool
is_below(const char *path, const char *allowed, size_t n)
{
    char *name = strndup(allowed, n);
    char *real = name == NULL || n == 0 ? NULL : realpath(name, NULL);
    const size_t length = real == NULL ? 0 : strlen(real);
    const bool root = length == 1;
    const bool below = length > 0 && strncmp(path, real, length) == 0 &&
                       (root || path[length] == '\0' || path[length] == '/');

    free(name);
    free(real);
    return below;
}

static bool
is_allowed(const struct rps_service_options *options, const char *path)
{
    const char *at = options->warm_start_dirs;

    if (options->checkpoint_dir != NULL &&
            is_below(path, options->checkpoint_dir,
                    strlen(options->checkpoint_dir))) {
        return true;
    }
    while (at != NULL && *at != '\0') {
        const size_t n = strcspn(at, ",");

        if (is_below(path, at, n)) {
            return true;
        }
        at += n + (at[n] == ',' ? 1 : 0);
    }
    return false;
}

/* Words that do not tell a folder that is not there from one that may not be
 * read: what else is on this disk is nobody's business. */
static rps_status
find_folder(const struct rps_service *service, struct rps_warm *warm,
        struct rps_error *error)
{
    const struct rps_service_options *options = &service->options;

    warm->dir = realpath(warm->asked, NULL);
    if (warm->dir != NULL && is_allowed(options, warm->dir)) {
        return RPS_OK;
    }
    return rps_fail(error, RPS_E_INVAL,
            "RESTORE from %s: PS %" PRIu32
            " reads its checkpoint_dir and what its --warm-start-dirs names "
            "(%s); this is not there, or not below one of them",
            warm->asked, options->ps_index,
            options->warm_start_dirs != NULL &&
                            options->warm_start_dirs[0] != '\0'
                    ? options->warm_start_dirs
                    : "nothing");
}

static rps_status
find_newest(const struct rps_service *service, struct rps_warm *warm,
        struct rps_error *error)
{
    struct rps_checkpoint_survey survey = {0};
    rps_status status =
            rps_checkpoint_survey(warm->dir, service->options.ps_index,
                    service->options.ps_count, &survey, error);

    for (size_t i = 0; i < survey.count && status == RPS_OK; i++) {
        if (!survey.complete[i].abandoned) {
            warm->step = survey.complete[i].step;
        }
    }
    rps_checkpoint_survey_finish(&survey);
    if (status == RPS_OK && warm->step == 0) {
        return rps_fail(error, RPS_E_NOT_FOUND,
                "RESTORE from %s: there is no complete checkpoint",
                warm->asked);
    }
    return status;
}

rps_status
rps_warm_prepare(const struct rps_service *service, struct rps_warm *warm,
        struct rps_restore *restore, struct rps_error *error)
{
    rps_status status = RPS_OK;

    if (warm->begins) {
        status = find_folder(service, warm, error);
        if (status == RPS_OK && warm->step == 0) {
            status = find_newest(service, warm, error);
        }
        restore->dir = warm->dir;
        restore->now = (struct rps_now){.unix_s = rps_clock_unix_s()};
    }
    for (size_t i = 0; i < warm->table_count; i++) {
        const struct table *table = &warm->tables[i];

        warm->list[i] = (struct rps_restore_table){.name = table->name,
                .from = table->from,
                .spec = table->has_spec ? &table->spec : NULL,
                .optional = table->optional};
    }
    restore->step = warm->step;
    restore->begins = warm->begins;
    restore->weights_only = warm->weights_only;
    restore->tables = warm->all ? NULL : warm->list;
    restore->table_count = warm->table_count;
    return status;
}

void
rps_warm_told(struct rps_warm *warm, const char *name, bool slots)
{
    if (!slots) {
        (void)json_array_append_new(warm->fresh, json_string(name));
    }
    for (size_t i = 0; i < warm->table_count; i++) {
        if (strcmp(warm->tables[i].name, name) == 0) {
            warm->tables[i].there = true;
        }
    }
}

json_t *
rps_warm_answer(const struct rps_warm *warm)
{
    json_t *absent = json_array();

    for (size_t i = 0; i < warm->table_count; i++) {
        if (!warm->tables[i].there) {
            (void)json_array_append_new(
                    absent, json_string(warm->tables[i].name));
        }
    }
    return json_pack("{s:I, s:O, s:o}", "step", (json_int_t)warm->step,
            "fresh_slots", warm->fresh, "absent", absent);
}
