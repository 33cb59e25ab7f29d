/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words beside a status: what, where, what to do. Filled where the cause is
 * known and carried up unchanged; a status travels without it, too.
 */
#ifndef RPS_BASE_ERROR_H
#define RPS_BASE_ERROR_H

#include <recps/status.h>

#define RPS_ERROR_BYTES 1024u

struct rps_error {
    char text[RPS_ERROR_BYTES];
};

/**
 * Write the words and hand the status through, so that a failure is one
 * line: `return rps_fail(error, RPS_E_IO, "%s: %s", path, strerror(errno));`
 * error may be NULL. Too long a text is cut.
 */
rps_status rps_fail(struct rps_error *error, rps_status status,
        const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif /* RPS_BASE_ERROR_H */
