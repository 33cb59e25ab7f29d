/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A name is looked up while its caller goes on: getaddrinfo() may block for
 * as long as a name server is silent, so a name has a thread for it that ends
 * with the answer. An address that is a number has its answer at once.
 */
#ifndef RPS_CLIENT_RESOLVE_H
#define RPS_CLIENT_RESOLVE_H

#include "base/error.h"

#include <netdb.h>
#include <stdbool.h>

struct rps_resolve;

/** "host:port" or "[v6]:port". INVAL (it is neither), NOMEM. */
rps_status rps_resolve_begin(struct rps_resolve **resolve_out,
        const char *address, struct rps_error *error);

/** Readable when the answer is there; -1: it is there. */
int rps_resolve_fd(const struct rps_resolve *resolve);

/**
 * The addresses (freeaddrinfo()), if the answer is there: false: not yet.
 * *addresses_out NULL: there are none; error says why.
 */
bool rps_resolve_take(struct rps_resolve *resolve,
        struct addrinfo **addresses_out, struct rps_error *error);

/** Whatever its thread is doing. NULL is allowed. */
void rps_resolve_drop(struct rps_resolve *resolve);

#endif /* RPS_CLIENT_RESOLVE_H */
