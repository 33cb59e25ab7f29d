/* SPDX-License-Identifier: Apache-2.0 */
#include "client/hello.h"

#include "base/text.h"
#include "client/call.h"
#include "client/refusal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
rps_hello_finish(struct rps_hello *hello)
{
    free(hello->frame);
    hello->frame = NULL;
}

static const char *
role_of(const rps_client *client)
{
    if (client->embedded) {
        return "local";
    }
    if (client->cluster.is_chief) {
        return "chief";
    }
    switch (client->cluster.role) {
    case RPS_ROLE_WORKER:
        return "worker";
    case RPS_ROLE_EVALUATOR:
        return "evaluator";
    default:
        return "none";
    }
}

/* 0 is what an unknown rank or count is. */
static bool
set_rank(json_t *object, const rps_client *client)
{
    uint32_t replicas = client->embedded ? 1 : client->cluster.replica_count;

    if (!client->member) {
        return true;
    }
    if (json_object_set_new(object, "rank", json_integer(client->rank)) != 0) {
        return false;
    }
    return replicas == 0 ||
           json_object_set_new(object, "replicas", json_integer(replicas)) == 0;
}

/* So that the job's next epoch is beyond it, whoever has lost his memory. */
static bool
set_known_epoch(json_t *object, const rps_client *client)
{
    const struct rps_channel *first = client->channels[0];
    const uint32_t joined = client->joined && first != NULL ? first->epoch : 0;
    const uint32_t epoch =
            joined > client->known_epoch ? joined : client->known_epoch;

    return !client->member || epoch == 0 ||
           json_object_set_new(
                   object, "known_epoch", json_integer((json_int_t)epoch)) == 0;
}

static char *
hello_text(const rps_client *client, uint32_t ps)
{
    char seed[24];
    char fingerprint[24];
    char id[24];
    char *text = NULL;
    json_t *object;

    (void)snprintf(seed, sizeof(seed), "%" PRIu64, client->job_seed);
    (void)snprintf(fingerprint, sizeof(fingerprint), "%016" PRIx64,
            client->cluster.fingerprint);
    (void)snprintf(id, sizeof(id), "%016" PRIx64, client->client_id);
    object = json_pack("{s:[i,i], s:s, s:s, s:I, s:I, s:s, s:s, s:i, s:s, s:I}",
            "versions", (int)RPS_WIRE_VERSION, (int)RPS_WIRE_VERSION, "job_id",
            client->job_id, "job_seed", seed, "ps_count",
            (json_int_t)client->ps_count, "ps_index", (json_int_t)ps, "role",
            role_of(client), "client", id, "lane", 0, "program",
            program_invocation_short_name, "route_version",
            (json_int_t)client->route.version);
    if (object != NULL && !client->embedded &&
            json_object_set_new(
                    object, "fingerprint", json_string(fingerprint)) != 0) {
        json_decref(object);
        return NULL;
    }
    if (object != NULL && set_rank(object, client) &&
            set_known_epoch(object, client)) {
        text = json_dumps(object, JSON_COMPACT);
    }
    json_decref(object);
    return text;
}

static struct rps_header
header_of(struct rps_hello *hello, rps_client *client, uint16_t opcode)
{
    hello->request_id = ++client->last_request;
    hello->opcode = opcode;
    return (struct rps_header){
            .version = RPS_WIRE_VERSION,
            .opcode = opcode,
            .request_id = hello->request_id,
            .route_version = client->route.version,
    };
}

static rps_status
send_auth(struct rps_hello *hello, rps_client *client,
        struct rps_channel *channel, struct rps_error *error)
{
    const struct rps_header header = header_of(hello, client, RPS_OP_AUTH);
    struct rps_builder builder;
    size_t bytes = 0;
    rps_status status = rps_auth_draw(hello->nonces.client, error);

    if (status != RPS_OK) {
        return status;
    }
    rps_builder_begin(&builder, &header, 1);
    (void)rps_auth_add(&builder, hello->nonces.client);
    rps_hello_finish(hello); /* it was answered */
    status = rps_builder_end(&builder, &hello->frame, &bytes);
    rps_builder_finish(&builder);
    if (status != RPS_OK) {
        return rps_fail(error, status, "out of memory");
    }
    return channel->ops->send(channel, hello->frame, bytes, error);
}

static rps_status
send_hello(struct rps_hello *hello, rps_client *client,
        struct rps_channel *channel, struct rps_error *error)
{
    const struct rps_header header = header_of(hello, client, RPS_OP_HELLO);
    const bool proves = client->token.length > 0;
    struct rps_builder builder;
    size_t bytes = 0;
    size_t proof = 0;
    char *text = hello_text(client, channel->ps);
    rps_status status;

    if (text == NULL) {
        return rps_fail(error, RPS_E_NOMEM,
                "out of memory (or a job id that is not UTF-8)");
    }
    rps_builder_begin(&builder, &header, 2);
    rps_builder_add_text(&builder, text, strlen(text));
    if (proves) {
        proof = rps_auth_add(&builder, NULL);
    }
    rps_hello_finish(hello); /* AUTH's was answered */
    status = rps_builder_end(&builder, &hello->frame, &bytes);
    rps_builder_finish(&builder);
    free(text);
    if (status != RPS_OK) {
        return rps_fail(error, status, "out of memory");
    }
    if (proves) {
        status = rps_auth_sign(&client->token, RPS_PROVER_CLIENT,
                &hello->nonces, hello->frame, bytes, proof, error);
    }
    return status == RPS_OK
                   ? channel->ops->send(channel, hello->frame, bytes, error)
                   : status;
}

rps_status
rps_hello_begin(struct rps_hello *hello, rps_client *client,
        struct rps_channel *channel, struct rps_error *error)
{
    *hello = (struct rps_hello){0};
    return client->token.length > 0 ? send_auth(hello, client, channel, error)
                                    : send_hello(hello, client, channel, error);
}

static rps_status
check_field(const json_t *object, const char *name, uint64_t expected,
        struct rps_error *error)
{
    uint64_t value;

    if (!rps_answer_u64(object, name, &value)) {
        return rps_fail(
                error, RPS_E_CORRUPT, "its answer to HELLO has no %s", name);
    }
    if (value != expected) {
        return rps_fail(error, RPS_E_MISMATCH,
                "%s: %" PRIu64 " at the server, %" PRIu64 " at this client",
                name, value, expected);
    }
    return RPS_OK;
}

static rps_status
read_answer(const rps_client *client, struct rps_channel *channel,
        const json_t *object, struct rps_error *error)
{
    const char *incarnation =
            json_string_value(json_object_get(object, "incarnation"));
    uint64_t epoch;
    uint64_t last = 0;
    rps_status status = check_field(object, "version", RPS_WIRE_VERSION, error);

    if (status == RPS_OK) {
        status = check_field(object, "ps_count", client->ps_count, error);
    }
    if (status == RPS_OK) {
        status = check_field(object, "ps_index", channel->ps, error);
    }
    if (status == RPS_OK) {
        status = check_field(
                object, "route_version", client->route.version, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    if (!rps_answer_u64(object, "epoch", &epoch) || epoch > UINT32_MAX ||
            !rps_answer_u64(object, "last_number", &last)) {
        return rps_fail(error, RPS_E_CORRUPT,
                "its answer to HELLO has no epoch or last_number");
    }
    if (incarnation == NULL ||
            !rps_parse_hex64(incarnation, &channel->numbers.incarnation)) {
        return rps_fail(
                error, RPS_E_CORRUPT, "its answer to HELLO has no incarnation");
    }
    channel->epoch = (uint32_t)epoch;
    channel->numbers.given = last;
    channel->numbers.answered = last;
    return RPS_OK;
}

static rps_status
take_auth(struct rps_hello *hello, rps_client *client,
        struct rps_channel *channel, const struct rps_message *reply,
        struct rps_error *error)
{
    const uint8_t *nonce = rps_auth_find(reply);

    if (nonce == NULL) {
        return rps_fail(
                error, RPS_E_CORRUPT, "its answer to AUTH has no nonce");
    }
    memcpy(hello->nonces.server, nonce, RPS_NONCE_BYTES);
    return send_hello(hello, client, channel, error);
}

static rps_status
take_hello(struct rps_hello *hello, const rps_client *client,
        struct rps_channel *channel, const struct rps_message *reply,
        struct rps_error *error)
{
    json_error_t where;
    json_t *object;
    char *text;
    rps_status status;

    if (client->token.length > 0 &&
            rps_auth_verify(&client->token, RPS_PROVER_SERVER, &hello->nonces,
                    reply, error) != RPS_OK) {
        return rps_fail(error, RPS_E_AUTH,
                "the server does not prove that it has our token: it is not "
                "ours, or somebody between us changed its answer");
    }
    text = rps_message_text(reply);
    object = text != NULL ? json_loads(text, 0, &where) : NULL;
    free(text);
    if (!json_is_object(object)) {
        status = rps_fail(
                error, RPS_E_CORRUPT, "its answer to HELLO is no JSON object");
    } else {
        status = read_answer(client, channel, object, error);
    }
    json_decref(object);
    hello->greeted = status == RPS_OK;
    return status;
}

rps_status
rps_hello_take(struct rps_hello *hello, rps_client *client,
        struct rps_channel *channel, const struct rps_message *reply,
        struct rps_error *error)
{
    const struct rps_header *header = &reply->header;

    if ((header->flags & RPS_FLAG_REPLY) == 0 ||
            header->opcode != hello->opcode ||
            header->request_id != hello->request_id || header->status > 0) {
        return rps_fail(error, RPS_E_CORRUPT, "answers %s with %s",
                rps_opcode_str(hello->opcode), rps_opcode_str(header->opcode));
    }
    if (header->status < 0) {
        return rps_refusal_fail(reply, error);
    }
    return header->opcode == RPS_OP_AUTH
                   ? take_auth(hello, client, channel, reply, error)
                   : take_hello(hello, client, channel, reply, error);
}
