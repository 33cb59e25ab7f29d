/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the two ends of a connection prove to each other that they have the
 * token, without showing it:
 *
 *   client                                        server
 *     AUTH   nonce c (32 random bytes)        ->
 *                                             <-  nonce s (32 random bytes)
 *     HELLO  text, proof of the client        ->
 *                                             <-  text, proof of the server
 *
 *   proof = HMAC-SHA-256(token, label | c | s | frame)
 *
 * where `frame` is the frame that carries the proof, header and all, with
 * zeros in the proof's place. So nobody between the two can change a bit of
 * HELLO or of its answer, and a recorded HELLO is worth nothing: s is drawn
 * once a connection and good for one HELLO. The labels differ, so that no
 * proof can be sent back. The server answers nothing about itself before the
 * client's proof was right.
 *
 * Without OpenSSL everything here is UNSUPPORTED.
 */
#ifndef RPS_PROTO_AUTH_H
#define RPS_PROTO_AUTH_H

#include "base/secret.h"
#include "proto/message.h"

#include <stddef.h>
#include <stdint.h>

#define RPS_NONCE_BYTES 32u
#define RPS_PROOF_BYTES 32u /* of SHA-256 */

/** Of one connection, at either end. Zeroed: none. */
struct rps_nonces {
    uint8_t client[RPS_NONCE_BYTES];
    uint8_t server[RPS_NONCE_BYTES];
};

/** Who proves. */
enum rps_prover {
    RPS_PROVER_CLIENT,
    RPS_PROVER_SERVER
};

/** OK; UNSUPPORTED where recps was built without OpenSSL. */
rps_status rps_auth_built(struct rps_error *error);

/** Draw a nonce. UNSUPPORTED, IO (no randomness). */
rps_status rps_auth_draw(
        uint8_t nonce[RPS_NONCE_BYTES], struct rps_error *error);

/**
 * Add a section of 32 bytes: a nonce, or zeros (NULL) where the proof will
 * be. Its offset in the frame, 0 where the builder failed.
 */
size_t rps_auth_add(struct rps_builder *builder, const uint8_t *bytes);

/**
 * The message's one AUTH section; NULL: there is none, more than one, or it
 * has not 32 bytes. Points into the frame.
 */
const uint8_t *rps_auth_find(const struct rps_message *message);

/** Write the proof of a built frame to its place. UNSUPPORTED, NOMEM. */
rps_status rps_auth_sign(const struct rps_secret *token, enum rps_prover prover,
        const struct rps_nonces *nonces, uint8_t *frame, size_t frame_bytes,
        size_t proof_offset, struct rps_error *error);

/**
 * Is the message's proof right? OK; AUTH: it is missing or wrong.
 * Takes as long for every wrong proof.
 */
rps_status rps_auth_verify(const struct rps_secret *token,
        enum rps_prover prover, const struct rps_nonces *nonces,
        const struct rps_message *message, struct rps_error *error);

#endif /* RPS_PROTO_AUTH_H */
