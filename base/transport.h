/* SPDX-License-Identifier: Apache-2.0 */
/* Names of transports: the option's, the wire's (STAT), the metrics'. */
#ifndef RPS_BASE_TRANSPORT_H
#define RPS_BASE_TRANSPORT_H

#include <recps/types.h>

#include <stdbool.h>

/** "auto" and so on; false: no such transport. */
bool rps_transport_parse(const char *text, enum rps_transport *out);

#endif /* RPS_BASE_TRANSPORT_H */
