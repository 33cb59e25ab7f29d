/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RPS_CLIENT_THREAD: a thread of the client that moves its requests between
 * the calls. All of a client is one thing that two threads take turns at:
 *
 *   called + moving <= 1
 *
 * A call has its turn from its first line to its end, also while it waits: it
 * moves by itself then, as it does without the thread. Between two calls the
 * thread takes turns: it moves what is ready and gives the turn back before it
 * polls. Calls come first. Without the thread a turn costs nothing.
 */
#ifndef RPS_CLIENT_IO_THREAD_H
#define RPS_CLIENT_IO_THREAD_H

#include "client/handle.h"

/** Of an opened client, at the end of its open. NOMEM, LIMIT; with words. */
rps_status rps_io_start(rps_client *client);

/**
 * Ends the thread: from here on the client is its caller's alone. False: this
 * is a child of fork, and the thread or a call had the turn at the fork, so
 * nothing that the client holds may be looked at.
 */
bool rps_io_stop(rps_client *client);

/** The thread has the turn: no callback of the program's may be called. */
bool rps_io_is_alone(const rps_client *client);

/** A call or the thread has the turn, or there is no thread. */
bool rps_io_has_turn(const rps_client *client);

/** A send there is the server's own work (LOCAL): the thread's, which pumps. */
bool rps_io_sends(const rps_client *client, const struct rps_channel *channel);

#endif /* RPS_CLIENT_IO_THREAD_H */
