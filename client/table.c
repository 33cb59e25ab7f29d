/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles of tables: opened on every PS, one handle a name.
 */
#include "base/hash.h"
#include "base/spec.h"
#include "base/text.h"
#include "client/call.h"

#include <stdlib.h>
#include <string.h>

rps_embedding_table *
rps_client_find_table(const rps_client *client, uint64_t id)
{
    rps_embedding_table *table = client->tables;

    while (table != NULL && (table->id != id || table->retired)) {
        table = table->next;
    }
    return table;
}

rps_status
rps_client_take_table(rps_client *client, const rps_table_spec *spec,
        rps_embedding_table **table_out)
{
    const uint64_t id = rps_table_id(spec->name);
    rps_embedding_table *table = rps_client_find_table(client, id);

    if (table != NULL && rps_spec_identity_differs(&table->spec, spec)) {
        /* dropped by somebody and made anew: tickets of the old one still
         * have its dimension */
        table->retired = true;
        table = NULL;
    }
    if (table == NULL) {
        table = calloc(1, sizeof(*table));
        if (table == NULL) {
            return rps_client_nomem();
        }
        table->client = client;
        table->id = id;
        table->next = client->tables;
        client->tables = table;
    }
    table->spec = *spec;
    *table_out = table;
    return RPS_OK;
}

const rps_table_spec *
rps_embedding_table_spec(const rps_embedding_table *table)
{
    return table != NULL ? &table->spec : NULL;
}

/* Ids are hashes of names: every PS must know the table by the same one. */
static rps_status
check_answer(const rps_client *client, uint32_t ps,
        const struct rps_answer *answer, uint64_t id)
{
    json_t *object = NULL;
    uint64_t theirs = 0;
    const char *hex;
    rps_status status = rps_answer_object(client, ps, answer, &object);

    if (status != RPS_OK) {
        return status;
    }
    hex = json_string_value(json_object_get(object, "table_id"));
    if (hex == NULL || !rps_parse_hex64(hex, &theirs) || theirs != id) {
        status = rps_client_fail(RPS_E_CORRUPT,
                "PS %u (%s): answers table id %.32s, must be %016llx", ps,
                client->channels[ps]->address, hex != NULL ? hex : "(none)",
                (unsigned long long)id);
    }
    json_decref(object);
    return status;
}

static rps_status
open_everywhere(rps_client *client, const rps_table_spec *spec, uint64_t id)
{
    struct rps_verb verb = {
            .opcode = RPS_OP_GET_EMBEDDING_TABLE,
            .numbered = true,
            .timeout_ms = client->request_timeout_ms,
    };
    struct rps_answer *answers = rps_answers_create(client);
    char *text = rps_spec_to_json(spec);
    rps_status status = RPS_OK;
    uint32_t ps;

    if (answers == NULL || text == NULL) {
        status = rps_client_nomem();
    } else {
        status = rps_call_all(client, &verb, text, answers);
    }
    for (ps = 0; status == RPS_OK && ps < client->channel_count; ps++) {
        status = check_answer(client, ps, &answers[ps], id);
    }
    free(text);
    rps_answers_destroy(client, answers);
    return status;
}

static rps_status
check_get(const rps_client *client, const rps_table_spec *spec)
{
    char why[512];
    rps_status status = rps_client_enter(client);

    if (status == RPS_OK && spec == NULL) {
        status = rps_client_fail(RPS_E_INVAL, "spec is NULL");
    }
    if (status == RPS_OK) {
        status = rps_table_spec_check(spec, why, sizeof(why));
        if (status != RPS_OK) {
            return rps_client_fail(status, "%s", why);
        }
        status = rps_client_all_whole(client);
    }
    return status;
}

rps_status
rps_get_embedding_table(rps_client *client, const rps_table_spec *spec,
        rps_embedding_table **table_out)
{
    RPS_TURN(client);
    rps_embedding_table *table;
    rps_status status = check_get(client, spec);
    uint64_t id;

    if (table_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "table_out is NULL");
    }
    *table_out = NULL;
    if (status != RPS_OK) {
        return status;
    }
    id = rps_table_id(spec->name);
    table = rps_client_find_table(client, id);
    if (table != NULL && strcmp(table->spec.name, spec->name) != 0) {
        return rps_client_fail(RPS_E_MISMATCH,
                "table %s: its id is table %s's; choose another name",
                spec->name, table->spec.name);
    }
    status = open_everywhere(client, spec, id);
    if (status != RPS_OK) {
        return status;
    }
    return rps_client_take_table(client, spec, table_out);
}
