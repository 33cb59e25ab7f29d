/* SPDX-License-Identifier: Apache-2.0 */
#include "base/transport.h"

#include <recps/client.h>

#include <string.h>

static const char *const names[RPS_TRANSPORT_COUNT] = {
        [RPS_TRANSPORT_AUTO] = "auto",
        [RPS_TRANSPORT_TCP] = "tcp",
        [RPS_TRANSPORT_UNIX] = "unix",
        [RPS_TRANSPORT_SHM] = "shm",
        [RPS_TRANSPORT_LOCAL] = "local",
};

const char *
rps_transport_str(enum rps_transport transport)
{
    return (unsigned)transport < RPS_TRANSPORT_COUNT ? names[transport]
                                                     : "unknown";
}

bool
rps_transport_parse(const char *text, enum rps_transport *out)
{
    for (unsigned i = 0; i < RPS_TRANSPORT_COUNT; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum rps_transport)i;
            return true;
        }
    }
    return false;
}
