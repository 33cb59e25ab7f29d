/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The embedded mode: frames go to a service inside the process. Owns the
 * service and its one session. A reply may come from another thread, so
 * replies wait in a queue; an eventfd wakes the client if it sleeps.
 */
#include "client/channel.h"
#include "server/service.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct reply {
    struct reply *next;
    uint8_t *frame; /* NULL: the service had no memory for it */
    size_t frame_bytes;
};

struct local {
    struct rps_channel base;
    struct rps_service *service;
    struct rps_session *session;
    int event_fd;
    pthread_mutex_t lock;
    struct reply *replies; /* lock */
    struct reply **tail;   /* lock */
    bool armed;            /* lock; the client may sleep: write event_fd */
    bool starved;          /* lock; a reply was lost for lack of memory */
};

static struct local *
local_of(struct rps_channel *channel)
{
    return (struct local *)channel;
}

static void
wake_locked(struct local *local)
{
    uint64_t one = 1;

    if (local->armed) {
        local->armed = false;
        /* Fails only if the counter is full: then it is readable, too. */
        if (write(local->event_fd, &one, sizeof(one)) < 0) {
            return;
        }
    }
}

/* rps_reply_fn: any thread. */
static void
take_reply(void *context, uint8_t *frame, size_t frame_bytes)
{
    struct local *local = context;
    struct reply *reply = calloc(1, sizeof(*reply));

    (void)pthread_mutex_lock(&local->lock);
    if (reply == NULL || frame == NULL) {
        local->starved = true;
        free(reply);
        free(frame);
    } else {
        reply->frame = frame;
        reply->frame_bytes = frame_bytes;
        *local->tail = reply;
        local->tail = &reply->next;
    }
    wake_locked(local);
    (void)pthread_mutex_unlock(&local->lock);
}

static rps_status
local_send(struct rps_channel *channel, const uint8_t *frame,
        size_t frame_bytes, struct rps_error *error)
{
    struct local *local = local_of(channel);
    struct rps_header header;
    struct rps_message message;
    rps_status status = rps_header_decode(frame, &header, error);

    if (status == RPS_OK) {
        status = rps_message_open(&message, &header, frame, frame_bytes, error);
    }
    if (status == RPS_OK) {
        rps_service_handle(local->session, &message, take_reply, local);
    }
    return status;
}

static struct reply *
pop_all(struct local *local, bool *starved_out)
{
    struct reply *replies;

    (void)pthread_mutex_lock(&local->lock);
    replies = local->replies;
    local->replies = NULL;
    local->tail = &local->replies;
    *starved_out = local->starved;
    (void)pthread_mutex_unlock(&local->lock);
    return replies;
}

static void
drain_event(struct local *local)
{
    uint64_t count;

    /* Non-blocking: nothing there is fine. */
    if (read(local->event_fd, &count, sizeof(count)) < 0) {
        return;
    }
}

static rps_status
give(struct local *local, const struct reply *reply, rps_reply_take_fn *take,
        void *context, struct rps_error *error)
{
    struct rps_header header;
    struct rps_message message;
    rps_status status = rps_header_decode(reply->frame, &header, error);

    if (status == RPS_OK) {
        status = rps_message_open(
                &message, &header, reply->frame, reply->frame_bytes, error);
    }
    return status == RPS_OK ? take(context, &local->base, &message, error)
                            : status;
}

static rps_status
local_move(struct rps_channel *channel, rps_reply_take_fn *take, void *context,
        struct rps_error *error)
{
    struct local *local = local_of(channel);
    bool starved;
    struct reply *replies;
    rps_status status = RPS_OK;

    drain_event(local);
    replies = pop_all(local, &starved);
    while (replies != NULL) {
        struct reply *reply = replies;

        replies = reply->next;
        if (status == RPS_OK) {
            status = give(local, reply, take, context, error);
        }
        free(reply->frame);
        free(reply);
    }
    if (status == RPS_OK && starved) {
        status = rps_fail(error, RPS_E_NOMEM,
                "the embedded service had no memory for a reply");
    }
    return status;
}

static bool
local_arm(struct rps_channel *channel, bool waits)
{
    struct local *local = local_of(channel);
    bool work;

    (void)pthread_mutex_lock(&local->lock);
    work = local->replies != NULL || local->starved;
    local->armed = !work;
    (void)pthread_mutex_unlock(&local->lock);
    return work;
}

static int
local_watch(const struct rps_channel *channel, short *events_out)
{
    const struct local *local = (const struct local *)channel;

    *events_out = POLLIN;
    return local->event_fd;
}

static void
local_hang_up(struct rps_channel *channel)
{
    /* The service is this process: nobody else is to be told. */
}

static void
local_destroy(struct rps_channel *channel, bool forked)
{
    struct local *local = local_of(channel);
    bool starved;
    struct reply *replies;

    if (forked) {
        /* The service's threads and locks are the parent's: leave it all. */
        if (local->event_fd >= 0) {
            (void)close(local->event_fd);
        }
        return;
    }
    if (local->session != NULL) {
        rps_session_close(local->session);
    }
    if (local->service != NULL) {
        rps_service_destroy(local->service);
    }
    replies = pop_all(local, &starved);
    while (replies != NULL) {
        struct reply *reply = replies;

        replies = reply->next;
        free(reply->frame);
        free(reply);
    }
    if (local->event_fd >= 0) {
        (void)close(local->event_fd);
    }
    (void)pthread_mutex_destroy(&local->lock);
    free(local->base.address);
    free(local);
}

static const struct rps_channel_ops local_ops = {
        .send = local_send,
        .move = local_move,
        .arm = local_arm,
        .watch = local_watch,
        .hang_up = local_hang_up,
        .destroy = local_destroy,
};

static rps_status
open_service(struct local *local, const struct rps_local_options *options,
        struct rps_error *error)
{
    struct rps_service_options service = {
            .ps_index = 0,
            .ps_count = 1,
            .job_id = options->job_id,
            .job_seed = options->job_seed,
            .checkpoint_dir = options->checkpoint_dir,
            .checkpoint_read_only_ok = options->checkpoint_read_only,
            .warm_start_dirs = "/", /* who asks could read it himself */
            .step_bytes_max = 256u << 20,
            .step_timeout_ms = 60000,
    };
    rps_status status = rps_service_create(&local->service, &service, error);

    if (status != RPS_OK) {
        return status;
    }
    local->session = rps_session_open(local->service, "in process");
    if (local->session == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    rps_session_set_transport(local->session, RPS_TRANSPORT_LOCAL);
    return RPS_OK;
}

rps_status
rps_channel_local_create(struct rps_channel **channel_out,
        const struct rps_local_options *options, struct rps_error *error)
{
    struct local *local = calloc(1, sizeof(*local));
    rps_status status;

    *channel_out = NULL;
    if (local == NULL || pthread_mutex_init(&local->lock, NULL) != 0) {
        free(local);
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    local->base.ops = &local_ops;
    local->base.transport = RPS_TRANSPORT_LOCAL;
    local->tail = &local->replies;
    local->base.address = strdup("in process");
    local->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (local->base.address == NULL || local->event_fd < 0) {
        status = rps_fail(error, RPS_E_NOMEM, "no memory or descriptor");
        goto fail;
    }
    status = open_service(local, options, error);
    if (status != RPS_OK) {
        goto fail;
    }
    *channel_out = &local->base;
    return RPS_OK;
fail:
    local_destroy(&local->base, false);
    return status;
}
