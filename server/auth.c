/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the service's token: the challenge (AUTH), the proof that HELLO must
 * bring, and the one that its answer brings back. Leaves how a proof is made
 * to proto/auth.h.
 */
#include "base/log.h"
#include "server/state.h"

#include <stdlib.h>
#include <string.h>

rps_status
rps_service_set_token(struct rps_service *service,
        const struct rps_secret *token, struct rps_error *error)
{
    struct rps_secret copy = {0};
    rps_status status = RPS_OK;

    if (token != NULL && token->length > 0) {
        status = rps_auth_built(error);
        if (status == RPS_OK) {
            status = rps_secret_copy(&copy, token, error);
        }
    }
    if (status != RPS_OK) {
        return status;
    }
    pthread_rwlock_wrlock(&service->token_lock);
    rps_secret_finish(&service->token);
    service->token = copy;
    pthread_rwlock_unlock(&service->token_lock);
    return RPS_OK;
}

static bool
has_token(struct rps_service *service)
{
    bool has;

    pthread_rwlock_rdlock(&service->token_lock);
    has = service->token.length > 0;
    pthread_rwlock_unlock(&service->token_lock);
    return has;
}

static rps_status
refuse(struct rps_request *request, const char *words)
{
    /* relaxed: a counter orders nothing */
    atomic_fetch_add_explicit(
            &request->service->auth_failures, 1, memory_order_relaxed);
    rps_service_event(request->service, RPS_LOG_WARN, "auth_failed", "%s: %s",
            request->session->peer, words);
    return rps_fail(&request->error, RPS_E_AUTH, "%s", words);
}

/* An answer with 32 bytes beside its text: a nonce, or (NULL) a proof. */
static rps_status
build_answer(
        struct rps_request *request, const uint8_t *nonce, size_t *offset_out)
{
    const struct rps_header header = rps_reply_header(request->service,
            request->session, &request->message->header, RPS_OK);
    struct rps_builder builder;
    rps_status status;

    rps_builder_begin(&builder, &header, 2);
    if (request->text != NULL) {
        rps_builder_add_text(&builder, request->text, strlen(request->text));
    }
    *offset_out = rps_auth_add(&builder, nonce);
    status = rps_builder_end(&builder, &request->frame, &request->frame_bytes);
    rps_builder_finish(&builder);
    return status == RPS_OK ? RPS_OK
                            : rps_fail(&request->error, status, "no memory");
}

rps_status
rps_serve_auth(struct rps_request *request)
{
    struct rps_session *session = request->session;
    const uint8_t *nonce = rps_auth_find(request->message);
    size_t offset = 0;
    rps_status status;

    if (session->greeted || session->challenged) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "AUTH: comes before HELLO, and has been answered");
    }
    if (nonce == NULL) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "AUTH: needs one section of %u bytes, the client's nonce",
                RPS_NONCE_BYTES);
    }
    if (!has_token(request->service)) {
        return rps_fail(&request->error, RPS_E_AUTH,
                "this server has no token, so it cannot prove who it is: start "
                "it with --token-file, or the client without");
    }
    memcpy(session->nonces.client, nonce, RPS_NONCE_BYTES);
    status = rps_auth_draw(session->nonces.server, &request->error);
    if (status == RPS_OK) {
        status = build_answer(request, session->nonces.server, &offset);
    }
    session->challenged = status == RPS_OK;
    return status;
}

rps_status
rps_auth_check_hello(struct rps_request *request)
{
    struct rps_service *service = request->service;
    struct rps_session *session = request->session;
    const bool challenged = session->challenged;
    rps_status status = RPS_OK;

    session->challenged = false; /* a nonce is good for one HELLO */
    pthread_rwlock_rdlock(&service->token_lock);
    session->proven = service->token.length > 0;
    if (session->proven && challenged) {
        status = rps_auth_verify(&service->token, RPS_PROVER_CLIENT,
                &session->nonces, request->message, &request->error);
    }
    pthread_rwlock_unlock(&service->token_lock);
    if (session->proven && !challenged) {
        return refuse(request,
                "this server asks for a token: give the client the same "
                "--token-file as the server");
    }
    if (status == RPS_E_AUTH) {
        return refuse(request,
                "the proof of the token is missing or wrong: client and "
                "server have different tokens (--token-file), or somebody "
                "between them changed HELLO");
    }
    return status;
}

rps_status
rps_auth_prove_answer(struct rps_request *request)
{
    struct rps_service *service = request->service;
    struct rps_session *session = request->session;
    size_t offset = 0;
    rps_status status;

    if (!session->proven) {
        return RPS_OK;
    }
    status = build_answer(request, NULL, &offset);
    if (status == RPS_OK) {
        pthread_rwlock_rdlock(&service->token_lock);
        status = rps_auth_sign(&service->token, RPS_PROVER_SERVER,
                &session->nonces, request->frame, request->frame_bytes, offset,
                &request->error);
        pthread_rwlock_unlock(&service->token_lock);
    }
    if (status != RPS_OK) {
        free(request->frame);
        request->frame = NULL;
    }
    return status;
}
