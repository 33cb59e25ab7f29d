/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns saving, as the chief does it:
 *
 *   cut      at every PS: from here on training may go on
 *   PREPARE  at every PS: they write; the manifest from their answers
 *   COMMIT   at PS 1..n-1, then at PS 0, so that a checkpoint that PS 0 lists
 *            is one that all have
 *
 * A failure is taken back everywhere (ABORT) and its words are the result.
 * Each but the first is a ticket that is moved by whatever waits or polls.
 */
#include "base/clock.h"
#include "base/json.h"
#include "client/call.h"
#include "client/manifest.h"
#include "client/watch.h"

#include <recps/save.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum phase {
    PHASE_PREPARE,
    PHASE_COMMIT_OTHERS,
    PHASE_COMMIT_FIRST,
    PHASE_ABORT,
    PHASE_OVER
};

struct rps_save_run {
    enum phase phase;
    struct rps_ticket_state *ticket; /* of the phase; NULL when it is over */
    struct rps_answer *answers;      /* [channel_count], of PREPARE */
    json_t *position;                /* NULL: none */
    json_t *parent;                  /* of a delta; NULL: a full one */
    char *manifest;
    uint32_t keep;
    uint64_t begun_ms;
    rps_saved saved;
    rps_status status; /* of the whole */
    struct rps_error error;
};

/** What every PS says of its cut. */
struct cuts {
    json_t *parent; /* that all of them name; NULL: none */
    uint64_t chain; /* the longest */
    uint64_t pause_us;
};

static struct rps_verb
save_verb(uint64_t step)
{
    /* it waits for disks: no limit of ours */
    return (struct rps_verb){.opcode = RPS_OP_SAVE, .step = step};
}

bool
rps_save_runs(const rps_client *client)
{
    return client->saving != NULL;
}

static void
run_destroy(rps_client *client, struct rps_save_run *run)
{
    if (run == NULL) {
        return;
    }
    rps_ticket_destroy(run->ticket); /* it borrows the answers */
    if (run->answers != NULL) {
        rps_answers_destroy(client, run->answers);
    }
    json_decref(run->position);
    json_decref(run->parent);
    free(run->manifest);
    free(run);
}

void
rps_save_forget(rps_client *client)
{
    run_destroy(client, client->saving);
    client->saving = NULL;
    client->wishes_kept = 0;
}

/* --- the cut ------------------------------------------------------------- */

static rps_status
check_save(const rps_client *client, const rps_save_plan *plan)
{
    rps_status status = rps_client_enter(client);

    if (status == RPS_OK && plan == NULL) {
        status = rps_client_fail(RPS_E_INVAL, "plan is NULL");
    }
    if (status == RPS_OK && !client->embedded && !client->cluster.is_chief) {
        status = rps_client_fail(RPS_E_INVAL,
                "only the chief saves; a tool asks it with rps_wish()");
    }
    if (status == RPS_OK && plan->step > INT64_MAX) {
        status = rps_client_fail(
                RPS_E_INVAL, "step %" PRIu64 " is out of range", plan->step);
    }
    if (status == RPS_OK && plan->deltas_max > RPS_SAVE_DELTAS_MAX) {
        status = rps_client_fail(RPS_E_INVAL,
                "deltas_max is %" PRIu32 "; at most %u may follow a full one",
                plan->deltas_max, RPS_SAVE_DELTAS_MAX);
    }
    if (status == RPS_OK && rps_save_runs(client)) {
        status = rps_client_fail(RPS_E_RETRY_LATER,
                "the save of step %" PRIu64 " is not over: wait for it",
                client->saving->saved.step);
    }
    return status == RPS_OK ? rps_client_all_alive(client) : status;
}

static rps_status
read_position(const char *text, json_t **out)
{
    json_error_t where;

    *out = NULL;
    if (text == NULL) {
        return RPS_OK;
    }
    *out = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &where);
    if (*out == NULL) {
        return rps_client_fail(RPS_E_INVAL,
                "data_position is no JSON: line %d column %d: %s", where.line,
                where.column, where.text);
    }
    return RPS_OK;
}

static bool
is_parent(const json_t *parent)
{
    return json_is_string(json_object_get(parent, "name")) &&
           json_is_string(json_object_get(parent, "digest"));
}

/* What all of them could stand on: the first one's, if no other differs. */
static rps_status
read_cut(const rps_client *client, uint32_t ps, const struct rps_answer *answer,
        struct cuts *cuts)
{
    json_t *object = NULL;
    json_t *parent;
    uint64_t chain = 0;
    uint64_t pause_us = 0;
    rps_status status = rps_answer_object(client, ps, answer, &object);

    if (status != RPS_OK) {
        return status;
    }
    parent = json_object_get(object, "delta_parent");
    (void)rps_answer_u64(object, "chain", &chain);
    (void)rps_answer_u64(object, "pause_us", &pause_us);
    if (ps == 0 && is_parent(parent)) {
        cuts->parent = json_incref(parent);
    } else if (cuts->parent != NULL && !json_equal(cuts->parent, parent)) {
        json_decref(cuts->parent);
        cuts->parent = NULL;
    }
    cuts->chain = chain > cuts->chain ? chain : cuts->chain;
    cuts->pause_us = pause_us > cuts->pause_us ? pause_us : cuts->pause_us;
    json_decref(object);
    return RPS_OK;
}

/* A decision that a PS has not had yet goes with it. */
static rps_status
take_cuts(rps_client *client, const rps_save_plan *plan, struct cuts *cuts)
{
    struct rps_verb verb = save_verb(plan->step);
    struct rps_answer *answers = rps_answers_create(client);
    rps_status status;

    verb.timeout_ms = client->request_timeout_ms;
    status = answers == NULL
                     ? rps_client_nomem()
                     : rps_call_all(client, &verb,
                               plan->now != 0
                                       ? "{\"action\":\"cut\",\"now\":true}"
                                       : "{\"action\":\"cut\"}",
                               answers);
    for (uint32_t ps = 0; status == RPS_OK && ps < client->channel_count;
            ps++) {
        status = read_cut(client, ps, &answers[ps], cuts);
    }
    if (answers != NULL) {
        rps_answers_destroy(client, answers);
    }
    return status;
}

static void
choose_kind(struct rps_save_run *run, const rps_save_plan *plan,
        const struct cuts *cuts)
{
    if (cuts->parent == NULL || cuts->chain >= plan->deltas_max) {
        return;
    }
    run->parent = json_incref(cuts->parent);
    run->saved.delta = 1;
    (void)sscanf(json_string_value(json_object_get(run->parent, "name")),
            "ckpt-%12" SCNu64, &run->saved.parent_step);
}

/* --- the phases ---------------------------------------------------------- */

/* ABORT has the words of what went wrong, for STAT of the servers. */
static void
begin_abort(rps_client *client, struct rps_save_run *run)
{
    struct rps_verb verb = save_verb(run->saved.step);
    char *text = rps_json_text(
            json_pack("{s:s, s:s}", "action", "abort", "why", run->error.text));

    run->phase = PHASE_OVER;
    rps_ticket_destroy(run->ticket);
    run->ticket = NULL;
    if (text == NULL) { /* the servers drop it by time */
        return;
    }
    /* who is lost cannot be told: that ends the wait, not the frames */
    run->ticket = rps_call_begin(
            client, 0, client->channel_count, &verb, text, NULL, false);
    free(text);
    if (run->ticket != NULL) {
        run->phase = PHASE_ABORT;
    }
}

/* The first failure is the save's. */
static void
fail(rps_client *client, struct rps_save_run *run, rps_status status,
        const char *words)
{
    run->status = status;
    (void)rps_fail(&run->error, status, "%s", words);
    begin_abort(client, run);
}

static rps_status
parse_answers(const rps_client *client, const struct rps_answer *answers,
        json_t **objects)
{
    rps_status status = RPS_OK;
    uint32_t ps;

    for (ps = 0; status == RPS_OK && ps < client->channel_count; ps++) {
        status = rps_answer_object(client, ps, &answers[ps], &objects[ps]);
    }
    return status;
}

static const char *
text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static rps_status
plan_manifest(const rps_client *client, struct rps_save_run *run,
        json_t *const *objects)
{
    struct rps_manifest_sums sums = {0};
    const struct rps_manifest_plan plan = {
            .step = run->saved.step,
            .epoch = client->channels[0]->epoch,
            .job_id = client->job_id,
            .job_seed = client->job_seed,
            .data_position = run->position,
            .parent_name = text_of(run->parent, "name"),
            .parent_digest = text_of(run->parent, "digest"),
            .answers = objects,
            .parts = client->channel_count,
            .sums = &sums,
    };
    struct rps_error error = {{0}};
    const rps_status status = rps_manifest_build(&plan, &run->manifest, &error);

    run->saved.rows = sums.rows;
    run->saved.erased = sums.erased;
    run->saved.bytes = sums.bytes;
    return status == RPS_OK ? RPS_OK : rps_client_fail_with(status, &error);
}

static rps_status
build_manifest(const rps_client *client, struct rps_save_run *run)
{
    json_t **objects = calloc(client->channel_count, sizeof(*objects));
    rps_status status;
    uint32_t ps;

    if (objects == NULL) {
        return rps_client_nomem();
    }
    status = parse_answers(client, run->answers, objects);
    if (status == RPS_OK) {
        status = plan_manifest(client, run, objects);
    }
    for (ps = 0; ps < client->channel_count; ps++) {
        json_decref(objects[ps]);
    }
    free(objects);
    return status;
}

static rps_status
begin_commit(rps_client *client, struct rps_save_run *run, uint32_t first,
        uint32_t end)
{
    struct rps_verb verb = save_verb(run->saved.step);
    char *text = rps_json_text(json_pack("{s:s, s:I, s:s}", "action", "commit",
            "keep", (json_int_t)run->keep, "manifest", run->manifest));

    if (text == NULL) {
        return rps_client_nomem();
    }
    rps_ticket_destroy(run->ticket);
    run->ticket = rps_call_begin(client, first, end, &verb, text, NULL, false);
    free(text);
    return run->ticket != NULL ? RPS_OK : rps_client_nomem();
}

/* What its ticket was done with begins the next phase. */
static rps_status
step_on(rps_client *client, struct rps_save_run *run)
{
    rps_status status = RPS_OK;

    switch (run->phase) {
    case PHASE_PREPARE:
        status = build_manifest(client, run);
        run->phase = PHASE_COMMIT_OTHERS;
        if (status == RPS_OK && client->channel_count > 1) {
            return begin_commit(client, run, 1, client->channel_count);
        }
        if (status != RPS_OK) {
            return status;
        }
        /* fall through */
    case PHASE_COMMIT_OTHERS:
        run->phase = PHASE_COMMIT_FIRST;
        return begin_commit(client, run, 0, 1);
    case PHASE_COMMIT_FIRST:
    case PHASE_ABORT:
    case PHASE_OVER:
        run->phase = PHASE_OVER;
        break;
    }
    return status;
}

/* As far as it goes without waiting. */
static void
advance(rps_client *client, struct rps_save_run *run)
{
    while (run->phase != PHASE_OVER && run->ticket->done) {
        const rps_status came = run->ticket->status;
        rps_status status = RPS_OK;

        if (run->phase == PHASE_ABORT) {
            run->phase = PHASE_OVER; /* whatever came of it */
        } else if (came != RPS_OK) {
            fail(client, run, came, run->ticket->error.text);
        } else {
            status = step_on(client, run);
        }
        if (status != RPS_OK) {
            fail(client, run, status, rps_client_words());
        }
    }
    if (run->phase == PHASE_OVER && run->ticket != NULL) {
        rps_ticket_destroy(run->ticket);
        run->ticket = NULL;
    }
}

/* It is over: its result, and room for the next. */
static rps_status
take_result(rps_client *client, rps_saved *saved_out)
{
    struct rps_save_run *run = client->saving;
    const rps_status status = run->status;

    run->saved.ms = rps_clock_ms() - run->begun_ms;
    if (saved_out != NULL) {
        *saved_out = run->saved;
    }
    if (status != RPS_OK) {
        (void)rps_client_fail_with(status, &run->error);
    }
    run_destroy(client, run);
    client->saving = NULL;
    return status;
}

/* --- what callers call --------------------------------------------------- */

static rps_status
begin_prepare(rps_client *client, struct rps_save_run *run)
{
    struct rps_verb verb = save_verb(run->saved.step);

    run->answers = rps_answers_create(client);
    if (run->answers == NULL) {
        return rps_client_nomem();
    }
    run->ticket = rps_call_begin(client, 0, client->channel_count, &verb,
            run->saved.delta != 0
                    ? "{\"action\":\"prepare\",\"kind\":\"delta\"}"
                    : "{\"action\":\"prepare\",\"kind\":\"full\"}",
            run->answers, false);
    return run->ticket != NULL ? RPS_OK : rps_client_nomem();
}

/* The cuts that were taken are given back, and the words stay. */
static rps_status
begin_failed(rps_client *client, struct rps_save_run *run, rps_status status)
{
    struct rps_error error;

    (void)rps_fail(&error, status, "%s", rps_client_words());
    fail(client, run, status, error.text);
    if (run->phase == PHASE_ABORT) {
        (void)rps_ticket_wait(run->ticket, client->request_timeout_ms);
    }
    run_destroy(client, run);
    return rps_client_fail_with(status, &error);
}

rps_status
rps_save_begin(rps_client *client, const rps_save_plan *plan)
{
    RPS_TURN(client);
    struct cuts cuts = {.parent = NULL};
    struct rps_save_run *run;
    rps_status status = check_save(client, plan);

    if (status != RPS_OK) {
        return status;
    }
    run = calloc(1, sizeof(*run));
    if (run == NULL) {
        return rps_client_nomem();
    }
    run->saved.step = plan->step;
    run->keep = plan->keep;
    run->begun_ms = rps_clock_ms();
    status = read_position(plan->data_position, &run->position);
    if (status != RPS_OK) { /* nobody was asked for anything */
        run_destroy(client, run);
        return status;
    }
    status = take_cuts(client, plan, &cuts);
    if (status == RPS_OK) {
        choose_kind(run, plan, &cuts);
        run->saved.pause_us = cuts.pause_us;
        status = begin_prepare(client, run);
    }
    json_decref(cuts.parent);
    if (status != RPS_OK) {
        return begin_failed(client, run, status);
    }
    client->saving = run;
    return RPS_OK;
}

static rps_status
check_begun(const rps_client *client)
{
    const rps_status status = rps_client_enter(client);

    return status == RPS_OK && !rps_save_runs(client)
                   ? rps_client_fail(RPS_E_NOT_FOUND, "no save was begun")
                   : status;
}

rps_status
rps_save_poll(rps_client *client, int *done_out, rps_saved *saved_out)
{
    RPS_TURN(client);
    rps_status status = check_begun(client);

    if (done_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "done_out is NULL");
    }
    *done_out = 0;
    if (status != RPS_OK) {
        return status;
    }
    if (client->saving->phase != PHASE_OVER && !client->saving->ticket->done) {
        rps_client_move(client, 0);
    }
    advance(client, client->saving);
    rps_client_rewatch(client);
    if (client->saving->phase != PHASE_OVER) {
        return RPS_OK;
    }
    *done_out = 1;
    return take_result(client, saved_out);
}

rps_status
rps_save_wait(rps_client *client, uint32_t timeout_ms, rps_saved *saved_out)
{
    RPS_TURN(client);
    const uint64_t start = rps_clock_ms();
    rps_status status = check_begun(client);

    while (status == RPS_OK && client->saving->phase != PHASE_OVER) {
        const uint64_t passed = rps_clock_ms() - start;

        if (timeout_ms != 0 && passed >= timeout_ms) {
            return rps_client_fail(RPS_E_TIMEOUT,
                    "the save of step %" PRIu64 " is not over after %" PRIu32
                    " ms",
                    client->saving->saved.step, timeout_ms);
        }
        (void)rps_ticket_wait(client->saving->ticket,
                timeout_ms != 0 ? (uint32_t)(timeout_ms - passed) : 0);
        advance(client, client->saving);
    }
    rps_client_rewatch(client);
    return status == RPS_OK ? take_result(client, saved_out) : status;
}

rps_status
rps_save(rps_client *client, uint64_t step, const char *data_position,
        uint32_t keep)
{
    const rps_save_plan plan = {
            .step = step, .data_position = data_position, .keep = keep};
    const rps_status status = rps_save_begin(client, &plan);

    return status == RPS_OK ? rps_save_wait(client, 0, NULL) : status;
}
