/* SPDX-License-Identifier: Apache-2.0 */
/* recpsd: one parameter server of a job. */
#include "base/log.h"
#include "server/daemon/daemon.h"

static const char usage[] =
        "usage: recpsd [OPTION]...\n"
        "\n"
        "Serve one part of a job's embedding tables. The place in the job is\n"
        "TF_CONFIG's task (type ps), or --job-name ps --task-index N with\n"
        "--ps-hosts; without a cluster it is a server of its own on\n"
        "127.0.0.1:2222.\n";

static int argument_count;
static char **arguments;

static int
read_options(struct rps_options *options)
{
    return rps_options_read(options, RPS_SCOPE_SERVER, "recpsd", usage, false,
            argument_count, arguments);
}

int
main(int argc, char **argv)
{
    struct rps_options options = {0};
    int code;

    argument_count = argc;
    arguments = argv;
    code = read_options(&options);
    if (code >= 0) {
        rps_options_finish(&options);
        return code;
    }
    if (options.check_config) {
        code = rps_daemon_check(&options);
        rps_options_finish(&options);
        return code;
    }
    rps_log_identity("ps", options.cluster.index);
    code = rps_daemon_run(&options, read_options);
    rps_options_finish(&options);
    return code;
}
