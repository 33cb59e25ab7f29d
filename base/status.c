/* SPDX-License-Identifier: Apache-2.0 */
#include <recps/status.h>

/* No default label: the compiler names a status that is missing here. */
const char *
rps_status_str(rps_status status)
{
    switch (status) {
    case RPS_OK:
        return "RPS_OK";
    case RPS_E_INVAL:
        return "RPS_E_INVAL";
    case RPS_E_NOMEM:
        return "RPS_E_NOMEM";
    case RPS_E_LIMIT:
        return "RPS_E_LIMIT";
    case RPS_E_MISMATCH:
        return "RPS_E_MISMATCH";
    case RPS_E_NOT_FOUND:
        return "RPS_E_NOT_FOUND";
    case RPS_E_WRONG_ROUTE:
        return "RPS_E_WRONG_ROUTE";
    case RPS_E_ROLLED_BACK:
        return "RPS_E_ROLLED_BACK";
    case RPS_E_RETRY_LATER:
        return "RPS_E_RETRY_LATER";
    case RPS_E_DEADLINE:
        return "RPS_E_DEADLINE";
    case RPS_E_TIMEOUT:
        return "RPS_E_TIMEOUT";
    case RPS_E_CANCELED:
        return "RPS_E_CANCELED";
    case RPS_E_UNSUPPORTED:
        return "RPS_E_UNSUPPORTED";
    case RPS_E_READ_ONLY:
        return "RPS_E_READ_ONLY";
    case RPS_E_NONFINITE:
        return "RPS_E_NONFINITE";
    case RPS_E_AUTH:
        return "RPS_E_AUTH";
    case RPS_E_CORRUPT:
        return "RPS_E_CORRUPT";
    case RPS_E_IO:
        return "RPS_E_IO";
    case RPS_E_UNREACHABLE:
        return "RPS_E_UNREACHABLE";
    case RPS_E_FORKED:
        return "RPS_E_FORKED";
    }
    return "RPS_E_UNKNOWN";
}
