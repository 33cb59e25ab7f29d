/* SPDX-License-Identifier: Apache-2.0 */
#include "client/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The one thing that outlives a handle: a failed open has no handle. */
static _Thread_local struct rps_error words;

rps_status
rps_client_fail(rps_status status, const char *format, ...)
{
    struct rps_error text; /* the arguments may point into `words` */
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text.text, sizeof(text.text), format, arguments);
    va_end(arguments);
    words = text;
    return status;
}

rps_status
rps_client_fail_with(rps_status status, const struct rps_error *error)
{
    words = *error;
    return status;
}

const char *
rps_client_words(void)
{
    return words.text;
}

rps_status
rps_client_nomem(void)
{
    return rps_client_fail(RPS_E_NOMEM, "out of memory");
}
