/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building and sending requests, taking replies. What a reply may hold is
 * checked here (header) and in the take functions (body).
 */
#include "client/exchange.h"

#include "base/clock.h"
#include "client/expire.h"
#include "client/io_thread.h"
#include "client/redial.h"
#include "client/refusal.h"
#include "client/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a wish to give up a server that is lost may wait. */
#define GIVE_UP_MS 100

void
rps_answer_finish(struct rps_answer *answer)
{
    free(answer->text);
    free(answer->decision);
    *answer = (struct rps_answer){0};
}

static void
exchange_destroy(struct rps_exchange *exchange)
{
    if (exchange != NULL) {
        free(exchange->parts);
        free(exchange->frame);
        free(exchange);
    }
}

void
rps_outbox_init(struct rps_outbox *outbox)
{
    outbox->first = NULL;
    outbox->tail = &outbox->first;
}

/* --- building ------------------------------------------------------------ */

/* What carried the decision may not have brought it: it goes again, for a PS
 * that has applied it ignores it. */
static void
owe_again(const rps_client *client, const struct rps_exchange *exchange)
{
    if (exchange->carries_decision && client->decision != NULL) {
        client->channels[exchange->ps]->owes_decision = true;
    }
}

static void
attach_decision(rps_client *client, struct rps_channel *channel,
        struct rps_exchange *exchange, struct rps_builder *builder)
{
    struct rps_section section = {
            .kind = RPS_SECTION_DECISION,
            .count = client->decision_bytes,
    };

    rps_builder_add(builder, &section, client->decision);
    channel->owes_decision = false;
    exchange->carries_decision = true;
}

struct rps_exchange *
rps_exchange_begin(rps_client *client, struct rps_outbox *outbox,
        struct rps_builder *builder, const struct rps_request *request)
{
    struct rps_channel *channel = client->channels[request->ps];
    struct rps_exchange *exchange = calloc(1, sizeof(*exchange));
    bool decision = channel->owes_decision && !request->bare;
    uint64_t us = (uint64_t)request->timeout_ms * 1000;
    struct rps_header header = {
            .version = RPS_WIRE_VERSION,
            .opcode = request->opcode,
            .flags = request->flags |
                     (client->body_checksum ? RPS_FLAG_BODY_XXH3 : 0),
            .step = request->step,
            .epoch = channel->epoch,
            .route_version = client->route.version,
            .deadline_us = us > UINT32_MAX ? UINT32_MAX : (uint32_t)us,
    };

    if (exchange == NULL) {
        return NULL;
    }
    header.request_id = ++client->last_request;
    exchange->request_id = header.request_id;
    exchange->epoch = header.epoch;
    exchange->numbered = request->numbered;
    exchange->continued = request->continued;
    exchange->more = (request->flags & RPS_FLAG_MORE) != 0;
    if (request->timeout_ms != 0) {
        exchange->deadline_ms = rps_clock_ms() + request->timeout_ms;
        client->has_deadlines = true;
    }
    exchange->ps = request->ps;
    exchange->opcode = request->opcode;
    *outbox->tail = exchange;
    outbox->tail = &exchange->next;
    rps_builder_begin(builder, &header, request->sections + (decision ? 1 : 0));
    if (decision) {
        attach_decision(client, channel, exchange, builder);
    }
    return exchange;
}

rps_status
rps_exchange_end(struct rps_exchange *exchange, struct rps_builder *builder)
{
    rps_status status =
            rps_builder_end(builder, &exchange->frame, &exchange->frame_bytes);

    rps_builder_finish(builder);
    return status;
}

void
rps_exchanges_drop(rps_client *client, struct rps_exchange *first)
{
    const struct rps_exchange *at = first;

    for (; at != NULL; at = at->next) {
        owe_again(client, at);
    }
    rps_exchanges_free(first);
}

void
rps_outbox_abort(rps_client *client, struct rps_outbox *outbox)
{
    rps_exchanges_drop(client, outbox->first);
    rps_outbox_init(outbox);
}

/* --- a ticket's end ------------------------------------------------------ */

static void
ticket_fail(struct rps_ticket_state *ticket, rps_status status,
        const struct rps_error *error)
{
    if (ticket->status == RPS_OK) {
        ticket->status = status;
        ticket->error = *error;
    }
}

static void
ticket_finish(struct rps_ticket_state *ticket)
{
    struct rps_error error = {{0}};

    if (ticket->done) {
        return;
    }
    ticket->done = true;
    if (ticket->status == RPS_OK && ticket->finish != NULL) {
        ticket_fail(ticket, ticket->finish(ticket, &error), &error);
    }
}

void
rps_ticket_detach(struct rps_ticket_state *ticket)
{
    rps_client *client = ticket->client;
    uint32_t i;

    for (i = 0; i < client->channel_count; i++) {
        struct rps_channel *channel = client->channels[i];
        struct rps_exchange *exchange =
                channel != NULL ? channel->waiting : NULL;

        for (; exchange != NULL; exchange = exchange->next) {
            if (exchange->ticket == ticket) {
                exchange->ticket = NULL;
                exchange->answer = NULL;
                owe_again(client, exchange);
            }
        }
    }
    ticket->outstanding = 0;
}

void
rps_ticket_end(struct rps_ticket_state *ticket, rps_status status,
        const struct rps_error *error)
{
    ticket_fail(ticket, status, error);
    rps_ticket_detach(ticket);
    ticket_finish(ticket);
}

/* --- a lost channel ------------------------------------------------------ */

/* A loss ends what waits for another PS, too, unless one alone matters. */
static bool
concerns(const struct rps_ticket_state *ticket,
        const struct rps_channel *channel, bool all)
{
    const struct rps_exchange *exchange = channel->waiting;

    while (exchange != NULL && exchange->ticket != ticket) {
        exchange = exchange->next;
    }
    return (all && !ticket->narrow) || exchange != NULL;
}

void
rps_exchanges_free(struct rps_exchange *first)
{
    while (first != NULL) {
        struct rps_exchange *next = first->next;

        exchange_destroy(first);
        first = next;
    }
}

uint64_t
rps_channel_pushes_waiting(const struct rps_channel *channel, bool sent)
{
    const struct rps_exchange *at = channel->waiting;
    uint64_t count = 0;

    for (; at != NULL; at = at->next) {
        count += at->opcode == RPS_OP_PUSH_GRADIENTS && !at->more &&
                 (at->was_sent || !sent);
    }
    return count;
}

void
rps_channel_end_tickets(rps_client *client, const struct rps_channel *channel,
        bool all, rps_status status)
{
    struct rps_ticket_state *ticket;

    for (ticket = client->tickets; ticket != NULL; ticket = ticket->next) {
        if (!ticket->done && concerns(ticket, channel, all)) {
            rps_ticket_end(ticket, status, &channel->cause);
        }
    }
}

void
rps_channel_lose(rps_client *client, struct rps_channel *channel,
        rps_status status, const struct rps_error *error)
{
    channel->lost = true;
    (void)rps_fail(&channel->cause, status, "PS %u (%s): %s", channel->ps,
            channel->address, error->text);
    rps_channel_end_tickets(client, channel, true, status);
    /* The peer sees at once that nobody listens; words stay. */
    if (!channel->down) {
        channel->ops->hang_up(channel);
    }
    channel->numbers.abandoned += rps_channel_pushes_waiting(channel, true);
    rps_exchanges_free(channel->waiting);
    channel->waiting = NULL;
    channel->unsent = 0;
}

/* Its connection is gone. */
static void
cut(rps_client *client, struct rps_channel *channel, rps_status status,
        const struct rps_error *error)
{
    if (!rps_redial_begin(client, channel, status, error)) {
        rps_channel_lose(client, channel, status, error);
    }
}

/* --- sending ------------------------------------------------------------- */

static void
append(struct rps_channel *channel, struct rps_exchange *exchange)
{
    struct rps_exchange **tail = &channel->waiting;

    while (*tail != NULL) {
        tail = &(*tail)->next;
    }
    exchange->next = NULL;
    *tail = exchange;
}

/* Its number, and the time that is left, go into the frame now; and where no
 * job says it, the epoch of a server that began anew meanwhile. */
static rps_status
stamp(const rps_client *client, struct rps_channel *channel,
        struct rps_exchange *exchange, struct rps_error *error)
{
    const bool another_epoch =
            !client->joined && exchange->epoch != channel->epoch;
    struct rps_numbers *numbers = &channel->numbers;
    struct rps_header header;
    rps_status status;

    if (exchange->numbered && exchange->number == 0) {
        numbers->given += exchange->continued ? 0 : 1;
        exchange->number = numbers->given;
    }
    if (!exchange->numbered && exchange->deadline_ms == 0 && !another_epoch) {
        return RPS_OK;
    }
    status = rps_header_decode(exchange->frame, &header, error);
    if (status != RPS_OK) {
        return status;
    }
    header.number = exchange->number;
    if (another_epoch) {
        header.epoch = channel->epoch;
        exchange->epoch = channel->epoch;
    }
    if (exchange->deadline_ms != 0) {
        header.deadline_us = rps_expire_left_us(exchange);
    }
    rps_header_encode(&header, exchange->frame);
    return RPS_OK;
}

static bool
may_send(const struct rps_channel *channel, const struct rps_exchange *exchange)
{
    const struct rps_numbers *numbers = &channel->numbers;

    return !exchange->numbered || exchange->continued ||
           exchange->number != 0 ||
           numbers->given - numbers->answered < RPS_NUMBERS_IN_FLIGHT;
}

/* false: the connection is gone. */
static bool
send_now(rps_client *client, struct rps_channel *channel,
        struct rps_exchange *exchange)
{
    struct rps_error error = {{0}};
    rps_status status = stamp(client, channel, exchange, &error);

    exchange->sent = true;
    exchange->was_sent = true;
    if (exchange->ticket != NULL) {
        exchange->ticket->was_sent = true;
    }
    channel->unsent--;
    client->traffic.requests++;
    client->traffic.sent_bytes += exchange->frame_bytes;
    if (status == RPS_OK) {
        status = channel->ops->send(
                channel, exchange->frame, exchange->frame_bytes, &error);
    }
    if (status != RPS_OK) {
        cut(client, channel, status, &error);
    }
    return status == RPS_OK;
}

void
rps_channel_pump(rps_client *client, struct rps_channel *channel)
{
    struct rps_exchange *exchange = channel->waiting;

    if (channel->down || channel->lost) {
        return;
    }
    while (channel->unsent > 0 && exchange != NULL) {
        if (!exchange->sent && (!may_send(channel, exchange) ||
                                       !send_now(client, channel, exchange))) {
            return;
        }
        exchange = exchange->next;
    }
}

static void
send_one(rps_client *client, struct rps_exchange *exchange,
        struct rps_ticket_state *ticket)
{
    struct rps_channel *channel = client->channels[exchange->ps];

    if (channel->lost) {
        rps_ticket_end(ticket, RPS_E_UNREACHABLE, &channel->cause);
        exchange_destroy(exchange);
        return;
    }
    exchange->ticket = ticket->done ? NULL : ticket;
    ticket->outstanding += ticket->done ? 0 : 1;
    append(channel, exchange);
    channel->unsent++;
    if (channel->unsent == 1 && !channel->down && may_send(channel, exchange) &&
            !rps_io_sends(client, channel)) {
        (void)send_now(client, channel, exchange);
    }
}

void
rps_outbox_send(rps_client *client, struct rps_outbox *outbox,
        struct rps_ticket_state *ticket)
{
    while (outbox->first != NULL) {
        struct rps_exchange *exchange = outbox->first;

        outbox->first = exchange->next;
        send_one(client, exchange, ticket);
    }
    rps_outbox_init(outbox);
    if (ticket->outstanding == 0) {
        ticket_finish(ticket);
    }
}

/* --- replies ------------------------------------------------------------- */

/* Servers know a table that is not there by its id alone: name it. NULL: it
 * is not that, or of no table that is known here. New. */
static char *
name_missing(const struct rps_ticket_state *ticket, uint32_t ps,
        const struct rps_message *reply, const char *text)
{
    const rps_embedding_table *table = ticket->client->tables;
    struct rps_error words = {{0}};
    unsigned long long id = 0;
    int read = 0;

    if (reply->header.status != RPS_E_NOT_FOUND || text == NULL ||
            sscanf(text, "table %16llx is not open here%n", &id, &read) != 1 ||
            read == 0) {
        return NULL;
    }
    if (ticket->asked != NULL && ticket->asked->id == id) {
        (void)rps_fail(&words, RPS_E_NOT_FOUND, "there is no table %s at PS %u",
                ticket->asked->spec.name, ps);
        return strdup(words.text);
    }
    while (table != NULL && table->id != id) {
        table = table->next;
    }
    if (table == NULL) {
        return NULL;
    }
    (void)rps_fail(&words, RPS_E_NOT_FOUND,
            "table %s is not open here any more: it was dropped, or the "
            "server began anew; open it again",
            table->spec.name);
    return strdup(words.text);
}

/* A server's words may begin with the opcode's name: it is said once. */
static const char *
without_name(const char *text, const char *name)
{
    const size_t length = strlen(name);

    if (strncmp(text, name, length) != 0) {
        return text;
    }
    if (strncmp(text + length, ": ", 2) == 0) {
        return text + length + 2;
    }
    return text[length] == ' ' ? text + length + 1 : text;
}

static void
refused(struct rps_ticket_state *ticket, const struct rps_channel *channel,
        const struct rps_message *reply)
{
    struct rps_error error;
    const rps_status status = rps_refusal_status(reply);
    const char *name = rps_opcode_str(reply->header.opcode);
    char *text = rps_refusal_words(reply);
    char *named = name_missing(ticket, channel->ps, reply, text);

    if (named != NULL) {
        free(text);
        text = named;
    }
    (void)rps_fail(&error, status, "PS %u (%s): %s: %s", channel->ps,
            channel->address, name,
            text != NULL ? without_name(text, name) : rps_status_str(status));
    free(text);
    ticket_fail(ticket, status, &error);
}

static rps_status
check_header(const rps_client *client, const struct rps_exchange *exchange,
        const struct rps_header *header, struct rps_error *error)
{
    if (client->body_checksum && (header->flags & RPS_FLAG_BODY_XXH3) == 0) {
        return rps_fail(error, RPS_E_CORRUPT,
                "a reply to %s without the checksum that was asked for",
                rps_opcode_str(exchange->opcode));
    }
    if (header->version != RPS_WIRE_VERSION) {
        return rps_fail(error, RPS_E_CORRUPT,
                "a reply of wire version %u (this client speaks %u)",
                header->version, RPS_WIRE_VERSION);
    }
    if (header->opcode != exchange->opcode ||
            header->number != exchange->number) {
        return rps_fail(error, RPS_E_CORRUPT,
                "reply %llu to %s is of another request",
                (unsigned long long)header->request_id,
                rps_opcode_str(exchange->opcode));
    }
    if (header->status > 0 || (header->flags & RPS_FLAG_MORE) != 0) {
        return rps_fail(error, RPS_E_CORRUPT,
                "a reply to %s with status %d and flags 0x%x",
                rps_opcode_str(exchange->opcode), header->status,
                header->flags);
    }
    return RPS_OK;
}

static struct rps_exchange **
find_waiting(struct rps_channel *channel, uint64_t request_id)
{
    struct rps_exchange **link = &channel->waiting;

    while (*link != NULL && (*link)->request_id != request_id) {
        link = &(*link)->next;
    }
    if (*link != NULL && (!(*link)->sent || (*link)->answered)) {
        while (*link != NULL) { /* it was not asked */
            link = &(*link)->next;
        }
    }
    return link;
}

static rps_status
take_body(struct rps_exchange *exchange, struct rps_channel *channel,
        const struct rps_message *reply, struct rps_error *error)
{
    struct rps_answer *answer = exchange->answer;

    if (exchange->ticket == NULL) {
        return RPS_OK;
    }
    if (answer != NULL) {
        answer->status = (rps_status)reply->header.status;
        answer->repeated = exchange->repeats && reply->section_count == 0;
    }
    if (reply->header.status != 0) {
        refused(exchange->ticket, channel, reply);
        return RPS_OK;
    }
    return exchange->take != NULL ? exchange->take(exchange, reply, error)
                                  : RPS_OK;
}

/* The frame has its reply, and with the last one of a push all of it. */
static void
settle_numbers(struct rps_channel *channel, const struct rps_exchange *exchange,
        const struct rps_header *header)
{
    struct rps_numbers *numbers = &channel->numbers;

    channel->moved_on = true;
    if (!exchange->numbered || exchange->more) {
        return;
    }
    if (exchange->number > numbers->answered) {
        numbers->answered = exchange->number;
        if (exchange->opcode == RPS_OP_PUSH_GRADIENTS && header->status == 0) {
            rps_numbers_acknowledge(numbers, exchange->number);
        }
    }
}

/* Out of the list: it, and the frames of the same push before it. */
static void
unlink_answered(struct rps_channel *channel, struct rps_exchange **link)
{
    struct rps_exchange *exchange = *link;
    struct rps_exchange **at = &channel->waiting;

    if (exchange->more) {
        exchange->answered = true;
        exchange->ticket = NULL;
        exchange->answer = NULL;
        return;
    }
    while (exchange->continued && *at != exchange) {
        struct rps_exchange *earlier = *at;

        if (earlier->answered && earlier->number == exchange->number) {
            *at = earlier->next;
            exchange_destroy(earlier);
        } else {
            at = &earlier->next;
        }
    }
    while (*at != exchange) {
        at = &(*at)->next;
    }
    *at = exchange->next;
    exchange_destroy(exchange);
}

/* rps_reply_take_fn */
static rps_status
take_reply(void *context, struct rps_channel *channel,
        const struct rps_message *reply, struct rps_error *error)
{
    rps_client *client = context;
    const struct rps_header *header = &reply->header;
    struct rps_exchange **link = find_waiting(channel, header->request_id);
    struct rps_exchange *exchange = *link;
    struct rps_ticket_state *ticket;
    rps_status status;

    client->traffic.received_bytes += RPS_HEADER_BYTES + header->body_bytes;
    if (exchange == NULL || (header->flags & RPS_FLAG_REPLY) == 0) {
        return rps_fail(error, RPS_E_CORRUPT,
                "a frame that answers nothing (%s %llu)",
                rps_opcode_str(header->opcode),
                (unsigned long long)header->request_id);
    }
    status = check_header(client, exchange, header, error);
    if (status == RPS_OK) {
        status = take_body(exchange, channel, reply, error);
    }
    if (status != RPS_OK) {
        return status; /* the exchange stays: lose() ends its ticket */
    }
    if (header->status != 0) {
        owe_again(client, exchange);
    }
    channel->wish_waits = (header->flags & RPS_FLAG_WISH) != 0;
    ticket = exchange->ticket;
    settle_numbers(channel, exchange, header);
    unlink_answered(channel, link);
    if (ticket != NULL && --ticket->outstanding == 0) {
        ticket_finish(ticket);
    }
    return RPS_OK;
}

rps_status
rps_take_text(struct rps_exchange *exchange, const struct rps_message *reply,
        struct rps_error *error)
{
    struct rps_answer *answer = exchange->answer;
    const struct rps_section *section =
            rps_message_find(reply, RPS_SECTION_DECISION, 0);

    if (answer == NULL) {
        return RPS_OK;
    }
    answer->text = rps_message_text(reply);
    if (section != NULL && section->bytes > 0) {
        answer->decision = malloc(section->bytes);
        if (answer->decision == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "no memory for a reply");
        }
        memcpy(answer->decision, rps_message_array(reply, section),
                section->bytes);
        answer->decision_bytes = section->bytes;
    }
    return RPS_OK;
}

/* --- moving -------------------------------------------------------------- */

/* There is something that rps_channel_pump() would send. */
static bool
can_pump(const struct rps_channel *channel)
{
    const struct rps_exchange *at = channel->waiting;

    while (channel->unsent > 0 && at != NULL && at->sent) {
        at = at->next;
    }
    return channel->unsent > 0 && at != NULL && may_send(channel, at);
}

bool
rps_client_arm(rps_client *client, bool waits, uint64_t now_ms, int *wait_ms)
{
    bool work = false;
    uint32_t i;

    for (i = 0; i < client->channel_count; i++) {
        struct rps_channel *channel = client->channels[i];

        client->polls[i] = (struct pollfd){.fd = -1};
        if (channel->lost) {
            continue;
        }
        if (channel->down) {
            rps_redial_watch(client, i, now_ms, &client->polls[i], wait_ms);
            continue;
        }
        work |= channel->ops->arm(channel, waits);
        work |= rps_io_sends(client, channel) && can_pump(channel);
        client->polls[i].fd =
                channel->ops->watch(channel, &client->polls[i].events);
    }
    return work;
}

static void
move_channel(rps_client *client, struct rps_channel *channel, bool ready)
{
    struct rps_error error = {{0}};
    rps_status status = RPS_OK;

    if (ready) {
        status = channel->ops->move(channel, take_reply, client, &error);
    }
    if (status != RPS_OK) {
        cut(client, channel, status, &error);
    } else if (channel->unsent > 0) {
        rps_channel_pump(client, channel);
    }
}

static bool
is_dialing(const rps_client *client)
{
    bool dialing = false;
    uint32_t i;

    for (i = 0; i < client->channel_count; i++) {
        dialing |= client->channels[i]->down && !client->channels[i]->lost;
    }
    return dialing;
}

void
rps_client_move(rps_client *client, int timeout_ms)
{
    const bool waits = timeout_ms != 0;
    uint64_t now_ms = rps_clock_ms();
    bool work;
    uint32_t i;

    rps_expire_wait(client, now_ms, &timeout_ms);
    /* a signal may be another thread's, and interrupts no wait of this one */
    if (client->give_up != NULL && is_dialing(client) &&
            (timeout_ms < 0 || timeout_ms > GIVE_UP_MS)) {
        timeout_ms = GIVE_UP_MS;
    }
    work = rps_client_arm(client, waits, now_ms, &timeout_ms);
    /* Where there is work everybody moves, and finds out for himself; only
     * dials are asked for. An interrupted poll leaves revents 0: nothing moves,
     * the caller's loop comes back. */
    if (!work || is_dialing(client)) {
        (void)poll(client->polls, client->channel_count, work ? 0 : timeout_ms);
    }
    now_ms = rps_clock_ms();
    for (i = 0; i < client->channel_count; i++) {
        struct rps_channel *channel = client->channels[i];
        const short revents = client->polls[i].revents;

        if (channel->down && !channel->lost) {
            rps_redial_move(client, i, revents, now_ms);
        } else if (!channel->lost) {
            move_channel(client, channel, work || revents != 0);
        }
    }
    rps_expire(client, now_ms);
    rps_client_rewatch(client);
}
