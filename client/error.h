/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This thread's last failure in words: what rps_client_error() answers.
 */
#ifndef RPS_CLIENT_ERROR_H
#define RPS_CLIENT_ERROR_H

#include "base/error.h"

/** Write the words of this thread and hand the status through. */
rps_status rps_client_fail(rps_status status, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/** The same from words that are there already. */
rps_status rps_client_fail_with(
        rps_status status, const struct rps_error *error);

/** This thread's words. */
const char *rps_client_words(void);

/** No memory, in words. */
rps_status rps_client_nomem(void);

#endif /* RPS_CLIENT_ERROR_H */
