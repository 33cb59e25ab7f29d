/* SPDX-License-Identifier: Apache-2.0 */
#include "client/expire.h"

#include "base/clock.h"

#include <limits.h>

/* A server that is there says itself that it is too late. */
#define GRACE_MS 250u

uint32_t
rps_expire_left_us(const struct rps_exchange *exchange)
{
    const uint64_t now_ms = rps_clock_ms();
    uint64_t left_us = exchange->deadline_ms > now_ms
                               ? (exchange->deadline_ms - now_ms) * 1000
                               : 1;

    return left_us > UINT32_MAX ? UINT32_MAX : (uint32_t)left_us;
}

static uint64_t
due_ms(const struct rps_channel *channel, const struct rps_exchange *exchange)
{
    const bool with_server = exchange->sent && !channel->down;

    return exchange->deadline_ms + (with_server ? GRACE_MS : 0);
}

void
rps_wait_until(int *wait_ms, uint64_t now_ms, uint64_t at_ms)
{
    const uint64_t left = at_ms > now_ms ? at_ms - now_ms : 0;

    if (*wait_ms < 0 || left < (uint64_t)*wait_ms) {
        *wait_ms = left > INT_MAX ? INT_MAX : (int)left;
    }
}

void
rps_expire_wait(const rps_client *client, uint64_t now_ms, int *wait_ms)
{
    uint32_t i;

    for (i = 0; client->has_deadlines && i < client->channel_count; i++) {
        const struct rps_channel *channel = client->channels[i];
        const struct rps_exchange *at = channel->waiting;

        for (; at != NULL; at = at->next) {
            if (at->ticket != NULL && at->deadline_ms != 0) {
                rps_wait_until(wait_ms, now_ms, due_ms(channel, at));
            }
        }
    }
}

static void
unsend_from(struct rps_channel *channel, const struct rps_ticket_state *ticket)
{
    struct rps_exchange **link = &channel->waiting;
    struct rps_exchange *taken = NULL;
    bool kept = false; /* the one before */

    while (*link != NULL) {
        struct rps_exchange *at = *link;

        if (at->ticket != ticket || at->was_sent || (at->continued && kept)) {
            kept = true;
            link = &at->next;
            continue;
        }
        kept = false;
        *link = at->next;
        at->next = taken;
        taken = at;
        channel->unsent--;
    }
    rps_exchanges_drop(ticket->client, taken);
}

void
rps_ticket_unsend(struct rps_ticket_state *ticket)
{
    uint32_t i;

    for (i = 0; i < ticket->client->channel_count; i++) {
        struct rps_channel *channel = ticket->client->channels[i];

        if (channel != NULL && channel->unsent > 0) {
            unsend_from(channel, ticket);
        }
    }
}

static void
end(struct rps_ticket_state *ticket, const struct rps_channel *channel,
        const struct rps_exchange *exchange)
{
    const rps_status status = ticket->was_sent ? RPS_E_TIMEOUT : RPS_E_DEADLINE;
    struct rps_error error;

    (void)rps_fail(&error, status, "PS %u (%s): %s: its time is over%s%s",
            channel->ps, channel->address, rps_opcode_str(exchange->opcode),
            ticket->was_sent ? "; whether it was done is not known"
                             : ": it was never sent, nothing was done",
            channel->down ? " (the connection is lost)" : "");
    rps_ticket_unsend(ticket);
    rps_ticket_end(ticket, status, &error);
}

/* The first exchange of a channel whose time is over. */
static struct rps_exchange *
find_due(const struct rps_channel *channel, uint64_t now_ms)
{
    struct rps_exchange *at = channel->waiting;

    while (at != NULL && (at->ticket == NULL || at->deadline_ms == 0 ||
                                 due_ms(channel, at) > now_ms)) {
        at = at->next;
    }
    return at;
}

void
rps_expire(rps_client *client, uint64_t now_ms)
{
    uint32_t i;

    for (i = 0; client->has_deadlines && i < client->channel_count; i++) {
        const struct rps_channel *channel = client->channels[i];
        struct rps_exchange *due = find_due(channel, now_ms);

        while (due != NULL) {
            end(due->ticket, channel, due);
            due = find_due(channel, now_ms);
        }
    }
}
