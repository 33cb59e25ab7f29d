/* SPDX-License-Identifier: Apache-2.0 */
/* recpsd: one parameter server of a job. */
#include "base/log.h"
#include "server/daemon/daemon.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
        "usage: recpsd [OPTION]...\n"
        "\n"
        "Serve one part of a job's embedding tables. The place in the job is\n"
        "TF_CONFIG's task (type ps), or --job-name ps --task-index N with\n"
        "--ps-hosts; without a cluster it is a server of its own on\n"
        "127.0.0.1:2222.\n";

static enum rps_log_level
log_level(const char *name)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};

    for (int i = 0; i < 4; i++) {
        if (name != NULL && strcmp(name, names[i]) == 0) {
            return (enum rps_log_level)i;
        }
    }
    return RPS_LOG_INFO;
}

int
main(int argc, char **argv)
{
    struct rps_options options;
    int code;

    memset(&options, 0, sizeof(options));
    code = rps_options_read(
            &options, RPS_SCOPE_SERVER, "recpsd", usage, false, argc, argv);
    if (code >= 0) {
        rps_options_finish(&options);
        return code;
    }
    if (options.check_config) {
        code = rps_check_config_print(&options);
        rps_options_finish(&options);
        return code;
    }
    rps_log_init(log_level(options.log_level),
            options.log_format != NULL &&
                            strcmp(options.log_format, "json") == 0
                    ? RPS_LOG_JSON
                    : RPS_LOG_TEXT);
    rps_log_identity("ps", options.cluster.index);
    code = rps_daemon_run(&options);
    rps_options_finish(&options);
    return code;
}
