/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recpsd --check-config, beyond TF_CONFIG: where it would listen, and whether
 * its secrets can be read. Nothing is bound.
 */
#include "base/log.h"
#include "base/text.h"
#include "server/daemon/access.h"
#include "server/daemon/daemon_impl.h"

#include <stdlib.h>

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
    };
    int code;

    code = rps_check_config_print(options, &more);
    free(listen);
    return code;
}

int
rps_daemon_check(const struct rps_options *options)
{
    const bool asks_nothing =
            options->auth != NULL && options->auth[0] != '\0'; /* "none" */
    struct rps_access access;
    struct rps_listen_plan plan;
    bool is_open;
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
    if (code != RPS_EXIT_OK) {
        return rps_check_config_refuse(
                options, code, "E_ADDRESS", "the words are on stderr");
    }
    is_open = !plan.loopback && !asks_nothing;
    plan.loopback = true; /* an open port is told, it does not end the check */
    code = rps_access_init(&access, options, &plan);
    if (code == RPS_EXIT_OK) {
        is_open = is_open && access.token.length == 0 &&
                  !access.wants_certificates;
        code = print(options, &access, &plan, is_open);
    } else {
        code = rps_check_config_refuse(
                options, code, "E_ACCESS", "the words are on stderr");
    }
    rps_access_finish(&access);
    return code;
}
