/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job's life as a replica sees it: join, the end of a step, and the decision
 * that goes from PS 0 to every PS through the client. How a chief begins it is
 * in job_begin.c.
 */
#include "base/json.h"
#include "base/terms.h"
#include "client/call.h"
#include "client/job_impl.h"
#include "client/watch.h"

#include <recps/alike.h>
#include <recps/recover.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TELL_TIMEOUT_MS 1000u /* of a question for a line of a wait */

rps_status
rps_job_check_member(const rps_client *client, bool chief)
{
    rps_status status = rps_client_enter(client);

    if (status == RPS_OK && !client->member) {
        status = rps_client_fail(RPS_E_INVAL,
                "role %s has no rank in the job's steps",
                rps_role_str(client->cluster.role));
    }
    if (status == RPS_OK && chief && !client->embedded &&
            !client->cluster.is_chief) {
        status = rps_client_fail(RPS_E_INVAL,
                "only the chief may do this; this is %s %u",
                rps_role_str(client->cluster.role), client->cluster.index);
    }
    return status == RPS_OK ? rps_client_all_alive(client) : status;
}

/* --- terms and starts as JSON -------------------------------------------- */

rps_status
rps_job_malformed(const rps_client *client, uint32_t ps, const char *field)
{
    return rps_client_fail(RPS_E_CORRUPT,
            "PS %u (%s): its answer has no legal \"%s\"", ps,
            client->channels[ps]->address, field);
}

rps_status
rps_job_read_position(const json_t *object, char **out)
{
    const json_t *value = json_object_get(object, "data_position");

    *out = NULL;
    if (value == NULL || json_is_null(value)) {
        return RPS_OK;
    }
    *out = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    return *out != NULL ? RPS_OK : rps_client_nomem();
}

/* An older server answers without what was added since. */
static rps_status
read_terms(const rps_client *client, const json_t *object, rps_terms *terms)
{
    static const char *const fields[] = {
            "mode", "combine", "replicas", "step_timeout_ms", "step_bytes_max"};
    struct rps_error error = {{0}};
    rps_status status = RPS_OK;

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (json_object_get(object, fields[i]) == NULL) {
            return rps_job_malformed(client, 0, fields[i]);
        }
    }
    status = rps_terms_read(object, terms, &error);
    if (status == RPS_OK && terms->replica_count > RPS_REPLICAS_MAX) {
        status = rps_fail(&error, RPS_E_INVAL, "replicas is %" PRIu32,
                terms->replica_count);
    }
    if (status == RPS_OK) {
        status = rps_terms_check(terms, &error);
    }
    return status == RPS_OK
                   ? RPS_OK
                   : rps_client_fail(RPS_E_CORRUPT, "PS 0 (%s): its answer: %s",
                             client->channels[0]->address, error.text);
}

/* For people: what is no plain text becomes '?'. */
void
rps_job_copy_reason(char reason[RPS_REASON_BYTES], const char *text)
{
    size_t length = 0;

    for (; text[length] != '\0' && length + 1 < RPS_REASON_BYTES; length++) {
        const unsigned char c = (unsigned char)text[length];

        reason[length] = c < 0x20 || c >= 0x7f ? '?' : (char)c;
    }
    reason[length] = '\0';
}

static void
take_reason(const json_t *object, rps_start *start)
{
    const char *text = json_string_value(json_object_get(object, "reason"));

    rps_job_copy_reason(start->reason, text != NULL ? text : "");
}

/* The answer of STEP_END(0). */
static rps_status
read_start(const rps_client *client, const json_t *object, rps_start *start)
{
    uint64_t epoch;
    rps_status status;

    if (!rps_answer_u64(object, "epoch", &epoch) || epoch > UINT32_MAX) {
        return rps_job_malformed(client, 0, "epoch");
    }
    if (!rps_answer_u64(object, "step", &start->step)) {
        return rps_job_malformed(client, 0, "step");
    }
    start->epoch = (uint32_t)epoch;
    take_reason(object, start);
    status = read_terms(client, object, &start->terms);
    return status == RPS_OK
                   ? rps_job_read_position(object, &start->data_position)
                   : status;
}

/* --- the end of a step --------------------------------------------------- */

static json_t *
wish_names(uint32_t wishes)
{
    json_t *names = json_array();

    if ((wishes & RPS_WISH_SAVE) != 0) {
        (void)json_array_append_new(names, json_string("save"));
    }
    if ((wishes & RPS_WISH_STOP) != 0) {
        (void)json_array_append_new(names, json_string("stop"));
    }
    if ((wishes & RPS_WISH_LEAVE) != 0) {
        (void)json_array_append_new(names, json_string("leave"));
    }
    return names;
}

static char *
step_end_text(
        const rps_client *client, uint64_t step, double loss, uint32_t wishes)
{
    json_t *alike = step == 0 && client->alike != NULL
                            ? json_loads(client->alike, 0, NULL)
                            : NULL;

    /* jansson writes 17 digits: the loss arrives bit for bit */
    return rps_json_text(json_pack("{s:I, s:o, s:o, s:o*}", "rank",
            (json_int_t)client->rank, "loss", rps_json_real(loss), "wishes",
            wish_names(wishes), "alike", alike));
}

/* Of a job that has not started: who has not come. */
static void
tell_missing(rps_client *client, struct rps_text *line)
{
    struct rps_verb verb = {
            .opcode = RPS_OP_STAT, .bare = true, .timeout_ms = TELL_TIMEOUT_MS};
    struct rps_answer answer = {0};
    json_t *stat = NULL;
    const json_t *member;
    const char *before = "; not here:";
    size_t i;

    if (rps_call_one(client, 0, &verb, "{}", &answer) == RPS_OK &&
            rps_answer_object(client, 0, &answer, &stat) == RPS_OK) {
        json_array_foreach(json_object_get(stat, "members"), i, member)
        {
            if (json_is_false(json_object_get(member, "joined"))) {
                rps_text_add(line, "%s rank %zu", before, i);
                before = ",";
            }
        }
    }
    json_decref(stat);
    rps_answer_finish(&answer);
}

/* Answered by PS 0 when the mode allows it: no limit of ours. */
static rps_status
step_end(rps_client *client, uint64_t step, double loss, uint32_t wishes,
        struct rps_answer *answer)
{
    struct rps_verb verb = {.opcode = RPS_OP_STEP_END,
            .step = step,
            .tell = step == 0 ? tell_missing : NULL};
    char *text = step_end_text(client, step, loss, wishes);
    rps_status status;

    if (text == NULL) {
        return rps_client_nomem();
    }
    /* a range of one: the loss of any other PS ends this wait, too */
    status = rps_call_range(client, 0, 1, &verb, text, answer);
    free(text);
    return status;
}

rps_status
rps_job_alike(rps_client *client, const char *fields)
{
    RPS_TURN(client);
    rps_status status = rps_client_enter(client);
    json_t *object = NULL;
    char *text = NULL;

    if (status != RPS_OK) {
        return status;
    }
    object = fields != NULL ? json_loads(fields, JSON_REJECT_DUPLICATES, NULL)
                            : NULL;
    if (fields != NULL && !json_is_object(object)) {
        json_decref(object);
        return rps_client_fail(
                RPS_E_INVAL, "fields: must be a JSON object of strings");
    }
    text = object != NULL ? rps_json_text(object) : NULL;
    if (object != NULL && text == NULL) {
        return rps_client_nomem();
    }
    free(client->alike);
    client->alike = text;
    return RPS_OK;
}

rps_status
rps_job_join(rps_client *client, rps_start *start_out)
{
    RPS_TURN(client);
    struct rps_answer answer = {0};
    rps_start start = {0};
    json_t *object = NULL;
    rps_status status;

    if (start_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "start_out is NULL");
    }
    *start_out = (rps_start){0};
    status = rps_job_check_member(client, false);
    if (status != RPS_OK) {
        return status;
    }
    /* a decision of an earlier epoch is void */
    rps_client_set_epoch(client, client->channels[0]->epoch);
    client->in_job = false; /* it waits for one */
    status = step_end(client, 0, NAN, 0, &answer);
    if (status == RPS_OK) {
        status = rps_answer_object(client, 0, &answer, &object);
    }
    if (status == RPS_OK) {
        status = read_start(client, object, &start);
    }
    if (status == RPS_OK) {
        rps_client_set_epoch(client, start.epoch);
        client->in_job = true;
        client->may_fall_behind = start.terms.backup_workers > 0;
        *start_out = start;
    }
    json_decref(object);
    rps_answer_finish(&answer);
    return status;
}

rps_status
rps_job_await_end(rps_client *client, uint32_t timeout_ms)
{
    RPS_TURN(client);
    const struct rps_verb verb = {.opcode = RPS_OP_STEP_END, .bare = true};
    rps_status status = rps_client_enter(client);

    if (status == RPS_OK &&
            (client->embedded || client->cluster.role != RPS_ROLE_EVALUATOR)) {
        status = rps_client_fail(RPS_E_INVAL,
                "only an evaluator may wait for the job's end so; a replica "
                "that left joins again");
    }
    if (status == RPS_OK && client->end_wait == NULL) {
        client->end_wait =
                rps_call_begin(client, 0, 1, &verb, NULL, NULL, true);
        status = client->end_wait != NULL ? RPS_OK : rps_client_nomem();
    }
    if (status != RPS_OK) {
        return status;
    }
    /* the answer may come between two calls: the question stays asked */
    status =
            rps_ticket_wait(client->end_wait, timeout_ms != 0 ? timeout_ms : 1);
    if (client->end_wait->done) {
        rps_ticket_destroy(client->end_wait);
        client->end_wait = NULL;
    }
    return status;
}

/* What tools asked of the servers: the chief hands it on as its own. */
static rps_status
add_wishes_of(rps_client *client, uint32_t ps, uint32_t *wishes)
{
    struct rps_verb verb = {.opcode = RPS_OP_PING,
            .bare = true, /* a PING applies nothing */
            .timeout_ms = client->request_timeout_ms};
    struct rps_answer answer = {0};
    json_t *object = NULL;
    const json_t *name;
    size_t i;
    rps_status status = rps_call_one(client, ps, &verb, NULL, &answer);

    if (status == RPS_OK) {
        status = rps_answer_object(client, ps, &answer, &object);
    }
    if (status == RPS_OK) {
        json_array_foreach(json_object_get(object, "wishes"), i, name)
        {
            const char *text = json_string_value(name);

            if (text != NULL && strcmp(text, "save") == 0) {
                *wishes |= RPS_WISH_SAVE;
            } else if (text != NULL && strcmp(text, "stop") == 0) {
                *wishes |= RPS_WISH_STOP;
            }
        }
    }
    json_decref(object);
    rps_answer_finish(&answer);
    return status;
}

static rps_status
collect_wishes(rps_client *client, uint32_t *wishes)
{
    rps_status status = RPS_OK;
    uint32_t ps;

    if (!client->embedded && !client->cluster.is_chief) {
        return RPS_OK;
    }
    for (ps = 0; status == RPS_OK && ps < client->channel_count; ps++) {
        if (client->channels[ps]->wish_waits) {
            status = add_wishes_of(client, ps, wishes);
        }
    }
    return status;
}

/* One save after the other: what is wished for meanwhile waits for the end of
 * the one that runs. Who leaves saves afterwards. */
static uint32_t
queue_save(rps_client *client, uint32_t wishes)
{
    if ((wishes & RPS_WISH_LEAVE) != 0) {
        client->wishes_kept = 0;
        return wishes;
    }
    wishes |= client->wishes_kept;
    client->wishes_kept = 0;
    if (rps_save_runs(client)) {
        client->wishes_kept = wishes & RPS_WISH_SAVE;
        wishes &= ~RPS_WISH_SAVE;
    }
    return wishes;
}

/* Keep it for the next request to each PS. */
static void
owe(rps_client *client, struct rps_answer *answer)
{
    uint32_t i;

    free(client->decision);
    client->decision = answer->decision;
    client->decision_bytes = answer->decision_bytes;
    answer->decision = NULL;
    for (i = 0; i < client->channel_count; i++) {
        client->channels[i]->owes_decision = true;
    }
}

static bool
counts(const struct rps_wire_decision *decision, uint32_t rank)
{
    for (uint32_t i = 0; i < decision->rank_count; i++) {
        if (decision->ranks[i] == rank) {
            return true;
        }
    }
    return false;
}

/* Whom the decision before counted and this one does not. */
static void
find_gone(const rps_client *client, const struct rps_wire_decision *wire,
        rps_decision *decision)
{
    struct rps_wire_decision last = {0};
    struct rps_error error = {{0}};

    if (client->decision == NULL || client->may_fall_behind ||
            rps_decision_decode(client->decision, client->decision_bytes, &last,
                    &error) != RPS_OK) {
        return;
    }
    for (uint32_t i = last.rank_count; i-- > 0;) { /* they ascend */
        if (!counts(wire, last.ranks[i])) {
            decision->gone++;
            decision->gone_rank = last.ranks[i];
        }
    }
    rps_decision_finish(&last);
}

/* The chief's leave is answered with the last decision of the job, a replica
 * that is behind with the newest. */
static rps_status
take_decision(rps_client *client, uint64_t step, bool leaves_last,
        struct rps_answer *answer, rps_decision *decision_out)
{
    const bool may_be_later = leaves_last || client->may_fall_behind;
    struct rps_wire_decision wire = {0};
    struct rps_error error = {{0}};
    rps_status status = answer->decision != NULL
                                ? rps_decision_decode(answer->decision,
                                          answer->decision_bytes, &wire, &error)
                                : rps_fail(&error, RPS_E_CORRUPT,
                                          "STEP_END without a decision");

    if (status == RPS_OK && wire.step != step &&
            !(may_be_later && wire.step > step)) {
        status = rps_fail(&error, RPS_E_CORRUPT,
                "a decision of step %" PRIu64 " for step %" PRIu64, wire.step,
                step);
    }
    if (status != RPS_OK) {
        rps_decision_finish(&wire);
        return rps_client_fail(status, "PS 0 (%s): %s",
                client->channels[0]->address, error.text);
    }
    *decision_out = (rps_decision){
            .step = wire.step,
            .loss = wire.loss,
            .counted = wire.rank_count,
            .included = wire.step == step && counts(&wire, client->rank),
            .wishes = wire.wishes,
            .save_step = wire.save_step,
    };
    find_gone(client, &wire, decision_out);
    rps_decision_finish(&wire);
    owe(client, answer);
    return RPS_OK;
}

rps_status
rps_step_end(rps_client *client, uint64_t step, double loss, uint32_t wishes,
        rps_decision *decision_out)
{
    RPS_TURN(client);
    struct rps_answer answer = {0};
    rps_status status = rps_job_check_member(client, false);

    if (decision_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "decision_out is NULL");
    }
    *decision_out = (rps_decision){0};
    if (status == RPS_OK && step == 0) {
        status = rps_client_fail(RPS_E_INVAL,
                "step 0 is not ended; rps_job_join() waits for it");
    }
    if (status == RPS_OK) {
        /* steps come in order at each PS: none may still lack the last */
        status = rps_apply(client);
    }
    if (status == RPS_OK) {
        status = collect_wishes(client, &wishes);
    }
    if (status == RPS_OK) {
        wishes = queue_save(client, wishes);
    }
    if (status == RPS_OK) {
        status = step_end(client, step, loss, wishes, &answer);
    }
    if (status == RPS_OK) {
        status = take_decision(client, step,
                client->rank == 0 && (wishes & RPS_WISH_LEAVE) != 0, &answer,
                decision_out);
    }
    rps_answer_finish(&answer);
    return status;
}

/* --- apply --------------------------------------------------------------- */

static rps_status
build_apply(rps_client *client, struct rps_outbox *outbox, uint32_t ps)
{
    struct rps_request request = {.ps = ps, .opcode = RPS_OP_APPLY};
    struct rps_builder builder;
    struct rps_exchange *exchange =
            rps_exchange_begin(client, outbox, &builder, &request);

    if (exchange == NULL) {
        return rps_client_nomem();
    }
    return rps_exchange_end(exchange, &builder) == RPS_OK ? RPS_OK
                                                          : rps_client_nomem();
}

rps_status
rps_apply(rps_client *client)
{
    RPS_TURN(client);
    struct rps_ticket_state *ticket = NULL;
    struct rps_outbox outbox;
    rps_status status = rps_job_check_member(client, false);
    uint32_t ps;

    if (status != RPS_OK) {
        return status;
    }
    status = rps_client_all_whole(client);
    if (status != RPS_OK) { /* a server that began anew has not its steps */
        return status;
    }
    rps_outbox_init(&outbox);
    for (ps = 0; status == RPS_OK && ps < client->channel_count; ps++) {
        if (client->channels[ps]->owes_decision) {
            status = build_apply(client, &outbox, ps);
        }
    }
    if (outbox.first == NULL) {
        return status;
    }
    ticket = status == RPS_OK ? rps_ticket_create(client) : NULL;
    if (ticket == NULL) {
        rps_outbox_abort(client, &outbox);
        return rps_client_nomem();
    }
    rps_outbox_send(client, &outbox, ticket);
    return rps_ticket_settle(ticket, client->request_timeout_ms);
}
