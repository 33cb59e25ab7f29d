/* SPDX-License-Identifier: Apache-2.0 */
#include "client/call.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

static rps_status
build(rps_client *client, struct rps_outbox *outbox, uint32_t ps,
        const struct rps_verb *verb, const char *text,
        struct rps_answer *answer)
{
    struct rps_request request = {
            .ps = ps,
            .opcode = verb->opcode,
            .step = verb->step,
            .sections = text != NULL ? 1 : 0,
            .numbered = verb->numbered,
            .bare = verb->bare,
    };
    struct rps_builder builder;
    struct rps_exchange *exchange =
            rps_exchange_begin(client, outbox, &builder, &request);
    rps_status status;

    if (exchange == NULL) {
        return rps_client_nomem();
    }
    exchange->answer = answer;
    exchange->take = rps_take_text;
    if (text != NULL) {
        rps_builder_add_text(&builder, text, strlen(text));
    }
    status = rps_exchange_end(exchange, &builder);
    return status == RPS_OK
                   ? RPS_OK
                   : rps_client_fail(status, "%s: the text is %s",
                             rps_opcode_str(verb->opcode),
                             status == RPS_E_LIMIT ? "larger than a frame"
                                                   : "too large for memory");
}

/* answers[end - first] or NULL. On failure the ticket is gone. */
static rps_status
begin(rps_client *client, struct rps_ticket_state *ticket, uint32_t first,
        uint32_t end, const struct rps_verb *verb, const char *text,
        struct rps_answer *answers)
{
    struct rps_outbox outbox;
    rps_status status = ticket != NULL ? RPS_OK : rps_client_nomem();
    uint32_t ps;

    rps_outbox_init(&outbox);
    for (ps = first; status == RPS_OK && ps < end; ps++) {
        status = build(client, &outbox, ps, verb, text,
                answers != NULL ? &answers[ps - first] : NULL);
    }
    if (status != RPS_OK) {
        rps_outbox_abort(client, &outbox);
        rps_ticket_destroy(ticket);
        return status;
    }
    ticket->tell = verb->tell;
    rps_outbox_send(client, &outbox, ticket);
    return RPS_OK;
}

/* The ticket is this call's to give away. */
static rps_status
ask(rps_client *client, struct rps_ticket_state *ticket, uint32_t first,
        uint32_t end, const struct rps_verb *verb, const char *text,
        struct rps_answer *answers)
{
    const rps_status status =
            begin(client, ticket, first, end, verb, text, answers);

    return status == RPS_OK ? rps_ticket_settle(ticket, verb->timeout_ms)
                            : status;
}

struct rps_ticket_state *
rps_call_begin(rps_client *client, uint32_t first, uint32_t end,
        const struct rps_verb *verb, const char *text,
        struct rps_answer *answers, bool narrow)
{
    struct rps_ticket_state *ticket = rps_ticket_create(client);

    if (ticket != NULL) {
        ticket->narrow = narrow;
    }
    return begin(client, ticket, first, end, verb, text,
                   answers != NULL ? &answers[first] : NULL) == RPS_OK
                   ? ticket
                   : NULL;
}

rps_status
rps_call_range(rps_client *client, uint32_t first, uint32_t end,
        const struct rps_verb *verb, const char *text,
        struct rps_answer *answers)
{
    return ask(client, rps_ticket_create(client), first, end, verb, text,
            answers != NULL ? &answers[first] : NULL);
}

rps_status
rps_call_all(rps_client *client, const struct rps_verb *verb, const char *text,
        struct rps_answer *answers)
{
    return rps_call_range(
            client, 0, client->channel_count, verb, text, answers);
}

rps_status
rps_call_one(rps_client *client, uint32_t ps, const struct rps_verb *verb,
        const char *text, struct rps_answer *answer)
{
    struct rps_ticket_state *ticket = rps_ticket_create(client);

    if (ticket != NULL) {
        ticket->narrow = true;
    }
    return ask(client, ticket, ps, ps + 1, verb, text, answer);
}

rps_status
rps_check_table_name(const char *table)
{
    static const char legal[] = "0123456789_."
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "abcdefghijklmnopqrstuvwxyz";
    const size_t length = table != NULL ? strlen(table) : 0;

    if (length == 0 || length > RPS_NAME_BYTES_MAX ||
            strspn(table, legal) != length) {
        return rps_client_fail(RPS_E_INVAL,
                "table: %s, must be the name of a table: 1 to %u of "
                "[0-9A-Za-z_.]",
                table == NULL ? "NULL" : "no such name can be",
                RPS_NAME_BYTES_MAX);
    }
    return RPS_OK;
}

struct rps_answer *
rps_answers_create(const rps_client *client)
{
    return calloc(client->channel_count, sizeof(struct rps_answer));
}

void
rps_answers_destroy(const rps_client *client, struct rps_answer *answers)
{
    uint32_t ps;

    for (ps = 0; answers != NULL && ps < client->channel_count; ps++) {
        rps_answer_finish(&answers[ps]);
    }
    free(answers);
}

rps_status
rps_answer_object(const rps_client *client, uint32_t ps,
        const struct rps_answer *answer, json_t **object_out)
{
    json_error_t where;
    json_t *object =
            answer->text != NULL
                    ? json_loads(answer->text, JSON_REJECT_DUPLICATES, &where)
                    : NULL;

    if (!json_is_object(object)) {
        json_decref(object);
        *object_out = NULL;
        return rps_client_fail(RPS_E_CORRUPT,
                "PS %u (%s): its answer is no JSON object", ps,
                client->channels[ps]->address);
    }
    *object_out = object;
    return RPS_OK;
}

bool
rps_answer_u64(const json_t *object, const char *name, uint64_t *out)
{
    return rps_json_whole(json_object_get(object, name), out);
}
