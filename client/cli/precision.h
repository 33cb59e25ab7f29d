/* SPDX-License-Identifier: Apache-2.0 */
/* recps precision: each word is a tool of its own (tool.h, parts). */
#ifndef RPS_CLIENT_CLI_PRECISION_H
#define RPS_CLIENT_CLI_PRECISION_H

#include "client/cli/tool.h"

extern const struct rps_tool rps_tool_precision_compare;
extern const struct rps_tool rps_tool_precision_nan;
extern const struct rps_tool rps_tool_precision_replay;

#endif /* RPS_CLIENT_CLI_PRECISION_H */
