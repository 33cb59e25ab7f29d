/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets of a plan (address.h), all on one port. */
#ifndef RPS_ADMIN_SOCKETS_H
#define RPS_ADMIN_SOCKETS_H

#include "admin/address.h"
#include "base/error.h"

#include <stdint.h>

/** Port 0: another family may have the port that the first one got. */
#define RPS_ANY_PORT_TRIES 16

/** Zeroed there are none. */
struct rps_sockets {
    int fds[RPS_LISTEN_MAX];
    uint32_t count;
    uint16_t port;
    char text[RPS_ADDRESS_TEXT_BYTES]; /* of the first */
};

/** Open every address of the plan. RETRY_LATER: in use. INVAL: not an address
 * of this machine, or not allowed. On failure there are none. */
rps_status rps_sockets_bind(struct rps_sockets *sockets,
        const struct rps_listen_plan *plan, struct rps_error *error);

/** The same errors. */
rps_status rps_sockets_listen(const struct rps_sockets *sockets, int backlog,
        struct rps_error *error);

/** Both; tries other ports where any will do. */
rps_status rps_sockets_open(struct rps_sockets *sockets,
        const struct rps_listen_plan *plan, int backlog,
        struct rps_error *error);

void rps_sockets_close(struct rps_sockets *sockets);

#endif /* RPS_ADMIN_SOCKETS_H */
