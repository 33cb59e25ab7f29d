/* SPDX-License-Identifier: Apache-2.0 */
#include "base/terms.h"

#include "base/json.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char bounded[] = "bounded:";

bool
rps_terms_read_mode(const char *text, rps_terms *terms)
{
    const size_t prefix = sizeof(bounded) - 1;
    uint64_t staleness = 0;

    if (strcmp(text, "sync") == 0) {
        terms->mode = RPS_MODE_SYNC;
    } else if (strcmp(text, "async") == 0) {
        terms->mode = RPS_MODE_ASYNC;
    } else if (strncmp(text, bounded, prefix) == 0 &&
               rps_parse_u64(text + prefix, &staleness) &&
               staleness <= RPS_STALENESS_MAX) {
        terms->mode = RPS_MODE_BOUNDED;
    } else {
        return false;
    }
    terms->staleness = (uint32_t)staleness;
    return true;
}

struct rps_mode_text
rps_terms_mode(const rps_terms *terms)
{
    struct rps_mode_text name;

    if (terms->mode == RPS_MODE_BOUNDED) {
        snprintf(name.text, sizeof(name.text), "%s%" PRIu32, bounded,
                terms->staleness);
    } else {
        snprintf(name.text, sizeof(name.text), "%s",
                terms->mode == RPS_MODE_SYNC ? "sync" : "async");
    }
    return name;
}

const char *
rps_terms_combine(const rps_terms *terms)
{
    return terms->combine == RPS_COMBINE_MEAN ? "mean" : "sum";
}

const char *
rps_terms_on_lost(const rps_terms *terms)
{
    return terms->on_lost == RPS_ON_LOST_LEAVE ? "leave" : "stop";
}

const char *
rps_terms_cut(const rps_terms *terms)
{
    return terms->cut == RPS_CUT_LOCAL ? "local" : "job";
}

/* "cut" is there only where it is not the default: an older server or client
 * then knows all that it reads. */
json_t *
rps_terms_json(const rps_terms *terms)
{
    json_t *object = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s}", "mode",
            rps_terms_mode(terms).text, "combine", rps_terms_combine(terms),
            "replicas", (json_int_t)terms->replica_count, "step_timeout_ms",
            (json_int_t)terms->step_timeout_ms, "step_bytes_max",
            (json_int_t)terms->step_bytes_max, "backup_workers",
            (json_int_t)terms->backup_workers, "on_lost",
            rps_terms_on_lost(terms));

    if (object != NULL && terms->recover != 0 &&
            json_object_set_new(object, "recover", json_true()) != 0) {
        json_decref(object);
        return NULL;
    }
    if (object != NULL && terms->cut != RPS_CUT_JOB &&
            json_object_set_new(
                    object, "cut", json_string(rps_terms_cut(terms))) != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static rps_status
refuse_name(const json_t *field, const char *key, const char *allowed,
        struct rps_error *error)
{
    const char *text = json_string_value(field);

    return rps_fail(error, RPS_E_INVAL, "%s is \"%.64s\"; %s is allowed", key,
            text != NULL ? text : "", allowed);
}

/* Absent: unchanged. */
static rps_status
read_mode(const json_t *object, rps_terms *terms, struct rps_error *error)
{
    const json_t *field = json_object_get(object, "mode");

    if (field == NULL ||
            (json_is_string(field) &&
                    rps_terms_read_mode(json_string_value(field), terms))) {
        return RPS_OK;
    }
    return refuse_name(field, "mode", "async, sync or bounded:S", error);
}

/* Whether it is `one`, of two names. */
static rps_status
read_choice(const json_t *object, const char *key, const char *const names[2],
        int *out, struct rps_error *error)
{
    const json_t *field = json_object_get(object, key);
    char allowed[64];

    if (field == NULL) {
        return RPS_OK;
    }
    for (int i = 0; i < 2; i++) {
        if (json_is_string(field) &&
                strcmp(json_string_value(field), names[i]) == 0) {
            *out = i;
            return RPS_OK;
        }
    }
    snprintf(allowed, sizeof(allowed), "%s or %s", names[0], names[1]);
    return refuse_name(field, key, allowed, error);
}

static rps_status
read_u32(const json_t *object, const char *key, uint32_t *out,
        struct rps_error *error)
{
    uint64_t number = *out;
    rps_status status = rps_json_u64(object, key, UINT32_MAX, &number, error);

    *out = (uint32_t)number;
    return status;
}

rps_status
rps_terms_read(const json_t *object, rps_terms *terms, struct rps_error *error)
{
    static const char *const combines[] = {"sum", "mean"};
    static const char *const losses[] = {"stop", "leave"};
    static const char *const cuts[] = {"job", "local"};
    int mean = terms->combine == RPS_COMBINE_MEAN;
    int leave = terms->on_lost == RPS_ON_LOST_LEAVE;
    const json_t *recover = json_object_get(object, "recover");
    int local = terms->cut == RPS_CUT_LOCAL;
    rps_status status = read_mode(object, terms, error);

    if (status == RPS_OK) {
        status = read_choice(object, "combine", combines, &mean, error);
    }
    if (status == RPS_OK) {
        status = read_choice(object, "on_lost", losses, &leave, error);
    }
    if (status == RPS_OK) {
        status = read_choice(object, "cut", cuts, &local, error);
    }
    if (status == RPS_OK) {
        status = read_u32(object, "replicas", &terms->replica_count, error);
    }
    if (status == RPS_OK) {
        status = read_u32(
                object, "step_timeout_ms", &terms->step_timeout_ms, error);
    }
    if (status == RPS_OK) {
        status = read_u32(
                object, "backup_workers", &terms->backup_workers, error);
    }
    if (status == RPS_OK) {
        status = rps_json_u64(object, "step_bytes_max", UINT64_MAX,
                &terms->step_bytes_max, error);
    }
    terms->combine = mean != 0 ? RPS_COMBINE_MEAN : RPS_COMBINE_SUM;
    terms->on_lost = leave != 0 ? RPS_ON_LOST_LEAVE : RPS_ON_LOST_STOP;
    terms->cut = local != 0 ? RPS_CUT_LOCAL : RPS_CUT_JOB;
    if (status == RPS_OK && recover != NULL && !json_is_boolean(recover)) {
        return rps_fail(error, RPS_E_INVAL, "recover must be true or false");
    }
    terms->recover = recover != NULL ? json_is_true(recover) : terms->recover;
    return status;
}

rps_status
rps_terms_check(const rps_terms *terms, struct rps_error *error)
{
    if (terms->replica_count == 0) {
        return rps_fail(error, RPS_E_INVAL, "replicas is 0");
    }
    if (terms->backup_workers > 0 && terms->mode != RPS_MODE_SYNC) {
        return rps_fail(error, RPS_E_INVAL,
                "backup_workers is %" PRIu32 " in mode %s, where no step waits"
                " for all: it goes with sync",
                terms->backup_workers, rps_terms_mode(terms).text);
    }
    if (terms->backup_workers >= terms->replica_count) {
        return rps_fail(error, RPS_E_INVAL,
                "backup_workers is %" PRIu32 " of %" PRIu32 " replicas: one"
                " at least must be counted",
                terms->backup_workers, terms->replica_count);
    }
    return RPS_OK;
}
