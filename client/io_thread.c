/* SPDX-License-Identifier: Apache-2.0 */
#include "client/io_thread.h"

#include "base/clock.h"
#include "client/exchange.h"
#include "client/expire.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/** What the thread polls of a channel. */
struct seen {
    int fd;
    short events;
    uint32_t connection;
};

struct rps_io {
    rps_client *client;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t given; /* lock; a turn was given back, or it ends */
    unsigned depth;       /* the caller's; of calls that make calls */
    bool called;          /* lock */
    bool moving;          /* lock */
    bool wanted;          /* lock; by a call that waits for its turn */
    bool ending;          /* lock */
    int wake_fd;          /* eventfd: what is polled has changed, or it ends */
    uint64_t due_ms;      /* turn; when the thread looks again; UINT64_MAX */
    struct seen *seen;    /* turn; [channel_count] */
    struct pollfd *polls; /* the thread's; [channel_count + 1], wake_fd last */
};

/* --- turns --------------------------------------------------------------- */

static void
wake(const struct rps_io *io)
{
    const uint64_t one = 1;

    (void)!write(io->wake_fd, &one, sizeof(one)); /* full: it is readable */
}

/* What there is to wait for now, in client->polls; true: there is work. */
static bool
look(rps_client *client, int *wait_ms)
{
    const uint64_t now_ms = rps_clock_ms();

    *wait_ms = -1;
    rps_expire_wait(client, now_ms, wait_ms);
    return rps_client_arm(client, false, now_ms, wait_ms);
}

static uint64_t
due_of(int wait_ms)
{
    return wait_ms < 0 ? UINT64_MAX : rps_clock_ms() + (uint64_t)wait_ms;
}

/* A dial's descriptors come and go under the same numbers: while there is one
 * the thread looks again after each call. */
static bool
has_changed(const struct rps_io *io)
{
    rps_client *client = io->client;
    int wait_ms;
    bool changed = look(client, &wait_ms) || due_of(wait_ms) < io->due_ms;

    for (uint32_t i = 0; !changed && i < client->channel_count; i++) {
        const struct rps_channel *channel = client->channels[i];
        const struct pollfd *now = &client->polls[i];
        const struct seen *seen = &io->seen[i];

        changed = (channel->down && !channel->lost) || now->fd != seen->fd ||
                  now->events != seen->events ||
                  channel->connection != seen->connection;
    }
    return changed;
}

const rps_client *
rps_turn_begin(const rps_client *client)
{
    struct rps_io *io = client != NULL ? client->io : NULL;

    if (io == NULL || client->pid != getpid()) {
        return NULL;
    }
    if (io->depth++ == 0) {
        (void)pthread_mutex_lock(&io->lock);
        io->wanted = true;
        while (io->moving) {
            (void)pthread_cond_wait(&io->given, &io->lock);
        }
        io->wanted = false;
        io->called = true;
        (void)pthread_mutex_unlock(&io->lock);
    }
    return client;
}

void
rps_turn_end(const rps_client **turn)
{
    struct rps_io *io = *turn != NULL ? (*turn)->io : NULL;
    bool changed;

    if (io == NULL || --io->depth > 0) {
        return;
    }
    changed = has_changed(io);
    (void)pthread_mutex_lock(&io->lock);
    io->called = false;
    (void)pthread_cond_signal(&io->given);
    (void)pthread_mutex_unlock(&io->lock);
    if (changed) {
        wake(io);
    }
}

bool
rps_io_is_alone(const rps_client *client)
{
    return client->io != NULL && client->io->moving;
}

bool
rps_io_has_turn(const rps_client *client)
{
    return client->io == NULL || client->io->called || client->io->moving;
}

bool
rps_io_sends(const rps_client *client, const struct rps_channel *channel)
{
    return client->io != NULL && channel->transport == RPS_TRANSPORT_LOCAL;
}

/* --- the thread ---------------------------------------------------------- */

/* false: it ends. */
static bool
take_turn(struct rps_io *io)
{
    bool ending;

    (void)pthread_mutex_lock(&io->lock);
    while ((io->called || io->wanted) && !io->ending) {
        (void)pthread_cond_wait(&io->given, &io->lock);
    }
    ending = io->ending;
    io->moving = !ending;
    (void)pthread_mutex_unlock(&io->lock);
    return !ending;
}

static void
give_turn(struct rps_io *io)
{
    (void)pthread_mutex_lock(&io->lock);
    io->moving = false;
    (void)pthread_cond_signal(&io->given);
    (void)pthread_mutex_unlock(&io->lock);
}

/* Moves what is ready, and notes what is polled next. Milliseconds to poll. */
static int
move(struct rps_io *io)
{
    rps_client *client = io->client;
    bool work;
    int wait_ms;

    rps_client_move(client, 0);
    work = look(client, &wait_ms);
    for (uint32_t i = 0; i < client->channel_count; i++) {
        io->polls[i] = client->polls[i];
        io->seen[i] = (struct seen){.fd = client->polls[i].fd,
                .events = client->polls[i].events,
                .connection = client->channels[i]->connection};
    }
    io->due_ms = due_of(wait_ms);
    return work ? 0 : wait_ms;
}

static void *
run(void *context)
{
    struct rps_io *io = context;
    const uint32_t count = io->client->channel_count;

    while (take_turn(io)) {
        const int wait_ms = move(io);
        uint64_t wakes;

        give_turn(io);
        io->polls[count].revents = 0;
        (void)poll(io->polls, count + 1, wait_ms);
        if (io->polls[count].revents != 0) {
            (void)!read(io->wake_fd, &wakes, sizeof(wakes));
        }
    }
    return NULL;
}

/* --- its life ------------------------------------------------------------ */

/* In a child of fork waits of the parent's thread stand in `given`: whoever
 * destroyed it would wait for their end. */
static void
destroy(struct rps_io *io, bool forked)
{
    if (!forked) {
        (void)pthread_cond_destroy(&io->given);
        (void)pthread_mutex_destroy(&io->lock);
    }
    if (io->wake_fd >= 0) {
        (void)close(io->wake_fd);
    }
    free(io->polls);
    free(io->seen);
    free(io);
}

static struct rps_io *
create(rps_client *client)
{
    struct rps_io *io = calloc(1, sizeof(*io));

    if (io == NULL || pthread_mutex_init(&io->lock, NULL) != 0) {
        free(io);
        return NULL;
    }
    (void)pthread_cond_init(&io->given, NULL); /* cannot fail on Linux */
    io->client = client;
    io->due_ms = UINT64_MAX;
    io->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    io->seen = calloc(client->channel_count, sizeof(*io->seen));
    io->polls = calloc(client->channel_count + 1, sizeof(*io->polls));
    if (io->wake_fd < 0 || io->seen == NULL || io->polls == NULL) {
        destroy(io, false);
        return NULL;
    }
    io->polls[client->channel_count] =
            (struct pollfd){.fd = io->wake_fd, .events = POLLIN};
    return io;
}

/* The program's signals are for its own threads. */
static int
start_thread(struct rps_io *io)
{
    sigset_t all;
    sigset_t before;
    int code;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&io->thread, NULL, run, io);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == 0) {
        (void)pthread_setname_np(io->thread, "recps-io");
    }
    return code;
}

rps_status
rps_io_start(rps_client *client)
{
    struct rps_io *io = create(client);
    int code;

    if (io == NULL) {
        return rps_client_fail(
                RPS_E_NOMEM, "no memory or descriptor for the client's thread");
    }
    client->io = io;
    code = start_thread(io);
    if (code != 0) {
        client->io = NULL;
        destroy(io, false);
        return rps_client_fail(RPS_E_LIMIT,
                "the client's thread (RPS_CLIENT_THREAD): %s", strerror(code));
    }
    return RPS_OK;
}

/* Nobody had the turn when the process was forked. */
static bool
is_whole(struct rps_io *io)
{
    bool whole;

    if (pthread_mutex_trylock(&io->lock) != 0) {
        return false;
    }
    whole = !io->called && !io->moving;
    (void)pthread_mutex_unlock(&io->lock);
    return whole;
}

bool
rps_io_stop(rps_client *client)
{
    struct rps_io *io = client->io;
    const bool forked = client->pid != getpid();

    if (io == NULL) {
        return true;
    }
    if (forked && !is_whole(io)) {
        return false;
    }
    if (!forked) {
        (void)pthread_mutex_lock(&io->lock);
        io->ending = true;
        (void)pthread_cond_signal(&io->given);
        (void)pthread_mutex_unlock(&io->lock);
        wake(io);
        (void)pthread_join(io->thread, NULL);
    }
    client->io = NULL;
    destroy(io, forked);
    return true;
}
