/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What callers wait for: the list of tickets, wait, poll and cancel.
 */
#include "base/clock.h"
#include "base/text.h"
#include "client/exchange.h"
#include "client/watch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct rps_ticket_state *
rps_ticket_create(rps_client *client)
{
    struct rps_ticket_state *ticket = calloc(1, sizeof(*ticket));

    if (ticket == NULL) {
        return NULL;
    }
    ticket->client = client;
    ticket->id = ++client->last_ticket;
    ticket->next = client->tickets;
    client->tickets = ticket;
    return ticket;
}

static void
forget_exchanges(struct rps_ticket_state *ticket)
{
    uint32_t i;

    for (i = 0; i < ticket->client->channel_count; i++) {
        struct rps_channel *channel = ticket->client->channels[i];
        struct rps_exchange *exchange =
                channel != NULL ? channel->waiting : NULL;

        for (; exchange != NULL; exchange = exchange->next) {
            if (exchange->ticket == ticket) {
                exchange->ticket = NULL;
                exchange->answer = NULL;
            }
        }
    }
}

void
rps_ticket_destroy(struct rps_ticket_state *ticket)
{
    struct rps_ticket_state **link;

    if (ticket == NULL) {
        return;
    }
    if (ticket->outstanding > 0) {
        forget_exchanges(ticket);
    }
    link = &ticket->client->tickets;
    while (*link != ticket) {
        link = &(*link)->next;
    }
    *link = ticket->next;
    if (ticket->release != NULL) {
        ticket->release(ticket);
    }
    free(ticket);
}

struct rps_ticket_state *
rps_ticket_find(const rps_client *client, uint64_t id)
{
    struct rps_ticket_state *ticket = client->tickets;

    while (ticket != NULL && ticket->id != id) {
        ticket = ticket->next;
    }
    return ticket;
}

/* Names the servers that have not answered. */
static rps_status
timed_out(const struct rps_ticket_state *ticket, uint32_t timeout_ms)
{
    struct rps_text names = {0};
    rps_status status;
    uint32_t i;

    for (i = 0; i < ticket->client->channel_count; i++) {
        const struct rps_channel *channel = ticket->client->channels[i];
        const struct rps_exchange *exchange = channel->waiting;

        while (exchange != NULL && exchange->ticket != ticket) {
            exchange = exchange->next;
        }
        if (exchange != NULL) {
            rps_text_add(&names, "%sPS %u (%s) to %s",
                    names.length > 0 ? ", " : "", channel->ps, channel->address,
                    rps_opcode_str(exchange->opcode));
        }
    }
    status = rps_client_fail(RPS_E_TIMEOUT, "no answer in %u ms from %s",
            timeout_ms, names.bytes != NULL ? names.bytes : "the servers");
    rps_text_finish(&names);
    return status;
}

rps_status
rps_ticket_wait(struct rps_ticket_state *ticket, uint32_t timeout_ms)
{
    uint64_t start = rps_clock_ms();

    while (!ticket->done) {
        uint64_t passed = rps_clock_ms() - start;
        int left = -1;

        if (timeout_ms != 0 && passed >= timeout_ms) {
            return timed_out(ticket, timeout_ms);
        }
        if (timeout_ms != 0) {
            uint64_t wait = timeout_ms - passed;

            left = wait > INT_MAX ? INT_MAX : (int)wait;
        }
        rps_client_move(ticket->client, left);
    }
    if (ticket->status != RPS_OK) {
        return rps_client_fail_with(ticket->status, &ticket->error);
    }
    return RPS_OK;
}

rps_status
rps_ticket_settle(struct rps_ticket_state *ticket, uint32_t timeout_ms)
{
    rps_client *client = ticket->client;
    rps_status status = rps_ticket_wait(ticket, timeout_ms);

    rps_ticket_destroy(ticket);
    rps_client_rewatch(client);
    return status;
}

static struct rps_ticket_state *
ticket_of(rps_client *client, rps_ticket ticket, rps_status *status_out)
{
    struct rps_ticket_state *found = NULL;

    *status_out = rps_client_enter(client);
    if (*status_out != RPS_OK) {
        return NULL;
    }
    found = rps_ticket_find(client, ticket.id);
    if (found == NULL) {
        *status_out = rps_client_fail(RPS_E_NOT_FOUND,
                "ticket %llu: no such ticket (finished or canceled before)",
                (unsigned long long)ticket.id);
    }
    return found;
}

rps_status
rps_wait(rps_client *client, rps_ticket ticket, uint32_t timeout_ms)
{
    rps_status status;
    struct rps_ticket_state *found = ticket_of(client, ticket, &status);

    if (found == NULL) {
        return status;
    }
    status = rps_ticket_wait(found, timeout_ms);
    if (found->done) {
        rps_ticket_destroy(found);
    }
    rps_client_rewatch(client);
    return status;
}

rps_status
rps_poll(rps_client *client, rps_ticket ticket, int *done_out)
{
    rps_status status;
    struct rps_ticket_state *found = ticket_of(client, ticket, &status);

    *done_out = 0;
    if (found == NULL) {
        return status;
    }
    if (!found->done) {
        rps_client_move(client, 0);
    }
    if (found->done) {
        *done_out = 1;
        status = rps_ticket_wait(found, 0);
        rps_ticket_destroy(found);
    }
    rps_client_rewatch(client);
    return status;
}

void
rps_cancel(rps_client *client, rps_ticket ticket)
{
    rps_status status;
    struct rps_ticket_state *found = ticket_of(client, ticket, &status);

    if (found != NULL) {
        rps_ticket_destroy(found);
        rps_client_rewatch(client);
    }
}
