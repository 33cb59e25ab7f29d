/* SPDX-License-Identifier: Apache-2.0 */
#include "client/redial.h"

#include "base/clock.h"
#include "base/hash.h"
#include "client/dial.h"
#include "client/expire.h"
#include "client/io_thread.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FIRST_MS_MAX 8u /* jitter of the first attempt */

/* A server that was told to end and is not there any more has done so. */
static void
end_shutdowns(const struct rps_channel *channel)
{
    const struct rps_exchange *at = channel->waiting;

    for (; at != NULL; at = at->next) {
        if (at->ticket != NULL && at->was_sent &&
                at->opcode == RPS_OP_SHUTDOWN) {
            rps_ticket_end(at->ticket, RPS_OK, &channel->cause);
        }
    }
}

/* All of it is to be sent again. */
static void
take_back(struct rps_channel *channel)
{
    struct rps_exchange *at;

    channel->unsent = 0;
    for (at = channel->waiting; at != NULL; at = at->next) {
        at->sent = false;
        at->answered = false;
        channel->unsent++;
    }
}

bool
rps_redial_begin(rps_client *client, struct rps_channel *channel,
        rps_status status, const struct rps_error *error)
{
    const uint64_t now = rps_clock_ms();
    struct rps_dial *dial;

    if (status != RPS_E_UNREACHABLE || client->reconnect_timeout_ms == 0 ||
            client->dials == NULL) {
        return false;
    }
    (void)rps_fail(&channel->cause, status, "PS %u (%s): %s", channel->ps,
            channel->address, error->text);
    channel->ops->hang_up(channel);
    channel->down = true;
    take_back(channel);
    dial = &client->dials[channel->ps];
    if (channel->moved_on || dial->since_ms == 0) {
        dial->since_ms = now;
        dial->draw = rps_mix64(dial->draw);
        rps_dial_begin(dial, now + dial->draw % (FIRST_MS_MAX + 1),
                now + client->reconnect_timeout_ms);
    } else { /* nothing was heard since it was greeted */
        rps_dial_again(dial, now);
    }
    channel->moved_on = false;
    return true;
}

void
rps_redial_watch(const rps_client *client, uint32_t ps, uint64_t now_ms,
        struct pollfd *poll, int *wait_ms)
{
    const struct rps_dial *dial = &client->dials[ps];

    poll->fd = rps_dial_watch(dial, &poll->events);
    rps_wait_until(wait_ms, now_ms, dial->at_ms);
}

/* --- going on ------------------------------------------------------------ */

/* Does anybody still want it? The frames of a push go together. */
static bool
is_wanted(const struct rps_exchange *exchange)
{
    do {
        if (exchange->ticket != NULL || exchange->carries_decision) {
            return true;
        }
        exchange = exchange->next;
    } while (exchange != NULL && exchange->continued);
    return false;
}

/* A push that was carried out is asked for again, though nobody waits for it
 * any more: its verdict is counted. */
static bool
is_to_be_counted(const struct rps_exchange *exchange, uint64_t kept)
{
    return exchange->opcode == RPS_OP_PUSH_GRADIENTS && exchange->number != 0 &&
           exchange->number <= kept;
}

/* Numbers up to `kept` have their verdict; the others are given anew, and
 * what nobody waits for goes. */
static void
renumber(rps_client *client, struct rps_channel *channel, uint64_t kept)
{
    struct rps_exchange **link = &channel->waiting;
    struct rps_exchange *dropped = NULL;
    bool wanted = false;

    channel->numbers.given = kept;
    while (*link != NULL) {
        struct rps_exchange *at = *link;

        wanted = at->continued ? wanted
                               : is_wanted(at) || is_to_be_counted(at, kept);
        if (!wanted) {
            *link = at->next;
            at->next = dropped;
            dropped = at;
            channel->unsent--;
            continue;
        }
        at->repeats = at->number != 0 && at->number <= kept;
        at->number = at->repeats ? at->number : 0;
        link = &at->next;
    }
    rps_exchanges_drop(client, dropped);
}

rps_status
rps_rolled_back_words(
        const struct rps_channel *channel, struct rps_error *error)
{
    const struct rps_lost *lost = &channel->rolled_back;

    if (lost->last == 0) {
        return rps_fail(error, RPS_E_ROLLED_BACK,
                "PS %u (%s): it began anew, and is not in this job's epoch %u"
                " any more",
                channel->ps, channel->address, channel->epoch);
    }
    return rps_fail(error, RPS_E_ROLLED_BACK,
            "PS %u (%s): it began anew and has this client's changes up to "
            "number %" PRIu64 ": %" PRIu64 " to %" PRIu64 ", with %" PRIu64
            " acknowledged pushes, are lost; what it did not "
            "acknowledge it has not done, other servers may have (see "
            "rps_client_rolled_back)",
            channel->ps, channel->address, lost->first - 1, lost->first,
            lost->last, lost->pushes);
}

/* The server began anew, from an older state than was acknowledged. */
static void
roll_back(rps_client *client, struct rps_channel *channel, uint64_t kept)
{
    struct rps_numbers *numbers = &channel->numbers;
    struct rps_lost *lost = &channel->rolled_back;
    struct rps_exchange *waiting = channel->waiting;

    if (lost->last == 0 || kept + 1 < lost->first) {
        lost->first = kept + 1;
    }
    if (numbers->answered > lost->last) {
        lost->last = numbers->answered;
    }
    lost->pushes += rps_numbers_cut(numbers, kept);
    numbers->given = kept;
    numbers->answered = kept;
    (void)rps_rolled_back_words(channel, &channel->cause);
    /* in a job no step can end any more, wherever its end is waited for */
    rps_channel_end_tickets(client, channel, client->in_job, RPS_E_ROLLED_BACK);
    channel->waiting = NULL;
    channel->unsent = 0;
    channel->owes_decision = client->decision != NULL;
    rps_exchanges_free(waiting);
}

/* Requests of tickets that have ended, and decisions, are of a past that the
 * server does not have. */
static void
drop_void(struct rps_channel *channel)
{
    struct rps_exchange **link = &channel->waiting;

    while (*link != NULL) {
        struct rps_exchange *at = *link;

        if (at->ticket != NULL && !at->carries_decision) {
            link = &at->next;
            continue;
        }
        *link = at->next;
        at->next = NULL;
        channel->unsent--;
        rps_exchanges_free(at);
    }
}

/* Nobody that is in a job may speak to a server that has lost its memory, not
 * even where both should count the same epoch: the job begins again first. What
 * is said to the process alone (SHUTDOWN) goes on. */
static void
fence(rps_client *client, struct rps_channel *channel, uint64_t kept)
{
    struct rps_ticket_state *ticket;

    channel->fenced = true;
    (void)rps_rolled_back_words(channel, &channel->cause);
    for (ticket = client->tickets; ticket != NULL; ticket = ticket->next) {
        if (!ticket->done && !ticket->narrow) {
            rps_ticket_end(ticket, RPS_E_ROLLED_BACK, &channel->cause);
        }
    }
    drop_void(channel);
    channel->numbers.given = kept;
    channel->owes_decision = false;
    rps_channel_pump(client, channel);
}

/* What the old connection was about is the new one's from here on. */
static void
take_over(struct rps_channel *channel, struct rps_channel *old)
{
    const uint64_t incarnation = channel->numbers.incarnation;

    channel->owes_decision = old->owes_decision;
    channel->wish_waits = old->wish_waits;
    channel->connection = old->connection + 1;
    channel->cause = old->cause;
    channel->waiting = old->waiting;
    channel->unsent = old->unsent;
    channel->rolled_back = old->rolled_back;
    channel->fenced = old->fenced;
    channel->numbers = old->numbers;
    channel->numbers.incarnation = incarnation;
    old->waiting = NULL;
}

/* Greeted: does the server know of us what we know? */
static void
resume(rps_client *client, struct rps_channel *channel)
{
    struct rps_channel *old = client->channels[channel->ps];
    const uint64_t kept = channel->numbers.given;
    const bool anew = channel->numbers.incarnation != old->numbers.incarnation;
    struct rps_error error;

    if (!anew || client->joined) {
        channel->epoch = old->epoch;
    }
    take_over(channel, old);
    client->channels[channel->ps] = channel;
    rps_channel_destroy(old, false);
    client->reconnects++;
    if (kept > channel->numbers.given) {
        (void)rps_fail(&error, RPS_E_ROLLED_BACK,
                "it knows changes of this client up to number %" PRIu64
                ", which were not made by it (%" PRIu64
                " were): its state is of another past",
                kept, channel->numbers.given);
        rps_channel_lose(client, channel, RPS_E_ROLLED_BACK, &error);
    } else if (kept >= channel->numbers.answered && anew && client->in_job) {
        fence(client, channel, kept);
    } else if (kept >= channel->numbers.answered) {
        renumber(client, channel, kept);
        rps_channel_pump(client, channel);
    } else if (anew) {
        roll_back(client, channel, kept);
    } else {
        (void)rps_fail(&error, RPS_E_UNREACHABLE,
                "it has forgotten this client, which was away for longer "
                "than --client-ttl");
        rps_channel_lose(client, channel, RPS_E_UNREACHABLE, &error);
    }
}

static void
give_up(rps_client *client, struct rps_channel *channel, uint64_t now_ms)
{
    const struct rps_dial *dial = &client->dials[channel->ps];
    const struct rps_error before = channel->cause;
    struct rps_error error;
    const char *words = before.text;
    char name[300];
    int length = snprintf(
            name, sizeof(name), "PS %u (%s): ", channel->ps, channel->address);

    if (length > 0 && (size_t)length < sizeof(name) &&
            strncmp(words, name, (size_t)length) == 0) {
        words += length;
    }
    (void)rps_fail(&error, RPS_E_UNREACHABLE,
            "%.400s; not reached again in %.1f s: %.400s", words,
            (double)(now_ms - dial->since_ms) / 1000.0,
            dial->cause.text[0] != '\0' ? dial->cause.text
                                        : "it was not tried yet");
    rps_channel_lose(client, channel, RPS_E_UNREACHABLE, &error);
}

/* Asked of who waits; between two calls nobody does. */
static bool
wants_end(const rps_client *client)
{
    return client->give_up != NULL && !rps_io_is_alone(client) &&
           client->give_up(client->give_up_context) != 0;
}

void
rps_redial_move(rps_client *client, uint32_t ps, short revents, uint64_t now_ms)
{
    struct rps_channel *channel = client->channels[ps];
    struct rps_dial *dial = &client->dials[ps];

    rps_dial_move(dial, revents, now_ms);
    if (dial->attempts > 0) {
        end_shutdowns(channel);
    }
    if (dial->fatal != RPS_OK) {
        rps_channel_lose(client, channel, dial->fatal, &dial->cause);
        rps_dial_clear(dial);
    } else if (dial->state == RPS_DIAL_DONE) {
        resume(client, rps_dial_take(dial));
    } else if ((dial->state == RPS_DIAL_WAIT && dial->attempts > 0 &&
                       now_ms >= dial->until_ms) ||
               wants_end(client)) {
        give_up(client, channel, now_ms);
        rps_dial_clear(dial);
    }
}

rps_status
rps_client_rolled_back(rps_client *client, uint32_t ps, rps_rollback *out)
{
    RPS_TURN(client);
    rps_status status = rps_client_enter(client);
    struct rps_channel *channel;
    struct rps_lost *lost;

    if (out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "out is NULL");
    }
    *out = (rps_rollback){0};
    if (status != RPS_OK) {
        return status;
    }
    if (ps >= client->channel_count) {
        return rps_client_no_such_server(client, ps);
    }
    channel = client->channels[ps];
    lost = &channel->rolled_back;
    out->first = lost->first;
    out->last = lost->last;
    out->pushes = lost->pushes;
    out->acknowledged = channel->numbers.acknowledged;
    out->unanswered = channel->numbers.abandoned +
                      rps_channel_pushes_waiting(channel, false);
    *lost = (struct rps_lost){0};
    return RPS_OK;
}
