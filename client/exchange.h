/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and their replies. A ticket is what the caller waits for: one or
 * many exchanges (a frame out, its reply in) with one or many PS.
 *
 * Frames of a ticket are built into an outbox first and sent together, so
 * that a call that fails while it builds has changed nothing: numbers of the
 * lane and the decision that is owed are taken back.
 */
#ifndef RPS_CLIENT_EXCHANGE_H
#define RPS_CLIENT_EXCHANGE_H

#include "base/text.h"
#include "client/handle.h"
#include "proto/message.h"

struct rps_exchange;

/**
 * Check a reply that is OK against its request and take what it holds.
 * Nothing may be written before all of it is checked. Not OK: CORRUPT, and
 * the channel is closed.
 */
typedef rps_status rps_take_fn(struct rps_exchange *exchange,
        const struct rps_message *reply, struct rps_error *error);

/** Add to the line that says for what a ticket waits; may call the servers. */
typedef void rps_tell_fn(rps_client *client, struct rps_text *line);

/** What a reply of words or JSON leaves behind. */
struct rps_answer {
    rps_status status;
    bool repeated;     /* a kept verdict: the server has no text for it */
    char *text;        /* owned; NULL: none */
    uint8_t *decision; /* owned; NULL: none */
    size_t decision_bytes;
};
void rps_answer_finish(struct rps_answer *answer);

/** A run of one table's distinct keys (or rows) in a frame. */
struct rps_part {
    uint32_t item;  /* index in the call's array */
    uint32_t first; /* into the item's order */
    uint32_t count;
};

/*
 * Numbers are given when a frame is sent, so what never was can be taken
 * back. Frames of one push share a number; all of them stay until the last
 * one is answered, for a server that loses the connection before forgets
 * those that it has.
 */
struct rps_exchange {
    struct rps_exchange *next;
    struct rps_ticket_state *ticket; /* NULL: canceled, drop the reply */
    uint64_t request_id;
    uint64_t number;      /* in the lane; 0: none, or none yet */
    uint64_t deadline_ms; /* on our clock; 0: none */
    uint32_t epoch;       /* in its header */
    uint32_t ps;
    uint16_t opcode;
    bool numbered;  /* takes a number */
    bool continued; /* that of the frame before it */
    bool more;      /* as does the frame behind it */
    bool carries_decision;
    bool sent;                 /* on this connection */
    bool was_sent;             /* on any: what became of it may be unknown */
    bool answered;             /* on this connection; only with `more` */
    bool repeats;              /* the server has carried it out already */
    rps_take_fn *take;         /* NULL: the status is all */
    struct rps_answer *answer; /* borrowed: of take_text */
    struct rps_part *parts;    /* owned [part_count] */
    uint32_t part_count;
    uint8_t *frame; /* owned; the channel borrows it until the reply */
    size_t frame_bytes;
};

struct rps_ticket_state {
    struct rps_ticket_state *next;
    uint64_t id;
    uint32_t outstanding; /* exchanges without a reply */
    uint64_t round;       /* traffic.round_trips when it was begun */
    bool done;
    bool narrow;   /* one PS matters: another's loss does not end it */
    bool was_sent; /* any frame of it */
    rps_status status;
    struct rps_error error;
    const rps_embedding_table *asked; /* by name, not opened; NULL: none */
    rps_tell_fn *tell;                /* NULL: nothing more */
    void *work; /* of the call: arrays, plan; released by `release` */
    /** All replies are in and fine: write the result. */
    rps_status (*finish)(
            struct rps_ticket_state *ticket, struct rps_error *error);
    void (*release)(struct rps_ticket_state *ticket);
    rps_client *client;
};

struct rps_outbox {
    struct rps_exchange *first;
    struct rps_exchange **tail;
};

/** What an exchange is about. */
struct rps_request {
    uint32_t ps;
    uint16_t opcode;
    uint32_t flags;
    uint64_t step;
    uint32_t timeout_ms;
    uint32_t sections; /* at most; the decision's own is added */
    bool numbered;     /* takes the lane's next number */
    bool continued;    /* has the number of the frame before: MORE was set */
    bool bare;         /* no decision rides along */
};

/** New, in the client's list; NULL: no memory. */
struct rps_ticket_state *rps_ticket_create(rps_client *client);

/**
 * Its exchanges go on without it: replies are dropped. A decision that one of
 * them carries goes again with the next request, for it may be refused; a PS
 * that has applied it ignores it.
 */
void rps_ticket_detach(struct rps_ticket_state *ticket);

/** Detach its exchanges and free it. NULL is allowed. */
void rps_ticket_destroy(struct rps_ticket_state *ticket);

/** NULL: none such. */
struct rps_ticket_state *rps_ticket_find(const rps_client *client, uint64_t id);

void rps_outbox_init(struct rps_outbox *outbox);

/**
 * Begin a frame: the exchange is in the outbox, the builder has header and
 * (if it is owed) decision. NULL: no memory.
 */
struct rps_exchange *rps_exchange_begin(rps_client *client,
        struct rps_outbox *outbox, struct rps_builder *builder,
        const struct rps_request *request);

/** End the frame. LIMIT, NOMEM. */
rps_status rps_exchange_end(
        struct rps_exchange *exchange, struct rps_builder *builder);

/** Undo what was built and not sent. */
void rps_outbox_abort(rps_client *client, struct rps_outbox *outbox);

/** A list of them, whose channel hung up or is gone, or that were not sent:
 * a decision that they carry is owed again. */
void rps_exchanges_drop(rps_client *client, struct rps_exchange *first);

/** A ticket's end before its replies. */
void rps_ticket_end(struct rps_ticket_state *ticket, rps_status status,
        const struct rps_error *error);

/** Those of the tickets that wait for this channel, unless `all`. */
void rps_channel_end_tickets(rps_client *client,
        const struct rps_channel *channel, bool all, rps_status status);

/** Pushes without an answer, also those that nobody waits for; of them those
 * that were sent, or all. */
uint64_t rps_channel_pushes_waiting(
        const struct rps_channel *channel, bool sent);

/** It is lost for good: every ticket that it may concern ends. */
void rps_channel_lose(rps_client *client, struct rps_channel *channel,
        rps_status status, const struct rps_error *error);

/** Send what may go: it is up, and has numbers left. */
void rps_channel_pump(rps_client *client, struct rps_channel *channel);

/**
 * Send all of it under this ticket, or keep it until its channel is up. With
 * one that is lost the ticket ends; the words are in the ticket.
 */
void rps_outbox_send(rps_client *client, struct rps_outbox *outbox,
        struct rps_ticket_state *ticket);

/** The same of a client that closes. */
void rps_exchanges_free(struct rps_exchange *first);

/** rps_take_fn: text and decision go to exchange->answer. */
rps_take_fn rps_take_text;

/**
 * Write and read on every channel; with timeout_ms wait for the first event
 * (-1: no limit).
 */
void rps_client_move(rps_client *client, int timeout_ms);

/**
 * What to poll for, into client->polls; true: there is work now. *wait_ms (-1:
 * no limit) is made shorter where a dial is due before. `waits`: as of
 * rps_channel_ops.arm.
 */
bool rps_client_arm(
        rps_client *client, bool waits, uint64_t now_ms, int *wait_ms);

/** Move until it is done or the time is over (0: no limit; TIMEOUT). */
rps_status rps_ticket_wait(
        struct rps_ticket_state *ticket, uint32_t timeout_ms);

/** CANCEL what waits at the servers for a ticket that is given up. */
void rps_ticket_withdraw(const struct rps_ticket_state *ticket);

/** wait + words + destroy: the end of a blocking call; one that was not done
 * is withdrawn. */
rps_status rps_ticket_settle(
        struct rps_ticket_state *ticket, uint32_t timeout_ms);

#endif /* RPS_CLIENT_EXCHANGE_H */
