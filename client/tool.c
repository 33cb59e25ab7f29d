/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators' tools ask: STAT, PING, the log's level, wishes, SHUTDOWN,
 * and the newest checkpoint that all servers have.
 */
#include "base/json.h"
#include "base/text.h"
#include "client/call.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static rps_status
ask(rps_client *client, uint32_t ps, uint16_t opcode, const char *text,
        char **json_out)
{
    RPS_TURN(client);
    struct rps_verb verb = {.opcode = opcode};
    struct rps_answer answer = {0};
    rps_status status = rps_client_enter(client);

    if (status == RPS_OK) {
        status = rps_client_one_alive(client, ps);
    }
    if (status == RPS_OK) {
        verb.bare = true; /* it works without the job's epoch */
        verb.timeout_ms = client->request_timeout_ms;
        status = rps_call_one(client, ps, &verb, text, &answer);
    }
    if (status == RPS_OK && json_out != NULL) {
        *json_out = answer.text != NULL ? answer.text : strdup("{}");
        answer.text = NULL;
        if (*json_out == NULL) {
            status = rps_client_nomem();
        }
    }
    rps_answer_finish(&answer);
    return status;
}

rps_status
rps_stat(rps_client *client, uint32_t ps, char **json_out)
{
    if (json_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "json_out is NULL");
    }
    *json_out = NULL;
    return ask(client, ps, RPS_OP_STAT, "{}", json_out);
}

rps_status
rps_stat_digests(rps_client *client, uint32_t ps, char **json_out)
{
    if (json_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "json_out is NULL");
    }
    *json_out = NULL;
    return ask(client, ps, RPS_OP_STAT, "{\"digests\":true}", json_out);
}

rps_status
rps_stat_times(rps_client *client, uint32_t ps, char **json_out)
{
    if (json_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "json_out is NULL");
    }
    *json_out = NULL;
    return ask(client, ps, RPS_OP_STAT, "{\"times\":true}", json_out);
}

rps_status
rps_server_log_level(
        rps_client *client, uint32_t ps, const char *level, char **json_out)
{
    char *text = NULL;
    rps_status status;

    if (json_out != NULL) {
        *json_out = NULL;
    }
    if (level != NULL) {
        text = rps_json_text(json_pack("{s:s}", "level", level));
        if (text == NULL) {
            return rps_client_fail(RPS_E_INVAL,
                    "level: debug, info, warn or error is allowed");
        }
    }
    status = ask(
            client, ps, RPS_OP_LOG_LEVEL, text != NULL ? text : "{}", json_out);
    free(text);
    return status;
}

rps_status
rps_ping(rps_client *client, uint32_t ps, char **json_out)
{
    if (json_out != NULL) {
        *json_out = NULL;
    }
    return ask(client, ps, RPS_OP_PING, NULL, json_out);
}

rps_status
rps_wish(rps_client *client, uint32_t wishes)
{
    rps_status status = RPS_OK;
    uint32_t known = RPS_WISH_SAVE | RPS_WISH_STOP;

    if (wishes == 0 || (wishes & ~known) != 0) {
        return rps_client_fail(RPS_E_INVAL,
                "wishes: 0x%x; RPS_WISH_SAVE and RPS_WISH_STOP are allowed",
                wishes);
    }
    if ((wishes & RPS_WISH_SAVE) != 0) {
        status = ask(client, 0, RPS_OP_SAVE, "{\"action\":\"wish\"}", NULL);
    }
    if (status == RPS_OK && (wishes & RPS_WISH_STOP) != 0) {
        status = ask(client, 0, RPS_OP_SHUTDOWN, "{\"action\":\"wish\"}", NULL);
    }
    return status;
}

rps_status
rps_shutdown(rps_client *client)
{
    RPS_TURN(client);
    rps_status status = rps_client_enter(client);
    struct rps_error first = {{0}};
    uint32_t ps;
    const char *text;

    if (status != RPS_OK) {
        return status;
    }
    text = client->embedded || client->cluster.is_chief
                   ? "{}"
                   : "{\"action\":\"now\"}";
    /* PS 0 first: if it refuses (a chief is connected), none has stopped */
    for (ps = 0; ps < client->channel_count; ps++) {
        rps_status one = ask(client, ps, RPS_OP_SHUTDOWN, text, NULL);

        if (one != RPS_OK && status == RPS_OK) {
            status = one;
            (void)rps_fail(&first, one, "%s", rps_client_words());
        }
        if (ps == 0 && one != RPS_OK && one != RPS_E_UNREACHABLE) {
            break;
        }
    }
    return status == RPS_OK ? RPS_OK : rps_client_fail_with(status, &first);
}

/* --- the newest common checkpoint ---------------------------------------- */

struct steps {
    uint64_t *at; /* owned [count] */
    size_t count;
};

/* A folder that does not count is passed over, but not in silence. */
static void
report_unusable(const rps_client *client, uint32_t ps, const json_t *object)
{
    const json_t *list = json_object_get(object, "checkpoints_unusable");
    size_t i;

    for (i = 0; client->report != NULL && i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const char *why = json_string_value(json_object_get(entry, "why"));
        char *line = rps_format("PS %u: the checkpoint of step %" PRIu64
                                " cannot be used: %s",
                ps,
                (uint64_t)json_integer_value(json_object_get(entry, "step")),
                why != NULL ? why : "no reason given");

        if (line != NULL) {
            client->report(client->report_context, line);
        }
        free(line);
    }
}

static rps_status
read_steps(const rps_client *client, uint32_t ps,
        const struct rps_answer *answer, struct steps *steps)
{
    json_t *object = NULL;
    const json_t *list;
    size_t i;
    rps_status status = rps_answer_object(client, ps, answer, &object);

    if (status != RPS_OK) {
        return status;
    }
    list = json_object_get(object, "checkpoints");
    steps->at = calloc(json_array_size(list) + 1, sizeof(*steps->at));
    for (i = 0; steps->at != NULL && i < json_array_size(list); i++) {
        json_int_t step = json_integer_value(json_array_get(list, i));

        if (step > 0) {
            steps->at[steps->count++] = (uint64_t)step;
        }
    }
    if (steps->at == NULL) {
        status = rps_client_nomem();
    }
    report_unusable(client, ps, object);
    json_decref(object);
    return status;
}

static bool
holds(const struct steps *steps, uint64_t step)
{
    size_t i = 0;

    while (i < steps->count && steps->at[i] != step) {
        i++;
    }
    return i < steps->count;
}

/* Largest step of the first list that every list has. */
static uint64_t
newest_common(const struct steps *lists, uint32_t count)
{
    uint64_t newest = 0;
    size_t i;

    for (i = 0; i < lists[0].count; i++) {
        uint64_t step = lists[0].at[i];
        uint32_t ps = 1;

        while (ps < count && holds(&lists[ps], step)) {
            ps++;
        }
        if (ps == count && step > newest) {
            newest = step;
        }
    }
    return newest;
}

rps_status
rps_newest_checkpoint(rps_client *client, uint64_t *step_out)
{
    RPS_TURN(client);
    struct rps_verb verb = {.opcode = RPS_OP_STAT, .bare = true};
    struct rps_answer *answers = NULL;
    struct steps *lists = NULL;
    rps_status status = rps_client_enter(client);
    uint32_t ps;

    if (step_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "step_out is NULL");
    }
    *step_out = 0;
    if (status == RPS_OK) {
        status = rps_client_all_alive(client);
    }
    if (status != RPS_OK) {
        return status;
    }
    verb.timeout_ms = client->request_timeout_ms;
    answers = rps_answers_create(client);
    lists = calloc(client->channel_count, sizeof(*lists));
    status = answers != NULL && lists != NULL
                     ? rps_call_all(client, &verb, "{}", answers)
                     : rps_client_nomem();
    for (ps = 0; status == RPS_OK && ps < client->channel_count; ps++) {
        status = read_steps(client, ps, &answers[ps], &lists[ps]);
    }
    if (status == RPS_OK) {
        *step_out = newest_common(lists, client->channel_count);
    }
    for (ps = 0; lists != NULL && ps < client->channel_count; ps++) {
        free(lists[ps].at);
    }
    free(lists);
    rps_answers_destroy(client, answers);
    return status;
}
