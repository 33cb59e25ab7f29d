/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A channel carries whole frames between a client and one PS: over a stream
 * socket (TCP, Unix), or by a call into the embedded service. What the frames
 * mean is exchange.h's.
 *
 * Threads: the client's; the local channel alone takes replies from others.
 */
#ifndef RPS_CLIENT_CHANNEL_H
#define RPS_CLIENT_CHANNEL_H

#include "base/error.h"
#include "base/tls.h"
#include "client/numbers.h"
#include "proto/message.h"
#include "proto/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rps_channel;
struct rps_exchange;

/**
 * Takes one reply, opened by the channel and borrowed for the call. Its
 * sections are private to us; its arrays may lie where the peer can still
 * change them, so what is checked is read once. A status that is not OK says
 * that the peer cannot be believed any more: the channel is lost.
 */
typedef rps_status rps_reply_take_fn(void *context, struct rps_channel *channel,
        const struct rps_message *reply, struct rps_error *error);

struct rps_channel_ops {
    /**
     * Writes what can go. The frame is borrowed until its reply was given to
     * `take` or the channel hung up; so a reply to a frame that is not wholly
     * written yet is CORRUPT, and not given.
     */
    rps_status (*send)(struct rps_channel *channel, const uint8_t *frame,
            size_t frame_bytes, struct rps_error *error);
    /** Write and read what can be without waiting. Failure: it is lost. */
    rps_status (*move)(struct rps_channel *channel, rps_reply_take_fn *take,
            void *context, struct rps_error *error);
    /** True: move has work now. False: poll `fd` will say when. `waits`: the
     * caller will sleep if nobody has work, so a short look may pay. */
    bool (*arm)(struct rps_channel *channel, bool waits);
    /** Descriptor and the poll(2) events to watch. */
    int (*watch)(const struct rps_channel *channel, short *events_out);
    /** It is lost: let the peer see that nobody listens any more. No frame is
     * borrowed from here on. */
    void (*hang_up)(struct rps_channel *channel);
    /** `forked`: this is the child; touch nothing that is shared. */
    void (*destroy)(struct rps_channel *channel, bool forked);
};

/** What a server that began anew does not have any more. */
struct rps_lost {
    uint64_t first, last; /* numbers that were answered; 0: none */
    uint64_t pushes;      /* of them, acknowledged pushes */
};

/*
 * One connection. When it is cut the channel is `down`; redial.c makes
 * another one, which takes over all but the first four fields.
 */
struct rps_channel {
    const struct rps_channel_ops *ops;
    enum rps_transport transport;
    uint32_t ps;
    char *address;          /* owned; for words */
    uint32_t epoch;         /* of the requests to this PS */
    bool owes_decision;     /* the PS has not had the client's decision yet */
    bool wish_waits;        /* a reply had the WISH flag */
    bool down;              /* cut, and dialled again */
    bool lost;              /* for good */
    bool moved_on;          /* a reply came since it was dialled */
    uint32_t connection;    /* which one, for watch.c */
    struct rps_error cause; /* why it is down or lost */
    struct rps_exchange *waiting; /* not answered; oldest first */
    uint32_t unsent;              /* of them, those at the end */
    struct rps_lost rolled_back;  /* not told yet; last 0: nothing */
    bool fenced;                  /* the PS began anew while we were in a job */
    struct rps_numbers numbers;
};

/**
 * Takes a connected, non-blocking stream socket (TCP or Unix), also on failure.
 * `tls` (NULL: plain) is borrowed for the call; the address's host must be
 * named by the server's certificate. NULL: NOMEM.
 */
struct rps_channel *rps_channel_stream_create(uint32_t ps, const char *address,
        int socket_fd, struct rps_tls_context *tls);

/** Keep the descriptors that come with the next bytes of a Unix socket. */
void rps_channel_stream_expect(struct rps_channel *channel);

/**
 * Take socket and descriptors out of a stream that has nothing in hand: it is
 * only good for its end then. fds[0] is -1 where not all of them came. The
 * caller owns what it gets.
 */
void rps_channel_stream_take(
        struct rps_channel *channel, int *socket_out, int fds[RPS_RING_FDS]);

struct rps_local_options {
    const char *job_id;
    uint64_t job_seed;
    const char *checkpoint_dir; /* NULL: none */
    bool checkpoint_read_only;  /* it need not be writable */
};

/** Opens a service inside the process. */
rps_status rps_channel_local_create(struct rps_channel **channel_out,
        const struct rps_local_options *options, struct rps_error *error);

/** It has not what this client believes: nothing is read or changed there. */
static inline bool
rps_channel_is_rolled_back(const struct rps_channel *channel)
{
    return channel->rolled_back.last != 0 || channel->fenced;
}

/** NULL is allowed. */
void rps_channel_destroy(struct rps_channel *channel, bool forked);

#endif /* RPS_CLIENT_CHANNEL_H */
