/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What callers wait for: the list of tickets, wait, poll and cancel.
 */
#include "base/clock.h"
#include "base/text.h"
#include "client/exchange.h"
#include "client/expire.h"
#include "client/watch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_MS 10000u /* a line while waiting */

struct rps_ticket_state *
rps_ticket_create(rps_client *client)
{
    struct rps_ticket_state *ticket = calloc(1, sizeof(*ticket));

    if (ticket == NULL) {
        return NULL;
    }
    ticket->client = client;
    ticket->round = client->traffic.round_trips;
    ticket->id = ++client->last_ticket;
    ticket->next = client->tickets;
    client->tickets = ticket;
    return ticket;
}

void
rps_ticket_destroy(struct rps_ticket_state *ticket)
{
    struct rps_ticket_state **link;

    if (ticket == NULL) {
        return;
    }
    if (ticket->outstanding > 0) {
        rps_ticket_unsend(ticket);
        rps_ticket_detach(ticket);
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

/* The servers that have not answered, and what they were asked. */
static void
name_waiting(const struct rps_ticket_state *ticket, struct rps_text *names)
{
    bool first = true;
    uint32_t i;

    for (i = 0; i < ticket->client->channel_count; i++) {
        const struct rps_channel *channel = ticket->client->channels[i];
        const struct rps_exchange *exchange = channel->waiting;

        while (exchange != NULL && exchange->ticket != ticket) {
            exchange = exchange->next;
        }
        if (exchange != NULL) {
            rps_text_add(names, "%sPS %u (%s) to %s%s", first ? "" : ", ",
                    channel->ps, channel->address,
                    rps_opcode_str(exchange->opcode),
                    exchange->opcode == RPS_OP_STEP_END && !channel->down
                            ? ", which waits for the other replicas"
                            : "");
            first = false;
        }
        if (channel->down && !channel->lost) {
            rps_text_add(names, "%s%s: it is dialled again", first ? "" : ", ",
                    channel->cause.text);
            first = false;
        }
    }
}

static rps_status
timed_out(const struct rps_ticket_state *ticket, uint32_t timeout_ms)
{
    struct rps_text names = {0};
    rps_status status;

    name_waiting(ticket, &names);
    status = rps_client_fail(RPS_E_TIMEOUT, "no answer in %u ms from %s",
            timeout_ms, names.bytes != NULL ? names.bytes : "the servers");
    rps_text_finish(&names);
    return status;
}

static void
report_wait(const struct rps_ticket_state *ticket, uint64_t passed_ms)
{
    const rps_client *client = ticket->client;
    struct rps_text line = {0};

    rps_text_add(&line, "waiting since %u s for an answer of ",
            (uint32_t)(passed_ms / 1000));
    name_waiting(ticket, &line);
    if (ticket->tell != NULL) {
        ticket->tell(ticket->client, &line);
    }
    if (line.bytes != NULL) {
        client->report(client->report_context, line.bytes);
    }
    rps_text_finish(&line);
}

/* The nearer of the end of the wait and the next line; -1: neither. */
static int
wait_ms(uint64_t passed, uint32_t timeout_ms, uint64_t report_at)
{
    uint64_t until = report_at;

    if (timeout_ms != 0 && timeout_ms < until) {
        until = timeout_ms;
    }
    if (until == UINT64_MAX) {
        return -1;
    }
    until = until > passed ? until - passed : 0;
    return until > INT_MAX ? INT_MAX : (int)until;
}

/* A ticket that was begun before another wait ended was on its way during
 * it: only the first of those has a round trip of its own. */
static void
count_round_trip(struct rps_ticket_state *ticket)
{
    uint64_t *round_trips = &ticket->client->traffic.round_trips;

    if (!ticket->done && ticket->round == *round_trips) {
        ++*round_trips;
    }
}

rps_status
rps_ticket_wait(struct rps_ticket_state *ticket, uint32_t timeout_ms)
{
    uint64_t start = rps_clock_ms();
    uint64_t report_at =
            ticket->client->report != NULL ? REPORT_MS : UINT64_MAX;

    count_round_trip(ticket);
    while (!ticket->done) {
        uint64_t passed = rps_clock_ms() - start;

        if (timeout_ms != 0 && passed >= timeout_ms) {
            return timed_out(ticket, timeout_ms);
        }
        if (passed >= report_at) {
            report_wait(ticket, passed);
            report_at += REPORT_MS;
        }
        rps_client_move(ticket->client, wait_ms(passed, timeout_ms, report_at));
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

    if (!ticket->done) {
        rps_ticket_withdraw(ticket);
    }
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
    RPS_TURN(client);
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
    RPS_TURN(client);
    rps_status status;
    struct rps_ticket_state *found = ticket_of(client, ticket, &status);

    if (done_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "done_out is NULL");
    }
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
    RPS_TURN(client);
    rps_status status;
    struct rps_ticket_state *found = ticket_of(client, ticket, &status);

    if (found != NULL) {
        rps_ticket_destroy(found);
        rps_client_rewatch(client);
    }
}
