/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of a table as a whole, by name, at every PS: ALTER_TABLE,
 * EVICT, DROP, HOT_KEYS. A part that failed is told with the parts that did
 * not.
 */
#include "base/hash.h"
#include "base/json.h"
#include "base/spec.h"
#include "base/text.h"
#include "client/call.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- common -------------------------------------------------------------- */

static rps_status
check_name(const rps_client *client, const char *table)
{
    rps_status status = rps_client_enter(client);

    if (status == RPS_OK) {
        status = rps_check_table_name(table);
    }
    return status == RPS_OK ? rps_client_all_whole(client) : status;
}

/* "; done at PS 0, 2; not known of PS 1": nothing if none has done it. */
static void
add_outcomes(const rps_client *client, const struct rps_answer *answers,
        struct rps_text *text)
{
    static const char *const groups[] = {"done at", "not known of"};
    const rps_status wanted[] = {RPS_OK, RPS_E_TIMEOUT};

    for (size_t group = 0; group < 2; group++) {
        bool first = true;

        for (uint32_t ps = 0; ps < client->channel_count; ps++) {
            if (answers[ps].status == wanted[group]) {
                rps_text_add(text, first ? "; %s PS %" PRIu32 : "%s%" PRIu32,
                        first ? groups[group] : ", ", ps);
                first = false;
            }
        }
    }
}

static bool
any_done(const rps_client *client, const struct rps_answer *answers)
{
    uint32_t ps = 0;

    while (ps < client->channel_count && answers[ps].status != RPS_OK) {
        ps++;
    }
    return ps < client->channel_count;
}

static rps_status
fail_partly(const rps_client *client, const struct rps_answer *answers,
        rps_status status)
{
    struct rps_text text = {0};
    char *words = strdup(rps_client_words());

    if (words != NULL && any_done(client, answers)) {
        rps_text_add(&text, "%s", words);
        add_outcomes(client, answers, &text);
        rps_text_add(&text, ": the servers differ until all have done it");
        if (!text.failed) {
            (void)rps_client_fail(status, "%s", text.bytes);
        }
    }
    free(words);
    rps_text_finish(&text);
    return status;
}

/* The same text to every PS. *answers_out[channel_count] is the caller's. */
static rps_status
ask_all(rps_client *client, const struct rps_verb *verb, json_t *object,
        struct rps_answer **answers_out)
{
    struct rps_answer *answers = rps_answers_create(client);
    char *text = rps_json_text(object);
    rps_status status;

    *answers_out = answers;
    if (answers == NULL || text == NULL) {
        free(text);
        return rps_client_nomem();
    }
    for (uint32_t ps = 0; ps < client->channel_count; ps++) {
        answers[ps].status = RPS_E_TIMEOUT; /* nothing is known of it yet */
    }
    status = rps_call_all(client, verb, text, answers);
    free(text);
    return status == RPS_OK ? status : fail_partly(client, answers, status);
}

static rps_status
malformed(const rps_client *client, uint32_t ps, const char *what)
{
    return rps_client_fail(RPS_E_CORRUPT, "PS %u (%s): its answer has no %s",
            ps, client->channels[ps]->address, what);
}

/* --- ALTER_TABLE --------------------------------------------------------- */

static rps_status
read_fields(const char *table, const char *fields_json, json_t **out)
{
    json_error_t why;

    *out = fields_json != NULL
                   ? json_loads(fields_json, JSON_REJECT_DUPLICATES, &why)
                   : NULL;
    if (json_is_object(*out)) {
        return RPS_OK;
    }
    json_decref(*out);
    *out = NULL;
    return rps_client_fail(RPS_E_INVAL,
            "table %s: the fields to change must be a JSON object, such as "
            "{\"learning_rate\":0.01}",
            table);
}

/* What the servers have now; they must agree. */
static rps_status
take_spec(
        rps_client *client, const char *name, const struct rps_answer *answers)
{
    rps_embedding_table *table =
            rps_client_find_table(client, rps_table_id(name));
    json_t *first = NULL;
    rps_status status = RPS_OK;

    for (uint32_t ps = 0; status == RPS_OK && ps < client->channel_count;
            ps++) {
        struct rps_error error = {{0}};
        json_t *object = NULL;
        rps_table_spec spec;

        status = rps_answer_object(client, ps, &answers[ps], &object);
        if (status == RPS_OK &&
                rps_spec_from_value(json_object_get(object, "spec"), &spec,
                        &error) != RPS_OK) {
            status = malformed(client, ps, "legal spec");
        }
        if (status == RPS_OK && first != NULL &&
                !json_equal(first, json_object_get(object, "spec"))) {
            status = rps_client_fail(RPS_E_MISMATCH,
                    "table %s: PS %u and PS 0 have different specs: another "
                    "field was altered at one of them alone",
                    name, ps);
        }
        if (status == RPS_OK && first == NULL) {
            first = json_incref(json_object_get(object, "spec"));
        }
        if (status == RPS_OK && table != NULL) {
            table->spec = spec;
        }
        json_decref(object);
    }
    json_decref(first);
    return status;
}

static bool
any_repeated(const rps_client *client, const struct rps_answer *answers)
{
    bool any = false;

    for (uint32_t ps = 0; ps < client->channel_count; ps++) {
        any = any || answers[ps].repeated;
    }
    return any;
}

/* A verdict that was kept over a cut connection has no spec with it; the same
 * change once more changes nothing and has. */
static rps_status
alter(rps_client *client, const char *table, json_t *fields)
{
    const struct rps_verb verb = {.opcode = RPS_OP_ALTER_TABLE,
            .numbered = true,
            .timeout_ms = client->request_timeout_ms};
    struct rps_answer *answers = NULL;
    rps_status status;
    bool again;

    do {
        rps_answers_destroy(client, answers);
        status = ask_all(client, &verb,
                json_pack("{s:s, s:O}", "table", table, "set", fields),
                &answers);
        again = status == RPS_OK && any_repeated(client, answers);
    } while (again);
    if (status == RPS_OK) {
        status = take_spec(client, table, answers);
    }
    rps_answers_destroy(client, answers);
    return status;
}

rps_status
rps_alter_table(rps_client *client, const char *table, const char *fields_json)
{
    RPS_TURN(client);
    json_t *fields = NULL;
    rps_status status = check_name(client, table);

    if (status == RPS_OK) {
        status = read_fields(table, fields_json, &fields);
    }
    if (status == RPS_OK) {
        status = alter(client, table, fields);
    }
    json_decref(fields);
    return status;
}

/* --- EVICT --------------------------------------------------------------- */

static bool
add_figures(const json_t *object, rps_eviction *sum)
{
    rps_eviction one;

    if (!rps_answer_u64(object, "examined", &one.examined) ||
            !rps_answer_u64(object, "cold", &one.cold) ||
            !rps_answer_u64(object, "full", &one.full) ||
            !rps_answer_u64(object, "bytes_before", &one.bytes_before) ||
            !rps_answer_u64(object, "bytes_after", &one.bytes_after)) {
        return false;
    }
    sum->examined += one.examined;
    sum->cold += one.cold;
    sum->full += one.full;
    sum->bytes_before += one.bytes_before;
    sum->bytes_after += one.bytes_after;
    return true;
}

static rps_status
take_eviction(const rps_client *client, uint32_t ps,
        const struct rps_answer *answer, rps_eviction *out)
{
    json_t *object = NULL;
    json_t *entry;
    size_t i;
    rps_status status = rps_answer_object(client, ps, answer, &object);

    if (status != RPS_OK) {
        return status;
    }
    if (!json_is_array(json_object_get(object, "tables"))) {
        status = malformed(client, ps, "list of tables");
    }
    json_array_foreach(json_object_get(object, "tables"), i, entry)
    {
        if (status == RPS_OK && !add_figures(entry, out)) {
            status = malformed(client, ps, "whole report of an eviction");
        }
    }
    json_decref(object);
    return status;
}

rps_status
rps_evict_rows(rps_client *client, const char *table, rps_eviction *sum_out,
        rps_eviction *each_out)
{
    RPS_TURN(client);
    struct rps_answer *answers = NULL;
    rps_eviction sum = {0};
    rps_status status = check_name(client, table != NULL ? table : "all");

    if (status == RPS_OK) {
        /* a pass takes as long as it takes: no limit */
        const struct rps_verb verb = {.opcode = RPS_OP_EVICT};

        status = ask_all(client, &verb,
                table != NULL ? json_pack("{s:s}", "table", table)
                              : json_object(),
                &answers);
        for (uint32_t ps = 0; status == RPS_OK && ps < client->channel_count;
                ps++) {
            rps_eviction one = {0};

            status = take_eviction(client, ps, &answers[ps], &one);
            if (each_out != NULL) {
                each_out[ps] = one;
            }
            sum.examined += one.examined;
            sum.cold += one.cold;
            sum.full += one.full;
            sum.bytes_before += one.bytes_before;
            sum.bytes_after += one.bytes_after;
        }
        rps_answers_destroy(client, answers);
    }
    if (sum_out != NULL) {
        *sum_out = sum;
    }
    return status;
}

/* --- DROP ---------------------------------------------------------------- */

rps_status
rps_drop_table(rps_client *client, const char *table, uint64_t *rows_out)
{
    RPS_TURN(client);
    struct rps_answer *answers = NULL;
    rps_embedding_table *handle;
    uint64_t rows = 0;
    rps_status status = check_name(client, table);

    if (status == RPS_OK) {
        const struct rps_verb verb = {.opcode = RPS_OP_DROP,
                .numbered = true,
                .timeout_ms = client->request_timeout_ms};

        status = ask_all(
                client, &verb, json_pack("{s:s}", "table", table), &answers);
        for (uint32_t ps = 0; status == RPS_OK && ps < client->channel_count;
                ps++) {
            json_t *object = NULL;
            uint64_t part = 0;

            if (answers[ps].repeated) {
                continue; /* its rows are gone; how many is not kept */
            }
            status = rps_answer_object(client, ps, &answers[ps], &object);
            if (status == RPS_OK && !rps_answer_u64(object, "rows", &part)) {
                status = malformed(client, ps, "number of rows");
            }
            rows += part;
            json_decref(object);
        }
        rps_answers_destroy(client, answers);
    }
    if (status == RPS_OK) {
        handle = rps_client_find_table(client, rps_table_id(table));
        if (handle != NULL) {
            handle->retired = true;
        }
    }
    if (rows_out != NULL) {
        *rows_out = rows;
    }
    return status;
}

/* --- HOT_KEYS ------------------------------------------------------------ */

struct ranking {
    rps_hot *keys; /* owned [count] */
    size_t count;
};

static bool
read_whole(const json_t *list, size_t index, uint64_t *out)
{
    return rps_json_whole(json_array_get(list, index), out);
}

static rps_status
take_hot(const rps_client *client, uint32_t ps, const struct rps_answer *answer,
        struct ranking *ranking)
{
    json_t *object = NULL;
    json_t *entry;
    const json_t *list;
    rps_hot *grown;
    size_t i;
    rps_status status = rps_answer_object(client, ps, answer, &object);

    if (status != RPS_OK) {
        return status;
    }
    list = json_object_get(object, "keys");
    grown = realloc(ranking->keys,
            (ranking->count + json_array_size(list) + 1) * sizeof(*grown));
    if (grown == NULL) {
        json_decref(object);
        return rps_client_nomem();
    }
    ranking->keys = grown;
    json_array_foreach(list, i, entry)
    {
        rps_hot *hot = &grown[ranking->count];

        if (!read_whole(entry, 0, &hot->key) ||
                !read_whole(entry, 1, &hot->count) ||
                !read_whole(entry, 2, &hot->error)) {
            status = malformed(client, ps, "whole list of hot keys");
            break;
        }
        ranking->count++;
    }
    json_decref(object);
    return status;
}

/* Most first; of the same count the smaller key: the order is one. */
static int
hotter(const void *a, const void *b)
{
    const rps_hot *left = a;
    const rps_hot *right = b;

    if (left->count != right->count) {
        return left->count > right->count ? -1 : 1;
    }
    return left->key < right->key ? -1 : left->key > right->key;
}

rps_status
rps_hot_keys(rps_client *client, const char *table, size_t max, rps_hot *keys,
        size_t *count_out)
{
    RPS_TURN(client);
    struct rps_answer *answers = NULL;
    struct ranking ranking = {0};
    rps_status status = check_name(client, table);

    if (count_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "count_out is NULL");
    }
    *count_out = 0;
    if (status == RPS_OK && max > 0 && keys == NULL) {
        status = rps_client_fail(RPS_E_INVAL, "keys is NULL");
    }
    if (status == RPS_OK) {
        const struct rps_verb verb = {.opcode = RPS_OP_HOT_KEYS,
                .timeout_ms = client->request_timeout_ms};
        const size_t most = max < RPS_HOT_MAX ? max : RPS_HOT_MAX;

        status = ask_all(client, &verb,
                json_pack(
                        "{s:s, s:I}", "table", table, "max", (json_int_t)most),
                &answers);
        for (uint32_t ps = 0; status == RPS_OK && ps < client->channel_count;
                ps++) {
            status = take_hot(client, ps, &answers[ps], &ranking);
        }
        rps_answers_destroy(client, answers);
        max = most;
    }
    if (status == RPS_OK && ranking.count > 0) {
        qsort(ranking.keys, ranking.count, sizeof(*ranking.keys), hotter);
        *count_out = ranking.count < max ? ranking.count : max;
        memcpy(keys, ranking.keys, *count_out * sizeof(*keys));
    }
    free(ranking.keys);
    return status;
}
