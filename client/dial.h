/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A dial: one server on its way to a greeted channel, again and again.
 *
 *   WAIT (back-off) -> RESOLVE -> CONNECT -> HELLO [-> SHM_ATTACH] -> DONE
 *     ^                   |          |         |             |
 *     +----- what can heal by waiting ---------+-------------+   else: fatal
 *
 * A server on this host is asked at its Unix socket first, where the transport
 * allows; with AUTO what fails there goes on at its addresses, in the same
 * attempt.
 */
#ifndef RPS_CLIENT_DIAL_H
#define RPS_CLIENT_DIAL_H

#include "client/channel_shm.h"
#include "client/hello.h"
#include "client/resolve.h"

enum rps_dial_state {
    RPS_DIAL_WAIT,    /* until at_ms */
    RPS_DIAL_RESOLVE, /* at most until at_ms */
    RPS_DIAL_CONNECT, /* the socket is on its way, at most until at_ms */
    RPS_DIAL_HELLO,   /* it or SHM_ATTACH is sent, at most until at_ms */
    RPS_DIAL_DONE     /* `channel` is greeted */
};

struct rps_dial {
    rps_client *client;
    uint32_t ps;
    const char *address; /* the cluster's */
    enum rps_dial_state state;
    uint64_t at_ms;
    uint64_t began_ms; /* that state, of an attempt */
    uint64_t until_ms; /* no attempt is worth waiting for much longer */
    uint32_t backoff_ms;
    uint32_t attempts; /* that failed */
    uint64_t since_ms; /* redial.c: the connection was lost then; 0: is there */
    int fd;            /* CONNECT */
    struct rps_resolve *resolve; /* RESOLVE */
    struct addrinfo *addresses;  /* of this attempt */
    struct addrinfo *next;       /* address to try next */
    bool near_tried;             /* in this attempt */
    bool near;                   /* fd or channel is a Unix socket */
    char *passed_by; /* owned: why it is not, and might have been; NULL */
    struct rps_channel *channel; /* HELLO, DONE */
    struct rps_hello hello;
    struct rps_attach attach;
    rps_status fatal; /* waiting would not help; cause says why */
    struct rps_error cause;
    uint64_t draw; /* of the jitter */
};

/** One a PS of client->channel_count, all to be begun; NULL: no memory. */
struct rps_dial *rps_dials_create(rps_client *client);

/** NULL is allowed. */
void rps_dials_destroy(struct rps_dial *dials, uint32_t count);

/** The first attempt is due at at_ms. */
void rps_dial_begin(struct rps_dial *dial, uint64_t at_ms, uint64_t until_ms);

/** The next attempt, after a longer back-off. */
void rps_dial_again(struct rps_dial *dial, uint64_t now_ms);

/** Close what is open; the back-off stays. */
void rps_dial_clear(struct rps_dial *dial);

/** The greeted channel of a dial that is DONE, the caller's from here on. */
struct rps_channel *rps_dial_take(struct rps_dial *dial);

/** Descriptor (-1: none) and the poll(2) events that it waits for. */
int rps_dial_watch(const struct rps_dial *dial, short *events_out);

/** Go as far as it goes without waiting. */
void rps_dial_move(struct rps_dial *dial, short revents, uint64_t now_ms);

#endif /* RPS_CLIENT_DIAL_H */
