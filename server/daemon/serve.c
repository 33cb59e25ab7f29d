/* SPDX-License-Identifier: Apache-2.0 */
/* Owns what --serve is to the daemon: its folder, its exit codes. */
#include "base/log.h"
#include "server/daemon/daemon_impl.h"

#include <string.h>

const char *
rps_daemon_serve_dir(const struct rps_options *options)
{
    const char *dir = options->serve;

    return dir != NULL && dir[0] != '\0' ? dir : NULL;
}

int
rps_daemon_check_serve(const struct rps_options *options)
{
    if (rps_daemon_serve_dir(options) == NULL) {
        return RPS_EXIT_OK;
    }
    if (options->disk_tier != NULL && options->disk_tier[0] != '\0') {
        rps_log(RPS_LOG_ERROR, "start_failed",
                "--serve holds its rows in memory: leave --disk-tier out");
        return RPS_EXIT_USAGE;
    }
    if (strcmp(options->start_from, "newest") == 0) {
        rps_log(RPS_LOG_ERROR, "start_failed",
                "--serve begins with the newest checkpoint of its own folder: "
                "leave --start-from out");
        return RPS_EXIT_USAGE;
    }
    return RPS_EXIT_OK;
}

int
rps_daemon_start_serving(struct rps_daemon *daemon)
{
    const struct rps_options *options = daemon->options;
    const char *dir = rps_daemon_serve_dir(options);
    struct rps_error error = {.text = ""};
    rps_status status = RPS_OK;

    if (dir != NULL) {
        status = rps_service_serve(daemon->service, dir,
                (uint64_t)(options->serve_poll * 1000.0), &error);
    }
    if (status != RPS_OK) {
        rps_log_status(RPS_LOG_ERROR, "start_failed", status, "--serve %s: %s",
                dir, error.text);
        return status == RPS_E_CORRUPT || status == RPS_E_NOT_FOUND
                       ? RPS_EXIT_CORRUPT
               : status == RPS_E_LIMIT ? RPS_EXIT_CONFIG
                                       : RPS_EXIT_CHECKPOINT_DIR;
    }
    daemon->shared.service = daemon->service;
    return RPS_EXIT_OK;
}
