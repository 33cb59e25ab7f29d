/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/access.h"

#include "base/log.h"
#include "proto/auth.h"
#include "server/daemon/daemon.h"

#include <string.h>

/** What the options' files hold. */
struct files {
    struct rps_secret token;
    struct rps_tls_context *tls;
};

static bool
is_given(const char *text)
{
    return text != NULL && text[0] != '\0';
}

static bool
asks_nothing(const struct rps_options *options)
{
    return options->auth != NULL && strcmp(options->auth, "none") == 0;
}

static void
files_finish(struct files *files)
{
    rps_secret_finish(&files->token);
    rps_tls_context_destroy(files->tls);
    files->tls = NULL;
}

/* "none" beside what asks for something is a slip: which one is meant? */
static int
check_words(const struct rps_options *options)
{
    const char *other = NULL;

    if (is_given(options->tls_ca)) {
        other = "--tls-ca, which asks for certificates,";
    }
    if (is_given(options->token_file)) {
        other = "--token-file";
    }
    if (asks_nothing(options) && other != NULL) {
        rps_log(RPS_LOG_ERROR, "bad_auth",
                "--auth=none and %s contradict each other: leave one of them "
                "out",
                other);
        return RPS_EXIT_USAGE;
    }
    return RPS_EXIT_OK;
}

static rps_status
read_files(struct files *files, const struct rps_options *options,
        struct rps_error *error)
{
    const struct rps_tls_files paths = {.cert = options->tls_cert,
            .key = options->tls_key,
            .ca = options->tls_ca};
    rps_status status = RPS_OK;

    *files = (struct files){0};
    if (is_given(options->token_file)) {
        status = rps_auth_built(error);
        if (status == RPS_OK) {
            status = rps_secret_read(
                    &files->token, "--token-file", options->token_file, error);
        }
    }
    if (status == RPS_OK && rps_tls_is_asked(&paths)) {
        status = rps_tls_context_create(
                &files->tls, RPS_TLS_SERVER, &paths, error);
    }
    if (status != RPS_OK) {
        files_finish(files);
    }
    return status;
}

static int
refuse_open(const struct rps_listen_plan *plan)
{
    char where[RPS_ADDRESS_TEXT_BYTES] = "";

    for (uint32_t i = 0; i < plan->count; i++) {
        const struct rps_listen_address *at = &plan->addresses[i];

        rps_address_text(
                (const struct sockaddr *)&at->storage, at->length, where);
        if (!rps_address_is_loopback(&at->storage)) {
            break;
        }
    }
    rps_log(RPS_LOG_ERROR, "open_listen",
            "refusing to listen on %s, beyond the loopback, without "
            "authentication: give every member of the job the same "
            "--token-file (openssl rand -hex 32 >FILE; chmod 600 FILE), or "
            "certificates (--tls-cert, --tls-key and --tls-ca), or "
            "give --auth=none if every peer that can reach this port may read "
            "and change the tables",
            where);
    return RPS_EXIT_OPEN;
}

int
rps_access_init(struct rps_access *access, const struct rps_options *options,
        const struct rps_listen_plan *plan)
{
    struct rps_error error = {.text = ""};
    struct files files = {0};
    rps_status status;
    int code = check_words(options);

    *access = (struct rps_access){.options = options};
    pthread_mutex_init(&access->lock, NULL);
    if (code != RPS_EXIT_OK) {
        return code;
    }
    status = read_files(&files, options, &error);
    if (status != RPS_OK) {
        rps_log(RPS_LOG_ERROR, "access_files", "%s", error.text);
        return status == RPS_E_INVAL ? RPS_EXIT_USAGE : RPS_EXIT_OPEN;
    }
    access->token = files.token;
    access->tls = files.tls;
    access->wants_certificates = is_given(options->tls_ca);
    if (!plan->loopback && access->token.length == 0 &&
            !access->wants_certificates && !asks_nothing(options)) {
        return refuse_open(plan);
    }
    return RPS_EXIT_OK;
}

bool
rps_access_reload(struct rps_access *access, struct rps_service *service)
{
    struct rps_error error = {.text = ""};
    struct files files;
    rps_status status = read_files(&files, access->options, &error);

    if (status == RPS_OK) {
        status = rps_service_set_token(service, &files.token, &error);
    }
    if (status != RPS_OK) {
        files_finish(&files);
        rps_log(RPS_LOG_ERROR, "access_files", "%s; nothing is changed",
                error.text);
        return false;
    }
    rps_secret_finish(&access->token);
    access->token = files.token;
    files.token = (struct rps_secret){0};
    pthread_mutex_lock(&access->lock);
    {
        struct rps_tls_context *old = access->tls;

        access->tls = files.tls;
        files.tls = old;
    }
    pthread_mutex_unlock(&access->lock);
    files_finish(&files);
    rps_log(RPS_LOG_INFO, "access_files", "read again: auth=%s",
            rps_access_str(access));
    return true;
}

bool
rps_access_open_tls(struct rps_access *access, int fd, struct rps_tls **tls_out)
{
    bool good = true;

    *tls_out = NULL;
    pthread_mutex_lock(&access->lock);
    if (access->tls != NULL) {
        *tls_out = rps_tls_open(access->tls, fd, NULL);
        good = *tls_out != NULL;
    }
    pthread_mutex_unlock(&access->lock);
    return good;
}

const char *
rps_access_str(const struct rps_access *access)
{
    const bool token = access->token.length > 0;

    if (access->wants_certificates) {
        return token ? "token+mtls" : "mtls";
    }
    if (access->tls != NULL) { /* NULL or not never changes */
        return token ? "token+tls" : "tls";
    }
    return token ? "token" : "none";
}

void
rps_access_finish(struct rps_access *access)
{
    rps_secret_finish(&access->token);
    rps_tls_context_destroy(access->tls);
    pthread_mutex_destroy(&access->lock);
}
