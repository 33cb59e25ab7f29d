/* SPDX-License-Identifier: Apache-2.0 */
/* recps precision compare: what it prints. */
#ifndef RPS_CLIENT_CLI_PRECISION_COMPARE_H
#define RPS_CLIENT_CLI_PRECISION_COMPARE_H

#include "client/precision/compare.h"

#include <jansson.h>

/** Is it the operator of this name, on one of the sides? NULL: any. */
bool rps_compared_is(const struct rps_compared *compared, const char *name);

/** Files and folders of a step that are damaged or missing, one after the
 * other; NULL: that was the last. *at begins with 0. */
const char *rps_compare_next_problem(
        const struct rps_compare_step *step, uint64_t *at);

/** The whole answer; `only`: the operators of this name alone, NULL: all. */
json_t *rps_compare_run_json(
        const struct rps_compare_run *run, const char *only, bool same);

#endif /* RPS_CLIENT_CLI_PRECISION_COMPARE_H */
