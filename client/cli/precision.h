/* SPDX-License-Identifier: Apache-2.0 */
/* recps precision: each word is a tool of its own (tool.h, parts). */
#ifndef RPS_CLIENT_CLI_PRECISION_H
#define RPS_CLIENT_CLI_PRECISION_H

#include "client/cli/tool.h"

extern const struct rps_tool rps_tool_precision_check;
extern const struct rps_tool rps_tool_precision_compare;
extern const struct rps_tool rps_tool_precision_ckpt;
extern const struct rps_tool rps_tool_precision_runs;
extern const struct rps_tool rps_tool_precision_nan;
extern const struct rps_tool rps_tool_precision_replay;
extern const struct rps_tool rps_tool_precision_ac;
extern const struct rps_tool rps_tool_precision_vcs;
extern const struct rps_tool rps_tool_precision_vc;
extern const struct rps_tool rps_tool_precision_ni;
extern const struct rps_tool rps_tool_precision_shell;

#endif /* RPS_CLIENT_CLI_PRECISION_H */
