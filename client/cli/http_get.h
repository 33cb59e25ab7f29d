/* SPDX-License-Identifier: Apache-2.0 */
/* One page of an admin port. */
#ifndef RPS_CLIENT_CLI_HTTP_GET_H
#define RPS_CLIENT_CLI_HTTP_GET_H

#include "base/error.h"

#include <stdint.h>

#define RPS_HTTP_GET_BYTES_MAX (256u << 10) /* head and body */

/**
 * GET http://ADDRESS/PATH; address is "host:port". The whole answer within
 * wait_ms, but for the look-up of a name.
 *
 * Owns:   *body_out is NUL-terminated; free() it.
 * Errors: INVAL (address), UNREACHABLE, TIMEOUT, NOMEM, CORRUPT (no answer of
 *         HTTP, another code than 200), LIMIT (of bytes).
 */
rps_status rps_http_get(const char *address, const char *path, uint32_t wait_ms,
        char **body_out, struct rps_error *error);

#endif /* RPS_CLIENT_CLI_HTTP_GET_H */
