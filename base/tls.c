/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tls.h"

#include "base/secret.h"
#include "base/tls_words.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static bool
is_given(const char *path)
{
    return path != NULL && path[0] != '\0';
}

bool
rps_tls_is_asked(const struct rps_tls_files *files)
{
    return is_given(files->cert) || is_given(files->key) || is_given(files->ca);
}

rps_status
rps_tls_check_given(enum rps_tls_side side, const struct rps_tls_files *files,
        struct rps_error *error)
{
    if (is_given(files->cert) != is_given(files->key)) {
        return rps_fail(error, RPS_E_INVAL,
                "--tls-cert and --tls-key go together: %s is missing",
                is_given(files->cert) ? "--tls-key" : "--tls-cert");
    }
    if (side == RPS_TLS_SERVER && !is_given(files->cert)) {
        return rps_fail(error, RPS_E_INVAL,
                "--tls-ca alone is a client's: a server needs --tls-cert and "
                "--tls-key, too");
    }
    if (side == RPS_TLS_CLIENT && !is_given(files->ca)) {
        return rps_fail(error, RPS_E_INVAL,
                "--tls-cert and --tls-key without --tls-ca: give the CA by "
                "which the server is known");
    }
    return RPS_OK;
}

#ifdef RPS_HAVE_OPENSSL
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#define WHY_BYTES      384u
#define CERT_CHAIN_MAX (32L << 10) /* bytes of a peer's certificates */

struct rps_tls_context {
    atomic_uint users; /* who created it, and each connection */
    SSL_CTX *ssl;
    BIO_METHOD *socket;
    enum rps_tls_side side;
};

struct rps_tls {
    struct rps_tls_context *context;
    SSL *ssl;
    int fd;
    bool used;
    bool failed; /* OpenSSL must not be asked again */
    bool read_waits_to_write;
    bool write_waits_to_read;
    char why[WHY_BYTES];
};

rps_status
rps_tls_built(struct rps_error *error)
{
    return RPS_OK;
}

/* ---- a socket as OpenSSL sees it: its own BIO would raise SIGPIPE ---- */

static int
socket_write(BIO *bio, const char *bytes, int n)
{
    const struct rps_tls *tls = BIO_get_data(bio);
    ssize_t sent = send(tls->fd, bytes, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);

    BIO_clear_retry_flags(bio);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
        BIO_set_retry_write(bio);
    }
    return (int)sent;
}

static int
socket_read(BIO *bio, char *bytes, int n)
{
    const struct rps_tls *tls = BIO_get_data(bio);
    ssize_t got = recv(tls->fd, bytes, (size_t)n, MSG_DONTWAIT);

    BIO_clear_retry_flags(bio);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        BIO_set_retry_read(bio);
    } else if (got == 0) {
        BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    }
    return (int)got;
}

static long
socket_control(BIO *bio, int command, long number, void *pointer)
{
    (void)number;
    (void)pointer;
    switch (command) {
    case BIO_CTRL_FLUSH:
        return 1;
    case BIO_CTRL_EOF:
        return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
    default:
        return 0;
    }
}

static BIO_METHOD *
socket_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "recps socket");

    if (method != NULL && BIO_meth_set_write(method, socket_write) == 1 &&
            BIO_meth_set_read(method, socket_read) == 1 &&
            BIO_meth_set_ctrl(method, socket_control) == 1) {
        return method;
    }
    BIO_meth_free(method);
    return NULL;
}

/* ---- files ---- */

/* The first of OpenSSL's errors, without its numbers. */
static const char *
reason_of_openssl(void)
{
    const unsigned long code = ERR_peek_error();
    const char *reason = code == 0 ? NULL : ERR_reason_error_string(code);

    if (reason == NULL && ERR_SYSTEM_ERROR(code)) {
        reason = strerror(ERR_GET_REASON(code));
    }
    return reason != NULL ? reason : "no reason given";
}

static rps_status
bad_file(struct rps_error *error, const char *what, const char *path)
{
    const char *words = rps_tls_file_words(ERR_peek_error());

    return words == NULL ? rps_fail(error, RPS_E_AUTH, "%s %s: %s", what, path,
                                   reason_of_openssl())
                         : rps_fail(error, RPS_E_AUTH, "%s %s: %s (%s)", what,
                                   path, words, reason_of_openssl());
}

/* Never asks at the terminal. */
static int
no_password(char *into, int size, int writing, void *context)
{
    (void)into;
    (void)size;
    (void)writing;
    (void)context;
    return -1;
}

static rps_status
check_dates(SSL_CTX *ssl, const char *path, struct rps_error *error)
{
    const X509 *own = SSL_CTX_get0_certificate(ssl);

    if (X509_cmp_current_time(X509_get0_notAfter(own)) < 0) {
        return rps_fail(error, RPS_E_AUTH,
                "--tls-cert %s has expired: no peer would take it", path);
    }
    return RPS_OK;
}

static rps_status
load_own(SSL_CTX *ssl, const struct rps_tls_files *files,
        struct rps_error *error)
{
    rps_status status = rps_secret_check("--tls-key", files->key, error);

    if (status != RPS_OK) {
        return status;
    }
    if (SSL_CTX_use_certificate_chain_file(ssl, files->cert) != 1) {
        return bad_file(error, "--tls-cert", files->cert);
    }
    if (SSL_CTX_use_PrivateKey_file(ssl, files->key, SSL_FILETYPE_PEM) != 1 ||
            SSL_CTX_check_private_key(ssl) != 1) {
        return bad_file(error,
                "--tls-key (a PEM file without a password, of --tls-cert's "
                "key)",
                files->key);
    }
    return check_dates(ssl, files->cert, error);
}

static rps_status
load(struct rps_tls_context *context, const struct rps_tls_files *files,
        struct rps_error *error)
{
    SSL_CTX *ssl = context->ssl;
    rps_status status = RPS_OK;

    SSL_CTX_set_default_passwd_cb(ssl, no_password);
    if (is_given(files->cert)) {
        status = load_own(ssl, files, error);
    }
    if (status != RPS_OK || !is_given(files->ca)) {
        return status;
    }
    if (SSL_CTX_load_verify_file(ssl, files->ca) != 1) {
        return bad_file(error, "--tls-ca", files->ca);
    }
    SSL_CTX_set_verify(
            ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    if (context->side == RPS_TLS_SERVER) { /* tells clients what to bring */
        STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(files->ca);

        if (names == NULL) {
            return bad_file(error, "--tls-ca", files->ca);
        }
        SSL_CTX_set_client_CA_list(ssl, names);
    }
    return RPS_OK;
}

/* No resumption: a connection lives long, and each proves itself anew. */
static bool
settle(SSL_CTX *ssl)
{
    SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_max_cert_list(ssl, CERT_CHAIN_MAX);
    return SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_num_tickets(ssl, 0) == 1;
}

rps_status
rps_tls_context_create(struct rps_tls_context **context_out,
        enum rps_tls_side side, const struct rps_tls_files *files,
        struct rps_error *error)
{
    rps_status status = rps_tls_check_given(side, files, error);
    struct rps_tls_context *context;

    *context_out = NULL;
    if (status != RPS_OK) {
        return status;
    }
    ERR_clear_error();
    context = calloc(1, sizeof(*context));
    if (context == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for TLS");
    }
    atomic_init(&context->users, 1);
    context->side = side;
    context->socket = socket_method();
    context->ssl = SSL_CTX_new(
            side == RPS_TLS_SERVER ? TLS_server_method() : TLS_client_method());
    status = context->socket == NULL || context->ssl == NULL ||
                             !settle(context->ssl)
                     ? rps_fail(error, RPS_E_NOMEM, "OpenSSL has no TLS 1.3")
                     : load(context, files, error);
    ERR_clear_error();
    if (status != RPS_OK) {
        rps_tls_context_destroy(context);
        return status;
    }
    *context_out = context;
    return RPS_OK;
}

void
rps_tls_context_destroy(struct rps_tls_context *context)
{
    if (context != NULL && atomic_fetch_sub(&context->users, 1) == 1) {
        SSL_CTX_free(context->ssl);
        BIO_meth_free(context->socket);
        free(context);
    }
}

/* ---- a connection ---- */

/* The certificate must name the address that was asked for. */
static bool
expect_host(SSL *ssl, const char *host)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
    uint8_t numeric[16];

    if (inet_pton(AF_INET, host, numeric) == 1 ||
            inet_pton(AF_INET6, host, numeric) == 1) {
        return X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1;
    }
    return SSL_set1_host(ssl, host) == 1 &&
           SSL_set_tlsext_host_name(ssl, host) == 1;
}

static bool
make(struct rps_tls *tls, const char *host)
{
    BIO *bio;

    tls->ssl = SSL_new(tls->context->ssl);
    if (tls->ssl == NULL) {
        return false;
    }
    bio = BIO_new(tls->context->socket);
    if (bio == NULL) {
        return false;
    }
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
    if (tls->context->side == RPS_TLS_SERVER) {
        SSL_set_accept_state(tls->ssl);
        return true;
    }
    SSL_set_connect_state(tls->ssl);
    return host == NULL || expect_host(tls->ssl, host);
}

struct rps_tls *
rps_tls_open(struct rps_tls_context *context, int fd, const char *host)
{
    struct rps_tls *tls = calloc(1, sizeof(*tls));

    if (tls == NULL) {
        return NULL;
    }
    atomic_fetch_add(&context->users, 1);
    tls->context = context;
    tls->fd = fd;
    if (!make(tls, host)) {
        rps_tls_close(tls);
        return NULL;
    }
    return tls;
}

static void
put_why(struct rps_tls *tls, const char *begin, const char *words,
        const char *of_openssl)
{
    (void)snprintf(tls->why, sizeof(tls->why),
            words != NULL ? "%s: %s (%s)" : "%s: %s%s", begin,
            words != NULL ? words : "", of_openssl);
}

/* What is wrong and whose matter it is, then what OpenSSL says. */
static void
keep_why(struct rps_tls *tls)
{
    const long verdict = SSL_get_verify_result(tls->ssl);
    const enum rps_tls_side side = tls->context->side;

    tls->failed = true;
    if (verdict != X509_V_OK && !tls->used) {
        put_why(tls, "the peer's certificate is refused",
                rps_tls_verdict_words(verdict, side),
                X509_verify_cert_error_string(verdict));
    } else {
        put_why(tls, "TLS", rps_tls_failure_words(ERR_peek_error(), side),
                reason_of_openssl());
    }
    ERR_clear_error();
}

/* The result of a read or write that moved nothing. */
static ssize_t
judge(struct rps_tls *tls, int result, int system_error)
{
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_SYSCALL:
        tls->failed = true;
        (void)snprintf(tls->why, sizeof(tls->why), "%s",
                system_error != 0 ? strerror(system_error)
                                  : "the connection was cut");
        errno = system_error != 0 ? system_error : ECONNRESET;
        return -1;
    default:
        keep_why(tls);
        errno = EPROTO;
        return -1;
    }
}

/* OpenSSL must not be asked after a failure, nor with errors of before. */
static bool
may_ask(const struct rps_tls *tls)
{
    if (tls->failed) {
        errno = EPROTO;
        return false;
    }
    ERR_clear_error();
    errno = 0;
    return true;
}

ssize_t
rps_tls_read(struct rps_tls *tls, void *bytes, size_t n)
{
    size_t got = 0;
    int result;

    if (!may_ask(tls)) {
        return -1;
    }
    result = SSL_read_ex(tls->ssl, bytes, n, &got);
    tls->read_waits_to_write = false;
    if (result == 1) {
        tls->used = true;
        return (ssize_t)got;
    }
    tls->read_waits_to_write = SSL_want_write(tls->ssl);
    return judge(tls, result, errno);
}

ssize_t
rps_tls_write(struct rps_tls *tls, const void *bytes, size_t n)
{
    size_t sent = 0;
    int result;

    if (!may_ask(tls)) {
        return -1;
    }
    result = SSL_write_ex(tls->ssl, bytes, n, &sent);
    tls->write_waits_to_read = false;
    if (result == 1) {
        return (ssize_t)sent;
    }
    tls->write_waits_to_read = SSL_want_read(tls->ssl);
    if (judge(tls, result, errno) == 0) {
        errno = EPIPE; /* who has ended does not read, either */
    }
    return -1;
}

bool
rps_tls_has_pending(const struct rps_tls *tls)
{
    return SSL_pending(tls->ssl) > 0;
}

bool
rps_tls_read_waits_to_write(const struct rps_tls *tls)
{
    return tls->read_waits_to_write;
}

bool
rps_tls_write_waits_to_read(const struct rps_tls *tls)
{
    return tls->write_waits_to_read;
}

bool
rps_tls_is_used(const struct rps_tls *tls)
{
    return tls->used;
}

const char *
rps_tls_why(const struct rps_tls *tls)
{
    return tls->why;
}

void
rps_tls_say_end(struct rps_tls *tls)
{
    if (!tls->failed && SSL_is_init_finished(tls->ssl)) {
        ERR_clear_error();
        (void)SSL_shutdown(tls->ssl); /* once: nobody waits for the answer */
        tls->failed = true;
        ERR_clear_error();
    }
}

void
rps_tls_close(struct rps_tls *tls)
{
    if (tls != NULL) {
        SSL_free(tls->ssl); /* its BIO, too */
        rps_tls_context_destroy(tls->context);
        free(tls);
    }
}

#else /* !RPS_HAVE_OPENSSL */

rps_status
rps_tls_built(struct rps_error *error)
{
    return rps_fail(error, RPS_E_UNSUPPORTED,
            "this recps was built without OpenSSL (Meson option openssl): it "
            "knows no TLS");
}

rps_status
rps_tls_context_create(struct rps_tls_context **context_out,
        enum rps_tls_side side, const struct rps_tls_files *files,
        struct rps_error *error)
{
    *context_out = NULL;
    return rps_tls_built(error);
}

void
rps_tls_context_destroy(struct rps_tls_context *context)
{
}

/* Without a context nobody gets to the others. */

struct rps_tls *
rps_tls_open(struct rps_tls_context *context, int fd, const char *host)
{
    return NULL;
}

ssize_t
rps_tls_read(struct rps_tls *tls, void *bytes, size_t n)
{
    errno = EPROTO;
    return -1;
}

ssize_t
rps_tls_write(struct rps_tls *tls, const void *bytes, size_t n)
{
    errno = EPROTO;
    return -1;
}

bool
rps_tls_has_pending(const struct rps_tls *tls)
{
    return false;
}

bool
rps_tls_read_waits_to_write(const struct rps_tls *tls)
{
    return false;
}

bool
rps_tls_write_waits_to_read(const struct rps_tls *tls)
{
    return false;
}

bool
rps_tls_is_used(const struct rps_tls *tls)
{
    return false;
}

const char *
rps_tls_why(const struct rps_tls *tls)
{
    return "";
}

void
rps_tls_say_end(struct rps_tls *tls)
{
}

void
rps_tls_close(struct rps_tls *tls)
{
}

#endif
