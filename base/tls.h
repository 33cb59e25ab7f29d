/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS 1.3 over a non-blocking socket that its user owns and polls: read and
 * write stand in for recv(2) and send(2), and the handshake happens inside
 * them. One implementation for recpsd and librecps, on OpenSSL; without it
 * everything here is UNSUPPORTED. No signal, no callback, no thread of its
 * own.
 */
#ifndef RPS_BASE_TLS_H
#define RPS_BASE_TLS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/** PEM files; NULL or "": not given. */
struct rps_tls_files {
    const char *cert; /* own certificate, and what leads to the CA */
    const char *key;  /* its key: base/secret.h's rules */
    const char *ca;   /* who signs the peers' certificates */
};

enum rps_tls_side {
    RPS_TLS_SERVER, /* needs cert and key; with a ca it wants the peer's */
    RPS_TLS_CLIENT  /* needs a ca; cert and key where the server wants them */
};

struct rps_tls_context; /* the files, read; shared by connections */
struct rps_tls;         /* one connection */

/** OK; UNSUPPORTED where recps was built without OpenSSL. */
rps_status rps_tls_built(struct rps_error *error);

/** Is any of the files given? */
bool rps_tls_is_asked(const struct rps_tls_files *files);

/** INVAL, naming the option: one is missing beside another, or for this side.
 * Of files of which one is given. */
rps_status rps_tls_check_given(enum rps_tls_side side,
        const struct rps_tls_files *files, struct rps_error *error);

/**
 * Read and check the files. INVAL: one is missing beside another; AUTH: one
 * cannot be read, does not belong to another, or has expired; UNSUPPORTED,
 * NOMEM.
 */
rps_status rps_tls_context_create(struct rps_tls_context **context_out,
        enum rps_tls_side side, const struct rps_tls_files *files,
        struct rps_error *error);

/** Connections of it live on. NULL is allowed. */
void rps_tls_context_destroy(struct rps_tls_context *context);

/**
 * A connection over fd, which stays the caller's. host: whom the client wants
 * to reach, a name or a numeric address, which the certificate must name; NULL
 * at the server. NULL: no memory.
 */
struct rps_tls *rps_tls_open(
        struct rps_tls_context *context, int fd, const char *host);

/**
 * As recv and send: bytes, 0 = the peer's end (read), -1 with errno; EAGAIN:
 * poll and try again; EPROTO: rps_tls_why() has the words.
 */
ssize_t rps_tls_read(struct rps_tls *tls, void *bytes, size_t n);
ssize_t rps_tls_write(struct rps_tls *tls, const void *bytes, size_t n);

/** Bytes were read that no read has asked for: poll(2) knows nothing of them.
 */
bool rps_tls_has_pending(const struct rps_tls *tls);

/** A read waits until the socket can be written: try it again then. */
bool rps_tls_read_waits_to_write(const struct rps_tls *tls);

/** A write waits until the socket can be read: do not poll to write. */
bool rps_tls_write_waits_to_read(const struct rps_tls *tls);

/** Has the peer's first byte come? Before, a failure is a refusal. */
bool rps_tls_is_used(const struct rps_tls *tls);

const char *rps_tls_why(const struct rps_tls *tls);

/** Tell the peer that nothing more comes, if the socket takes it now. */
void rps_tls_say_end(struct rps_tls *tls);

/** NULL is allowed. */
void rps_tls_close(struct rps_tls *tls);

#endif /* RPS_BASE_TLS_H */
