/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

rps_status
rps_fail(struct rps_error *error, rps_status status, const char *format, ...)
{
    va_list args;

    if (error != NULL) {
        va_start(args, format);
        vsnprintf(error->text, sizeof(error->text), format, args);
        va_end(args);
    }
    return status;
}
