/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose work a variable of recps-train is: what made its gradient, by the
 * names that operators have in a dump (and in a profile).
 *
 *   "top.2.weight"        top.2/linear_backward, which is a fused one: with
 *                         --fusion off its part is top.2/linear_dweight
 *   "top.2.bias"          the same, and top.2/linear_dbias
 *   "proj.user.weight"    user/linear_backward
 *   "user", not dense     user/pooling_backward
 *
 * What changes it in the end is the optimizer's step, at the servers, of what
 * was pushed: the dump's push of the variable's name.
 */
#ifndef RPS_PRECISION_VARIABLE_OPERATOR_H
#define RPS_PRECISION_VARIABLE_OPERATOR_H

#include <stdbool.h>

#define RPS_VARIABLE_OPERATOR_BYTES 320u

struct rps_variable_operator {
    bool known; /* else it is no variable of a model that recps-train has */
    char gradient[RPS_VARIABLE_OPERATOR_BYTES]; /* "top.2/linear_backward" */
    /* that alone makes it, with --fusion off; "": it is not fused */
    char part[RPS_VARIABLE_OPERATOR_BYTES];
};

/** table: "top.2.weight", without a slot's name. */
struct rps_variable_operator rps_variable_operator_of(
        const char *table, bool dense);

#endif /* RPS_PRECISION_VARIABLE_OPERATOR_H */
