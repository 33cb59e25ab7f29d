/* SPDX-License-Identifier: Apache-2.0 */
/* The words of each thread's last failure. */
#include "client/npu/error.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local struct rps_error words;

rps_status
rps_npu_fail(rps_status status, const char *format, ...)
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
rps_npu_nomem(const char *what)
{
    return rps_npu_fail(RPS_E_NOMEM, "%s: the host has no memory left", what);
}

rps_status
rps_npu_missing(const char *operation, const char *what)
{
    return rps_npu_fail(RPS_E_INVAL, "%s: no %s is given", operation, what);
}

const char *
rps_npu_error(void)
{
    return words.text;
}
