/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An epoll descriptor that holds every socket, an eventfd that is readable
 * while a ticket is done that nobody has collected, or a channel has something
 * that no socket shows, and a timer of what is due: the next attempt of a dial,
 * a deadline.
 */
#include "client/watch.h"

#include "base/clock.h"
#include "client/exchange.h"
#include "client/expire.h"
#include "client/redial.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

/** What epoll has of a channel. */
struct watched {
    uint32_t connection;
    short events; /* poll(2)'s; 0: nothing */
};

struct rps_watch {
    int epoll_fd; /* -1: nobody asked yet */
    int done_fd;
    int timer_fd;
    bool done_set;
    bool timer_set;
    struct watched *channels; /* [channel_count] */
};

struct rps_watch *
rps_watch_create(uint32_t channel_count)
{
    struct rps_watch *watch = calloc(1, sizeof(*watch));

    if (watch == NULL) {
        return NULL;
    }
    watch->epoll_fd = -1;
    watch->done_fd = -1;
    watch->timer_fd = -1;
    watch->channels = calloc(channel_count, sizeof(*watch->channels));
    if (watch->channels == NULL) {
        free(watch);
        return NULL;
    }
    return watch;
}

static void
close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

static void
close_all(struct rps_watch *watch)
{
    close_fd(&watch->epoll_fd);
    close_fd(&watch->done_fd);
    close_fd(&watch->timer_fd);
}

void
rps_watch_destroy(struct rps_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    close_all(watch);
    free(watch->channels);
    free(watch);
}

static uint32_t
epoll_events(short events)
{
    return ((events & POLLIN) != 0 ? (uint32_t)EPOLLIN : 0) |
           ((events & POLLOUT) != 0 ? (uint32_t)EPOLLOUT : 0);
}

/* A descriptor that was closed left epoll by itself, and its number may be
 * another one's by now. */
static void
put(const struct rps_watch *watch, int fd, short events)
{
    struct epoll_event event = {.events = epoll_events(events)};

    if (fd >= 0 && epoll_ctl(watch->epoll_fd, EPOLL_CTL_MOD, fd, &event) != 0 &&
            errno == ENOENT) {
        (void)epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, fd, &event);
    }
}

static void
rewatch_channel(struct rps_watch *watch, const struct rps_channel *channel,
        uint32_t index)
{
    struct watched *watched = &watch->channels[index];
    short events;
    int fd = channel->ops->watch(channel, &events);

    if (watched->events != events ||
            watched->connection != channel->connection) {
        put(watch, fd, events);
        watched->events = events;
        watched->connection = channel->connection;
    }
}

/* Its descriptors come and go: each time anew. */
static void
rewatch_dial(
        const rps_client *client, uint32_t index, uint64_t now_ms, int *wait_ms)
{
    struct pollfd at = {.fd = -1};

    rps_redial_watch(client, index, now_ms, &at, wait_ms);
    put(client->watch, at.fd, at.events);
    client->watch->channels[index].events = 0;
}

static void
rewatch_timer(struct rps_watch *watch, int wait_ms)
{
    struct itimerspec next = {{0}};

    if (wait_ms < 0 && !watch->timer_set) {
        return;
    }
    if (wait_ms >= 0) {
        next.it_value.tv_sec = wait_ms / 1000;
        next.it_value.tv_nsec = (long)(wait_ms % 1000) * 1000000 + 1;
    }
    watch->timer_set = wait_ms >= 0;
    (void)timerfd_settime(watch->timer_fd, 0, &next, NULL);
}

static void
rewatch_done(struct rps_watch *watch, bool done)
{
    uint64_t value = 1;
    ssize_t n = 0;

    if (done == watch->done_set) {
        return;
    }
    watch->done_set = done;
    n = done ? write(watch->done_fd, &value, sizeof(value))
             : read(watch->done_fd, &value, sizeof(value));
    (void)n; /* cannot fail: the counter is 0 or 1 by done_set */
}

void
rps_client_rewatch(const rps_client *client)
{
    struct rps_watch *watch = client->watch;
    const struct rps_ticket_state *ticket = client->tickets;
    bool work = false;
    const uint64_t now_ms = watch->epoll_fd >= 0 ? rps_clock_ms() : 0;
    int wait_ms = -1;
    uint32_t i;

    if (watch->epoll_fd < 0) {
        return;
    }
    rps_expire_wait(client, now_ms, &wait_ms);
    for (i = 0; i < client->channel_count; i++) {
        const struct rps_channel *channel = client->channels[i];

        if (!channel->lost && channel->down) {
            rewatch_dial(client, i, now_ms, &wait_ms);
        } else if (!channel->lost) {
            rewatch_channel(watch, channel, i);
            work |= channel->ops->arm(client->channels[i], false);
        }
    }
    rewatch_timer(watch, wait_ms);
    while (ticket != NULL && !ticket->done) {
        ticket = ticket->next;
    }
    rewatch_done(watch, ticket != NULL || work);
}

static bool
open_all(struct rps_watch *watch)
{
    struct epoll_event event = {.events = EPOLLIN};

    watch->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watch->timer_fd =
            timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    watch->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    return watch->done_fd >= 0 && watch->timer_fd >= 0 &&
           watch->epoll_fd >= 0 &&
           epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, watch->done_fd, &event) ==
                   0 &&
           epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, watch->timer_fd, &event) ==
                   0;
}

static void
open_watch(struct rps_watch *watch)
{
    if (!open_all(watch)) {
        close_all(watch);
    }
}

int
rps_client_fd(const rps_client *client)
{
    RPS_TURN(client);

    if (rps_client_enter(client) != RPS_OK || client->embedded) {
        return -1;
    }
    if (client->watch->epoll_fd < 0) {
        open_watch(client->watch);
    }
    rps_client_rewatch(client);
    return client->watch->epoll_fd;
}
