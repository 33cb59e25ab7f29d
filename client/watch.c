/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An epoll descriptor that holds every socket, and an eventfd that is
 * readable while a ticket is done that nobody has collected.
 */
#include "client/watch.h"

#include "client/exchange.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct rps_watch {
    int epoll_fd; /* -1: nobody asked yet */
    int done_fd;
    bool done_set;
    short *events; /* [channel_count]: poll(2) events in epoll; 0: none */
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
    watch->events = calloc(channel_count, sizeof(*watch->events));
    if (watch->events == NULL) {
        free(watch);
        return NULL;
    }
    return watch;
}

void
rps_watch_destroy(struct rps_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    if (watch->epoll_fd >= 0) {
        (void)close(watch->epoll_fd);
        (void)close(watch->done_fd);
    }
    free(watch->events);
    free(watch);
}

static uint32_t
epoll_events(short events)
{
    return ((events & POLLIN) != 0 ? (uint32_t)EPOLLIN : 0) |
           ((events & POLLOUT) != 0 ? (uint32_t)EPOLLOUT : 0);
}

static void
rewatch_channel(struct rps_watch *watch, const struct rps_channel *channel,
        uint32_t index)
{
    struct epoll_event event = {0};
    short events;
    int fd = channel->ops->watch(channel, &events);

    if (watch->events[index] == events) {
        return;
    }
    event.events = epoll_events(events);
    (void)epoll_ctl(watch->epoll_fd,
            watch->events[index] == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd,
            &event);
    watch->events[index] = events;
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
    uint32_t i;

    if (watch->epoll_fd < 0) {
        return;
    }
    for (i = 0; i < client->channel_count; i++) {
        if (!client->channels[i]->lost) { /* a closed socket leaves epoll */
            rewatch_channel(watch, client->channels[i], i);
        }
    }
    while (ticket != NULL && !ticket->done) {
        ticket = ticket->next;
    }
    rewatch_done(watch, ticket != NULL);
}

static void
open_watch(struct rps_watch *watch)
{
    struct epoll_event event = {.events = EPOLLIN};

    watch->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (watch->done_fd < 0) {
        return;
    }
    watch->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (watch->epoll_fd < 0 || epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD,
                                       watch->done_fd, &event) != 0) {
        if (watch->epoll_fd >= 0) {
            (void)close(watch->epoll_fd);
            watch->epoll_fd = -1;
        }
        (void)close(watch->done_fd);
        watch->done_fd = -1;
    }
}

int
rps_client_fd(const rps_client *client)
{
    if (rps_client_enter(client) != RPS_OK || client->embedded) {
        return -1;
    }
    if (client->watch->epoll_fd < 0) {
        open_watch(client->watch);
    }
    rps_client_rewatch(client);
    return client->watch->epoll_fd;
}
