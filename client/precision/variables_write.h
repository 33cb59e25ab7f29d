/* SPDX-License-Identifier: Apache-2.0 */
/* The comparison of two checkpoints as files. Replaced as a whole. */
#ifndef RPS_PRECISION_VARIABLES_WRITE_H
#define RPS_PRECISION_VARIABLES_WRITE_H

#include "client/precision/variables.h"

/** With a head; a line a variable, in the list's order. Numbers that are not
 * there are empty. Errors: IO, NOMEM. */
rps_status rps_variables_write_csv(const struct rps_variables *variables,
        const char *path, struct rps_error *error);

/**
 * One page that needs no other file, light or dark as its reader's system: the
 * verdict, a chart of cosine over variables, all of them as a table. Errors:
 * IO, NOMEM.
 */
rps_status rps_variables_write_html(const struct rps_variables *variables,
        const char *title, const char *verdict, const char *path,
        struct rps_error *error);

#endif /* RPS_PRECISION_VARIABLES_WRITE_H */
