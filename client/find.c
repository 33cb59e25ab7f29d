/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handle of a table that exists, by name: what the servers say of it is
 * read (STAT), and nothing is made anywhere.
 */
#include "base/spec.h"
#include "client/call.h"

#include <string.h>

/* A server of checkpoints (recpsd --serve) has none before the first one. */
static rps_status
fail_not_found(uint32_t ps, const json_t *stat, const char *name)
{
    const json_t *serving = json_object_get(stat, "serving");
    const char *dir = json_string_value(json_object_get(serving, "dir"));

    if (dir == NULL) {
        return rps_client_fail(
                RPS_E_NOT_FOUND, "there is no table %s at PS %u", name, ps);
    }
    if (json_is_false(json_object_get(serving, "holds"))) {
        return rps_client_fail(RPS_E_RETRY_LATER,
                "table %s: PS %u serves %.512s, which has no complete "
                "checkpoint yet",
                name, ps, dir);
    }
    return rps_client_fail(RPS_E_NOT_FOUND,
            "there is no table %s in the checkpoint of %.512s that PS %u "
            "serves",
            name, dir, ps);
}

/* The spec that this PS has of the table; NOT_FOUND where it has none. */
static rps_status
read_spec(const rps_client *client, uint32_t ps,
        const struct rps_answer *answer, const char *name, rps_table_spec *spec)
{
    struct rps_error why = {{0}};
    json_t *object = NULL;
    const json_t *table;
    size_t i;
    rps_status status = rps_answer_object(client, ps, answer, &object);

    if (status != RPS_OK) {
        return status;
    }
    status = fail_not_found(ps, object, name);
    json_array_foreach(json_object_get(object, "tables"), i, table)
    {
        const char *other = json_string_value(json_object_get(table, "name"));

        if (other == NULL || strcmp(other, name) != 0) {
            continue;
        }
        status =
                rps_spec_from_value(json_object_get(table, "spec"), spec, &why);
        if (status != RPS_OK) {
            status = rps_client_fail(RPS_E_CORRUPT,
                    "PS %u: what it says of table %s: %s", ps, name, why.text);
        }
    }
    json_decref(object);
    return status;
}

static rps_status
read_specs(const rps_client *client, const struct rps_answer *answers,
        const char *name, rps_table_spec *spec)
{
    rps_table_spec other;
    const char *field = NULL;
    rps_status status = read_spec(client, 0, &answers[0], name, spec);
    uint32_t ps;

    for (ps = 1; status == RPS_OK && ps < client->channel_count; ps++) {
        status = read_spec(client, ps, &answers[ps], name, &other);
        if (status == RPS_OK) {
            field = rps_spec_identity_differs(spec, &other);
        }
        if (field != NULL) {
            return rps_client_fail(RPS_E_MISMATCH,
                    "table %s: PS 0 and PS %u differ in its %s", name, ps,
                    field);
        }
    }
    return status;
}

static rps_status
find(rps_client *client, const char *name, rps_embedding_table **table_out)
{
    struct rps_verb verb = {.opcode = RPS_OP_STAT,
            .bare = true,
            .timeout_ms = client->request_timeout_ms};
    struct rps_answer *answers = rps_answers_create(client);
    rps_table_spec spec;
    rps_status status = answers != NULL
                                ? rps_call_all(client, &verb, "{}", answers)
                                : rps_client_nomem();

    if (status == RPS_OK) {
        status = read_specs(client, answers, name, &spec);
    }
    rps_answers_destroy(client, answers);
    return status == RPS_OK ? rps_client_take_table(client, &spec, table_out)
                            : status;
}

rps_status
rps_find_embedding_table(
        rps_client *client, const char *name, rps_embedding_table **table_out)
{
    RPS_TURN(client);
    rps_status status = rps_client_enter(client);

    if (table_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "table_out is NULL");
    }
    *table_out = NULL;
    if (status == RPS_OK) {
        status = rps_check_table_name(name);
    }
    if (status == RPS_OK) {
        status = rps_client_all_alive(client);
    }
    return status == RPS_OK ? find(client, name, table_out) : status;
}
