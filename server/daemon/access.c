/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/access.h"

#include "base/log.h"
#include "proto/auth.h"
#include "server/daemon/daemon.h"

#include <string.h>

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

/* "none" beside a token is a slip: which of the two is meant? */
static int
check_words(const struct rps_options *options)
{
    if (asks_nothing(options) && is_given(options->token_file)) {
        rps_log(RPS_LOG_ERROR, "bad_auth",
                "--auth=none and --token-file contradict each other: leave "
                "one of them out");
        return RPS_EXIT_USAGE;
    }
    return RPS_EXIT_OK;
}

static int
read_token(struct rps_access *access, const struct rps_options *options)
{
    struct rps_error error = {.text = ""};
    rps_status status = rps_auth_built(&error);

    if (status == RPS_OK) {
        status = rps_secret_read(&access->token, options->token_file, &error);
    }
    if (status != RPS_OK) {
        rps_log(RPS_LOG_ERROR, "token_file", "%s", error.text);
        return RPS_EXIT_OPEN;
    }
    return RPS_EXIT_OK;
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
            "give --auth=none if every peer that can reach this port may read "
            "and change the tables",
            where);
    return RPS_EXIT_OPEN;
}

int
rps_access_init(struct rps_access *access, const struct rps_options *options,
        const struct rps_listen_plan *plan)
{
    int code = check_words(options);

    *access = (struct rps_access){0};
    if (code == RPS_EXIT_OK && is_given(options->token_file)) {
        code = read_token(access, options);
    }
    if (code == RPS_EXIT_OK && !plan->loopback && access->token.length == 0 &&
            !asks_nothing(options)) {
        code = refuse_open(plan);
    }
    return code;
}

const char *
rps_access_str(const struct rps_access *access)
{
    return access->token.length > 0 ? "token" : "none";
}

void
rps_access_finish(struct rps_access *access)
{
    rps_secret_finish(&access->token);
}
