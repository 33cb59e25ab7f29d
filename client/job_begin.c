/* SPDX-License-Identifier: Apache-2.0 */
/* How the chief begins a job, or begins it again: RESTORE at every PS. */
#include "base/json.h"
#include "base/terms.h"
#include "client/call.h"
#include "client/job_impl.h"
#include "client/warm.h"

#include <recps/recover.h>
#include <recps/warm.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEP_TIMEOUT_MS 60000u
#define STEP_BYTES_MAX  (256ull << 20)
#define BEGIN_TRIES_MAX 5u

static char *
restore_text(const rps_start *start, const rps_warm_start *warm)
{
    json_t *object = rps_terms_json(&start->terms);

    if (object != NULL && warm != NULL && !rps_warm_add(object, warm)) {
        json_decref(object);
        return NULL;
    }
    if (object == NULL ||
            json_object_set_new(object, "epoch",
                    json_integer((json_int_t)start->epoch)) != 0 ||
            json_object_set_new(object, "step",
                    json_integer((json_int_t)start->step)) != 0 ||
            (start->reason[0] != '\0' &&
                    json_object_set_new(object, "reason",
                            json_string(start->reason)) != 0)) {
        json_decref(object);
        return NULL;
    }
    return rps_json_text(object);
}

/* A mode, and what goes with it. */
static rps_status
check_mode(const rps_terms *terms)
{
    struct rps_error error = {{0}};
    rps_status status;

    if ((uint32_t)terms->mode > RPS_MODE_BOUNDED ||
            (uint32_t)terms->combine > RPS_COMBINE_MEAN ||
            (uint32_t)terms->on_lost > RPS_ON_LOST_LEAVE ||
            (uint32_t)terms->cut > RPS_CUT_LOCAL ||
            terms->staleness > RPS_STALENESS_MAX) {
        return rps_client_fail(RPS_E_INVAL,
                "terms: mode %d, combine %d, on_lost %d or staleness %" PRIu32
                " is out of range",
                (int)terms->mode, (int)terms->combine, (int)terms->on_lost,
                terms->staleness);
    }
    status = rps_terms_check(terms, &error);
    return status == RPS_OK ? RPS_OK
                            : rps_client_fail(status, "terms: %s", error.text);
}

static rps_status
check_terms(const rps_terms *terms, uint64_t step, rps_terms *out)
{
    rps_status status;

    if (terms == NULL || terms->replica_count == 0 ||
            terms->replica_count > RPS_REPLICAS_MAX) {
        return rps_client_fail(RPS_E_INVAL,
                "terms.replica_count: %u, must be 1 to %u",
                terms != NULL ? terms->replica_count : 0, RPS_REPLICAS_MAX);
    }
    if (terms->step_bytes_max > INT64_MAX || step > INT64_MAX) {
        return rps_client_fail(RPS_E_INVAL,
                "terms: step_bytes_max %" PRIu64 " or step %" PRIu64
                " is out of range",
                terms->step_bytes_max, step);
    }
    status = check_mode(terms);
    if (status != RPS_OK) {
        return status;
    }
    *out = *terms;
    if (out->step_timeout_ms == 0) {
        out->step_timeout_ms = STEP_TIMEOUT_MS;
    }
    if (out->step_bytes_max == 0) {
        out->step_bytes_max = STEP_BYTES_MAX;
    }
    return RPS_OK;
}

/* One above all that the servers and their checkpoints know. */
static rps_status
next_epoch(rps_client *client, struct rps_answer *answers, uint32_t *epoch_out)
{
    struct rps_verb verb = {.opcode = RPS_OP_STAT,
            .bare = true,
            .timeout_ms = client->request_timeout_ms};
    uint64_t largest = client->known_epoch;
    rps_status status = rps_call_all(client, &verb, "{}", answers);
    uint32_t ps;

    for (ps = 0; status == RPS_OK && ps < client->channel_count; ps++) {
        json_t *object = NULL;
        uint64_t epoch = 0, saved = 0;

        status = rps_answer_object(client, ps, &answers[ps], &object);
        if (status == RPS_OK &&
                (!rps_answer_u64(object, "epoch", &epoch) ||
                        !rps_answer_u64(object, "checkpoint_epoch", &saved))) {
            status = rps_job_malformed(client, ps, "epoch");
        }
        largest = epoch > largest ? epoch : largest;
        largest = saved > largest ? saved : largest;
        /* what members of it have told; not of an older server */
        if (status == RPS_OK && rps_answer_u64(object, "epoch_known", &saved)) {
            largest = saved > largest ? saved : largest;
        }
        json_decref(object);
        rps_answer_finish(&answers[ps]);
    }
    if (status == RPS_OK && largest >= UINT32_MAX) {
        status = rps_client_fail(
                RPS_E_LIMIT, "the servers' epoch is the last one");
    }
    *epoch_out = (uint32_t)largest + 1;
    return status;
}

/* All must have begun from the same step; PS 0's words count. */
static rps_status
take_outcome(const rps_client *client, uint32_t ps, const json_t *object,
        uint64_t *step, char **outcome)
{
    const json_t *warm = json_object_get(object, "warm_start");
    uint64_t own = 0;

    if (!rps_answer_u64(warm, "step", &own) ||
            !json_is_array(json_object_get(warm, "fresh_slots")) ||
            !json_is_array(json_object_get(warm, "absent"))) {
        return rps_job_malformed(client, ps, "warm_start");
    }
    if (ps == 0) {
        *step = own;
        *outcome = json_dumps(warm, JSON_COMPACT);
        return *outcome != NULL ? RPS_OK : rps_client_nomem();
    }
    return own == *step
                   ? RPS_OK
                   : rps_client_fail(RPS_E_MISMATCH,
                             "PS %u (%s) began from step %" PRIu64
                             ", PS 0 from %" PRIu64
                             ": name the step that all of them have",
                             ps, client->channels[ps]->address, own, *step);
}

/* outcome: NULL where nothing of a checkpoint was chosen. */
static rps_status
take_restored(const rps_client *client, const struct rps_answer *answers,
        rps_start *start, char **outcome)
{
    uint64_t from_step = 0;
    rps_status status = RPS_OK;
    uint32_t ps;

    for (ps = 0; status == RPS_OK && ps < client->channel_count; ps++) {
        json_t *object = NULL;
        uint64_t step;

        status = rps_answer_object(client, ps, &answers[ps], &object);
        if (status == RPS_OK && !rps_answer_u64(object, "step", &step)) {
            status = rps_job_malformed(client, ps, "step");
        } else if (status == RPS_OK && step != start->step) {
            status = rps_client_fail(RPS_E_MISMATCH,
                    "PS %u (%s): restored step %" PRIu64 ", asked for %" PRIu64,
                    ps, client->channels[ps]->address, step, start->step);
        } else if (status == RPS_OK && ps == 0) {
            status = rps_job_read_position(object, &start->data_position);
        }
        if (status == RPS_OK && outcome != NULL) {
            status = take_outcome(client, ps, object, &from_step, outcome);
        }
        json_decref(object);
    }
    return status;
}

/* A beginning under way. */
struct begin {
    rps_start start;
    const rps_warm_start *warm; /* NULL: nothing of a checkpoint is chosen */
    char **outcome;             /* of what was; likewise */
};

static rps_status
restore_all(rps_client *client, struct rps_answer *answers, struct begin *begin)
{
    struct rps_verb verb = {.opcode = RPS_OP_RESTORE, .bare = true};
    char *text = restore_text(&begin->start, begin->warm);
    rps_status status = text != NULL
                                ? rps_call_all(client, &verb, text, answers)
                                : rps_client_nomem();

    free(text);
    return status == RPS_OK ? take_restored(client, answers, &begin->start,
                                      begin->outcome)
                            : status;
}

static void
finish_answers(const rps_client *client, struct rps_answer *answers)
{
    for (uint32_t ps = 0; ps < client->channel_count; ps++) {
        rps_answer_finish(&answers[ps]);
    }
}

/* A RESTORE of a chief that is gone may be carried out between our question
 * and ours: the epoch is taken then, and the next one is tried. */
static rps_status
begin_beyond_all(
        rps_client *client, struct rps_answer *answers, struct begin *begin)
{
    rps_start *start = &begin->start;
    rps_status status = next_epoch(client, answers, &start->epoch);
    uint32_t tries = 1;

    while (status == RPS_OK) {
        struct rps_error words;
        uint32_t next = 0;

        status = restore_all(client, answers, begin);
        if (status != RPS_E_INVAL || tries++ == BEGIN_TRIES_MAX) {
            break;
        }
        (void)rps_fail(&words, status, "%s", rps_client_words());
        finish_answers(client, answers);
        if (next_epoch(client, answers, &next) != RPS_OK ||
                next == start->epoch) {
            return rps_client_fail_with(status, &words);
        }
        start->epoch = next;
        status = RPS_OK;
    }
    return status;
}

/* Of begin->start the step is set. */
static rps_status
begin_job(rps_client *client, struct begin *begin, const rps_terms *terms,
        const char *reason, rps_start *start_out)
{
    struct rps_answer *answers = NULL;
    rps_status status;

    if (start_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "start_out is NULL");
    }
    *start_out = (rps_start){0};
    status = rps_job_check_member(client, true);
    if (status == RPS_OK) {
        status = check_terms(terms, begin->start.step, &begin->start.terms);
    }
    if (status != RPS_OK) {
        return status;
    }
    rps_job_copy_reason(begin->start.reason, reason != NULL ? reason : "");
    answers = rps_answers_create(client);
    status = answers != NULL ? begin_beyond_all(client, answers, begin)
                             : rps_client_nomem();
    if (status == RPS_OK) {
        rps_client_set_epoch(client, begin->start.epoch);
        client->in_job = true;
        *start_out = begin->start;
    } else {
        free(begin->start.data_position);
    }
    rps_answers_destroy(client, answers);
    return status;
}

rps_status
rps_job_begin_again(rps_client *client, uint64_t step, const rps_terms *terms,
        const char *reason, rps_start *start_out)
{
    RPS_TURN(client);
    struct begin begin = {.start = {.step = step}};

    return begin_job(client, &begin, terms, reason, start_out);
}

rps_status
rps_job_begin(rps_client *client, uint64_t step, const rps_terms *terms,
        rps_start *start_out)
{
    return rps_job_begin_again(client, step, terms, NULL, start_out);
}

rps_status
rps_job_begin_from(rps_client *client, uint64_t step,
        const rps_warm_start *warm, const rps_terms *terms,
        rps_start *start_out, char **outcome_out)
{
    RPS_TURN(client);
    struct begin begin = {
            .start = {.step = step}, .warm = warm, .outcome = outcome_out};
    rps_status status = rps_client_enter(client);

    if (outcome_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "outcome_out is NULL");
    }
    *outcome_out = NULL;
    if (status == RPS_OK) {
        status = rps_warm_check(step, warm);
    }
    if (status == RPS_OK) {
        status = begin_job(client, &begin, terms, NULL, start_out);
    }
    if (status != RPS_OK) {
        free(*outcome_out);
        *outcome_out = NULL;
    }
    return status;
}
