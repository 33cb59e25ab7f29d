/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recpsd --check-config, beyond TF_CONFIG: where it would listen, whether its
 * secrets can be read and checkpoints written. Nothing is bound or kept.
 */
#include "base/log.h"
#include "base/text.h"
#include "server/daemon/access.h"
#include "server/daemon/daemon_impl.h"
#include "server/service.h"

#include <stdlib.h>
#include <string.h>

/* "0.0.0.0:2222, [::]:2222"; free(). */
static char *
addresses_text(const struct rps_listen_plan *plan)
{
    struct rps_text text = {.bytes = NULL};
    char one[RPS_ADDRESS_TEXT_BYTES];

    for (uint32_t i = 0; i < plan->count; i++) {
        const struct rps_listen_address *at = &plan->addresses[i];

        rps_text_add(&text, "%s%s", i > 0 ? ", " : "",
                rps_address_text((const struct sockaddr *)&at->storage,
                        at->length, one));
    }
    return text.bytes;
}

static int
print(const struct rps_options *options, const struct rps_access *access,
        const struct rps_listen_plan *plan, bool is_open)
{
    char *listen = addresses_text(plan);
    struct rps_check_more more = {
            .listen = listen != NULL ? listen : "?",
            .auth = is_open ? "none: it would refuse to start (exit code 77); "
                              "give --token-file, --tls-ca or --auth=none"
                            : rps_access_str(access),
            .admin = options->admin,
            .start = is_open ? RPS_EXIT_OPEN : RPS_EXIT_OK,
    };
    int code;

    code = rps_check_config_print(options, &more);
    free(listen);
    return code;
}

static int
check_folder(const struct rps_options *options)
{
    const char *dir = rps_daemon_checkpoint_dir(options);
    struct rps_error error = {.text = ""};

    if (rps_daemon_serve_dir(options) != NULL) {
        return rps_daemon_check_serve(options);
    }
    if (dir == NULL && strcmp(options->start_from, "newest") == 0) {
        rps_log(RPS_LOG_ERROR, "start_failed",
                "--start-from newest: there is no checkpoint_dir to begin "
                "from");
        return RPS_EXIT_USAGE;
    }
    if (dir != NULL && rps_service_probe_dir(dir, &error) != RPS_OK) {
        rps_log(RPS_LOG_ERROR, "checkpoint_dir", "--checkpoint-dir: %s",
                error.text);
        return RPS_EXIT_CHECKPOINT_DIR;
    }
    return RPS_EXIT_OK;
}

static int
refuse(const struct rps_options *options, int exit_code, const char *code)
{
    return rps_check_config_refuse(
            options, exit_code, code, "the words are on stderr");
}

/* An open port is told and does not end the check: where it is made, in an
 * init container say, the secret need not be. */
static int
check_rest(const struct rps_options *options, struct rps_listen_plan *plan)
{
    const bool asks_nothing =
            options->auth != NULL && options->auth[0] != '\0'; /* "none" */
    const bool may_be_open = !plan->loopback && !asks_nothing;
    struct rps_access access;
    int code;

    plan->loopback = true;
    code = rps_access_init(&access, options, plan);
    if (code != RPS_EXIT_OK) {
        code = refuse(options, code, "E_ACCESS");
        goto out;
    }
    code = check_folder(options);
    code = code != RPS_EXIT_OK
                   ? refuse(options, code, "E_CHECKPOINT")
                   : print(options, &access, plan,
                             may_be_open && access.token.length == 0 &&
                                     !access.wants_certificates);
out:
    rps_access_finish(&access);
    return code;
}

int
rps_daemon_check(const struct rps_options *options)
{
    struct rps_listen_plan plan;
    bool off;
    int code;

    if (options->cluster.role != RPS_ROLE_PS &&
            options->cluster.role != RPS_ROLE_LOCAL) {
        return rps_check_config_print(options, NULL);
    }
    rps_log_init(RPS_LOG_WARN, RPS_LOG_TEXT);
    code = rps_daemon_check_address(options, &plan);
    if (code == RPS_EXIT_OK) {
        code = rps_daemon_check_admin(options, &plan, &off);
    }
    return code != RPS_EXIT_OK ? refuse(options, code, "E_ADDRESS")
                               : check_rest(options, &plan);
}
