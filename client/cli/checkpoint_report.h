/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RPS_CLIENT_CLI_CHECKPOINT_REPORT_H
#define RPS_CLIENT_CLI_CHECKPOINT_REPORT_H

#include <stdbool.h>

/**
 * Read the checkpoint below `path`, say what it holds and whether it is
 * whole; on a terminal, with progress. Returns an exit code.
 */
int rps_checkpoint_report_run(const char *tool, const char *path, bool json);

#endif /* RPS_CLIENT_CLI_CHECKPOINT_REPORT_H */
