/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two-phase save: PREPARE at every PS, the manifest from their answers,
 * COMMIT at PS 1..n-1 and at PS 0 last, so that a checkpoint that PS 0 lists
 * is one that all have. A failure before the first COMMIT is taken back
 * everywhere.
 */
#include "base/json.h"
#include "client/call.h"
#include "client/manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static rps_status
check_save(const rps_client *client, uint64_t step)
{
    rps_status status = rps_client_enter(client);

    if (status == RPS_OK && !client->embedded && !client->cluster.is_chief) {
        status = rps_client_fail(RPS_E_INVAL,
                "only the chief saves; a tool asks it with rps_wish()");
    }
    if (status == RPS_OK && step > INT64_MAX) {
        status = rps_client_fail(
                RPS_E_INVAL, "step %" PRIu64 " is out of range", step);
    }
    return status == RPS_OK ? rps_client_all_alive(client) : status;
}

static struct rps_verb
save_verb(uint64_t step)
{
    /* it waits for disks: no limit of ours */
    return (struct rps_verb){.opcode = RPS_OP_SAVE, .step = step};
}

/* The words of the failure that brought us here must survive the ABORT. */
static void
abort_all(rps_client *client, uint64_t step)
{
    struct rps_verb verb = save_verb(step);
    struct rps_error words;
    uint32_t ps;

    (void)rps_fail(&words, RPS_OK, "%s", rps_client_words());
    for (ps = 0; ps < client->channel_count; ps++) {
        if (!client->channels[ps]->lost) {
            struct rps_answer answer = {0};

            (void)rps_call_one(
                    client, ps, &verb, "{\"action\":\"abort\"}", &answer);
            rps_answer_finish(&answer);
        }
    }
    (void)rps_client_fail_with(RPS_OK, &words);
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

static rps_status
build_manifest(const rps_client *client, uint64_t step,
        const json_t *data_position, const struct rps_answer *answers,
        char **manifest_out)
{
    json_t **objects = calloc(client->channel_count, sizeof(*objects));
    struct rps_error error = {{0}};
    rps_status status;
    uint32_t ps;

    if (objects == NULL) {
        return rps_client_nomem();
    }
    status = parse_answers(client, answers, objects);
    if (status == RPS_OK) {
        struct rps_manifest_plan plan = {
                .step = step,
                .epoch = client->channels[0]->epoch,
                .job_id = client->job_id,
                .job_seed = client->job_seed,
                .data_position = data_position,
                .answers = objects,
                .parts = client->channel_count,
        };

        status = rps_manifest_build(&plan, manifest_out, &error);
        if (status != RPS_OK) {
            (void)rps_client_fail_with(status, &error);
        }
    }
    for (ps = 0; ps < client->channel_count; ps++) {
        json_decref(objects[ps]);
    }
    free(objects);
    return status;
}

static rps_status
prepare(rps_client *client, uint64_t step, const json_t *data_position,
        char **manifest_out)
{
    struct rps_verb verb = save_verb(step);
    struct rps_answer *answers = rps_answers_create(client);
    rps_status status;

    if (answers == NULL) {
        return rps_client_nomem();
    }
    status = rps_call_all(client, &verb, "{\"action\":\"prepare\"}", answers);
    if (status == RPS_OK) {
        status = build_manifest(
                client, step, data_position, answers, manifest_out);
    }
    rps_answers_destroy(client, answers);
    return status;
}

static rps_status
commit(rps_client *client, uint64_t step, const char *manifest, uint32_t keep)
{
    struct rps_verb verb = save_verb(step);
    char *text = rps_json_text(json_pack("{s:s, s:I, s:s}", "action", "commit",
            "keep", (json_int_t)keep, "manifest", manifest));
    rps_status status = RPS_OK;

    if (text == NULL) {
        return rps_client_nomem();
    }
    if (client->channel_count > 1) {
        status = rps_call_range(
                client, 1, client->channel_count, &verb, text, NULL);
    }
    if (status == RPS_OK) {
        status = rps_call_range(client, 0, 1, &verb, text, NULL);
    }
    free(text);
    return status;
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

rps_status
rps_save(rps_client *client, uint64_t step, const char *data_position,
        uint32_t keep)
{
    json_t *position = NULL;
    char *manifest = NULL;
    rps_status status = check_save(client, step);

    if (status == RPS_OK) {
        status = read_position(data_position, &position);
    }
    if (status == RPS_OK) {
        status = rps_apply(client);
    }
    if (status != RPS_OK) {
        json_decref(position);
        return status;
    }
    status = prepare(client, step, position, &manifest);
    if (status == RPS_OK) {
        status = commit(client, step, manifest, keep);
    }
    if (status != RPS_OK) {
        abort_all(client, step);
    }
    free(manifest);
    json_decref(position);
    return status;
}
