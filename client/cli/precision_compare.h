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

/** Everything that is damaged, missing or alone, on stderr. */
void rps_compare_run_say_problems(
        const struct rps_compare_run *run, const char *tool);

/** Folders, what does not agree (`limit` operators, or the tensors of `only`),
 * and the verdict. Returns an exit code. */
int rps_compare_run_print(
        const struct rps_compare_run *run, const char *only, uint64_t limit);

/** Does all of it agree, and has it counterparts? */
bool rps_compare_run_is_same(const struct rps_compare_run *run);

/** The exit code that says the answer. */
int rps_compare_run_code(const struct rps_compare_run *run);

/** The whole answer; `only`: the operators of this name alone, NULL: all. */
json_t *rps_compare_run_json(
        const struct rps_compare_run *run, const char *only, bool same);

#endif /* RPS_CLIENT_CLI_PRECISION_COMPARE_H */
