/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of the guide, ac, vcs, vc and ni: where everything lies. */
#ifndef RPS_CLIENT_CLI_PRECISION_GUIDE_H
#define RPS_CLIENT_CLI_PRECISION_GUIDE_H

#include "client/cli/tool.h"

#define RPS_GUIDE_FOLDER  "precision_data"
#define RPS_GUIDE_DEBUG_0 "npu/debug_0"
#define RPS_GUIDE_DEBUG_1 "npu/debug_1"
#define RPS_GUIDE_TF      "tf/dump"
#define RPS_GUIDE_RESULTS "temp/vector_compare"
#define RPS_GUIDE_GRAPHS  "temp/graph"
#define RPS_GUIDE_LIMIT   3u /* operators that are listed */
#define RPS_GUIDE_MOST    1000000u

/** "precision_data/npu/debug_0" of the folder that was given, or of NULL.
 * free(); NULL: no memory. */
char *rps_guide_path(const char *folder, const char *part);

/** A flag that is a whole number; NULL: *value stays. Returns an exit code, and
 * says what is wrong. */
int rps_guide_number(const char *tool, const struct rps_tool_flag *flag,
        uint64_t most, uint64_t *value);

/** A number with as few digits as say it whole, "0.98". */
#define RPS_GUIDE_NUMBER 32u
const char *rps_guide_shortest(double number, char text[RPS_GUIDE_NUMBER]);

/** A flag that is a cosine. */
int rps_guide_cosine(
        const char *tool, const struct rps_tool_flag *flag, double *value);

#endif /* RPS_CLIENT_CLI_PRECISION_GUIDE_H */
