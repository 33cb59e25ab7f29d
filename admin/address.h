/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where recpsd listens: --bind, else the own entry of TF_CONFIG, else the
 * loopback. A name that others know us by is never bound: it may resolve to
 * something that is not ours (a Service, a host entry).
 */
#ifndef RPS_ADMIN_ADDRESS_H
#define RPS_ADMIN_ADDRESS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define RPS_LISTEN_MAX         8u
#define RPS_PORT_STANDALONE    2222u
#define RPS_ADDRESS_TEXT_BYTES 72u /* "[v6 with scope]:65535" */

/** One socket to open. */
struct rps_listen_address {
    struct sockaddr_storage storage;
    socklen_t length;
    bool optional; /* the IPv6 half of a pair: may be missing here */
};

struct rps_listen_plan {
    struct rps_listen_address addresses[RPS_LISTEN_MAX];
    uint32_t count;
    bool loopback; /* every one of them */
    uint16_t port; /* 0: any */
};

/**
 * bind: "host:port" of --bind, "" = not given. own: own entry, NULL = none.
 * INVAL says what cannot be read; RETRY_LATER: a name does not resolve, which
 * may be otherwise soon.
 */
rps_status rps_listen_plan_make(struct rps_listen_plan *plan, const char *bind,
        const char *own, struct rps_error *error);

/** "127.0.0.1:2222", "[::1]:2222". Returns `out`. */
char *rps_address_text(const struct sockaddr *address, socklen_t length,
        char out[RPS_ADDRESS_TEXT_BYTES]);

bool rps_address_is_loopback(const struct sockaddr_storage *address);
uint16_t rps_address_port(const struct sockaddr_storage *address);
void rps_address_set_port(struct sockaddr_storage *address, uint16_t port);

#endif /* RPS_ADMIN_ADDRESS_H */
