/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/auth.h"

#include <stdbool.h>
#include <string.h>

#ifdef RPS_HAVE_OPENSSL
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#endif

#define LABEL_BYTES 16u

size_t
rps_auth_add(struct rps_builder *builder, const uint8_t *bytes)
{
    static const uint8_t zeros[RPS_PROOF_BYTES];
    const struct rps_section section = {
            .kind = RPS_SECTION_AUTH, .count = RPS_PROOF_BYTES};
    size_t offset = rps_builder_reserve(builder, &section);

    if (offset != 0) {
        memcpy(builder->frame + offset, bytes != NULL ? bytes : zeros,
                RPS_PROOF_BYTES);
    }
    return offset;
}

const uint8_t *
rps_auth_find(const struct rps_message *message)
{
    const struct rps_section *found = NULL;

    for (uint32_t i = 0; i < message->section_count; i++) {
        const struct rps_section *section = &message->sections[i];

        if (section->kind == RPS_SECTION_AUTH) {
            if (found != NULL || section->bytes != RPS_PROOF_BYTES) {
                return NULL;
            }
            found = section;
        }
    }
    return found != NULL ? rps_message_array(message, found) : NULL;
}

#ifdef RPS_HAVE_OPENSSL

static const char labels[][LABEL_BYTES + 1] = {
        [RPS_PROVER_CLIENT] = "recps/1 client  ",
        [RPS_PROVER_SERVER] = "recps/1 server  ",
};

rps_status
rps_auth_built(struct rps_error *error)
{
    return RPS_OK;
}

rps_status
rps_auth_draw(uint8_t nonce[RPS_NONCE_BYTES], struct rps_error *error)
{
    if (RAND_bytes(nonce, RPS_NONCE_BYTES) != 1) {
        return rps_fail(error, RPS_E_IO, "no randomness for a challenge");
    }
    return RPS_OK;
}

/* The frame around the proof's place, and zeros in it. */
static bool
mac_frame(EVP_MAC_CTX *mac, const uint8_t *frame, size_t frame_bytes,
        size_t proof_offset)
{
    static const uint8_t zeros[RPS_PROOF_BYTES];
    const size_t after = proof_offset + RPS_PROOF_BYTES;

    return EVP_MAC_update(mac, frame, proof_offset) == 1 &&
           EVP_MAC_update(mac, zeros, sizeof(zeros)) == 1 &&
           EVP_MAC_update(mac, frame + after, frame_bytes - after) == 1;
}

static bool
mac_all(EVP_MAC_CTX *mac, const struct rps_secret *token,
        enum rps_prover prover, const struct rps_nonces *nonces,
        const uint8_t *frame, size_t frame_bytes, size_t proof_offset,
        uint8_t proof[RPS_PROOF_BYTES])
{
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {
            OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
            OSSL_PARAM_construct_end()};
    size_t written = 0;

    return EVP_MAC_init(mac, token->bytes, token->length, params) == 1 &&
           EVP_MAC_update(mac, (const uint8_t *)labels[prover], LABEL_BYTES) ==
                   1 &&
           EVP_MAC_update(mac, nonces->client, RPS_NONCE_BYTES) == 1 &&
           EVP_MAC_update(mac, nonces->server, RPS_NONCE_BYTES) == 1 &&
           mac_frame(mac, frame, frame_bytes, proof_offset) &&
           EVP_MAC_final(mac, proof, &written, RPS_PROOF_BYTES) == 1 &&
           written == RPS_PROOF_BYTES;
}

static rps_status
compute(const struct rps_secret *token, enum rps_prover prover,
        const struct rps_nonces *nonces, const uint8_t *frame,
        size_t frame_bytes, size_t proof_offset, uint8_t proof[RPS_PROOF_BYTES],
        struct rps_error *error)
{
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *mac = hmac != NULL ? EVP_MAC_CTX_new(hmac) : NULL;
    bool good = mac != NULL && mac_all(mac, token, prover, nonces, frame,
                                       frame_bytes, proof_offset, proof);

    EVP_MAC_CTX_free(mac);
    EVP_MAC_free(hmac);
    return good ? RPS_OK
                : rps_fail(error, RPS_E_NOMEM,
                          "OpenSSL computes no HMAC-SHA-256 here");
}

rps_status
rps_auth_sign(const struct rps_secret *token, enum rps_prover prover,
        const struct rps_nonces *nonces, uint8_t *frame, size_t frame_bytes,
        size_t proof_offset, struct rps_error *error)
{
    uint8_t proof[RPS_PROOF_BYTES];
    rps_status status = compute(token, prover, nonces, frame, frame_bytes,
            proof_offset, proof, error);

    if (status == RPS_OK) {
        memcpy(frame + proof_offset, proof, sizeof(proof));
    }
    return status;
}

rps_status
rps_auth_verify(const struct rps_secret *token, enum rps_prover prover,
        const struct rps_nonces *nonces, const struct rps_message *message,
        struct rps_error *error)
{
    const uint8_t *given = rps_auth_find(message);
    const size_t frame_bytes =
            RPS_HEADER_BYTES + (size_t)message->header.body_bytes;
    uint8_t proof[RPS_PROOF_BYTES];
    rps_status status;

    if (given == NULL) {
        return rps_fail(error, RPS_E_AUTH, "no proof of the token");
    }
    status = compute(token, prover, nonces, message->frame, frame_bytes,
            (size_t)(given - message->frame), proof, error);
    if (status == RPS_OK && CRYPTO_memcmp(given, proof, sizeof(proof)) != 0) {
        status = rps_fail(error, RPS_E_AUTH, "the proof of the token is wrong");
    }
    OPENSSL_cleanse(proof, sizeof(proof));
    return status;
}

#else /* !RPS_HAVE_OPENSSL */

rps_status
rps_auth_built(struct rps_error *error)
{
    return rps_fail(error, RPS_E_UNSUPPORTED,
            "this recps was built without OpenSSL (Meson option openssl): it "
            "knows no tokens");
}

rps_status
rps_auth_draw(uint8_t nonce[RPS_NONCE_BYTES], struct rps_error *error)
{
    memset(nonce, 0, RPS_NONCE_BYTES);
    return rps_auth_built(error);
}

rps_status
rps_auth_sign(const struct rps_secret *token, enum rps_prover prover,
        const struct rps_nonces *nonces, uint8_t *frame, size_t frame_bytes,
        size_t proof_offset, struct rps_error *error)
{
    return rps_auth_built(error);
}

rps_status
rps_auth_verify(const struct rps_secret *token, enum rps_prover prover,
        const struct rps_nonces *nonces, const struct rps_message *message,
        struct rps_error *error)
{
    return rps_auth_built(error);
}

#endif
