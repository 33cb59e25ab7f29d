/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocking requests whose body is one text: to one PS or to each of them.
 */
#ifndef RPS_CLIENT_CALL_H
#define RPS_CLIENT_CALL_H

#include "client/exchange.h"

#include <jansson.h>

struct rps_verb {
    uint16_t opcode;
    uint64_t step;
    bool numbered;
    bool bare;           /* no decision rides along */
    uint32_t timeout_ms; /* of the wait; 0: no limit */
    rps_tell_fn *tell;   /* NULL: the line of a wait needs no more */
};

/** One PS. The answer is the caller's to finish, also on failure. */
rps_status rps_call_one(rps_client *client, uint32_t ps,
        const struct rps_verb *verb, const char *text,
        struct rps_answer *answer);

/**
 * Every PS from `first` to below `end` at once, the same text (NULL: none).
 * answers[channel_count] are the caller's; NULL: only the status is wanted.
 * All of them have answered, or one is gone. The status is the first
 * failure's.
 */
rps_status rps_call_range(rps_client *client, uint32_t first, uint32_t end,
        const struct rps_verb *verb, const char *text,
        struct rps_answer *answers);

/**
 * The same, begun: rps_client_move() brings the answers, which are the
 * caller's until the ticket is done or destroyed. NULL: no memory, or a text
 * too large; words are set. narrow: another server's loss does not end it.
 */
struct rps_ticket_state *rps_call_begin(rps_client *client, uint32_t first,
        uint32_t end, const struct rps_verb *verb, const char *text,
        struct rps_answer *answers, bool narrow);

/** All of them. */
rps_status rps_call_all(rps_client *client, const struct rps_verb *verb,
        const char *text, struct rps_answer *answers);

/** Is it text that can be the name of a table? INVAL with words. */
rps_status rps_check_table_name(const char *table);

/** answers[channel_count], zeroed; NULL: no memory. */
struct rps_answer *rps_answers_create(const rps_client *client);
void rps_answers_destroy(const rps_client *client, struct rps_answer *answers);

/**
 * JSON object of an answer, new reference. CORRUPT naming the PS if it is
 * none; words are set.
 */
rps_status rps_answer_object(const rps_client *client, uint32_t ps,
        const struct rps_answer *answer, json_t **object_out);

/** A number >= 0, or a decimal string: what may exceed 2^53. */
bool rps_answer_u64(const json_t *object, const char *name, uint64_t *out);

#endif /* RPS_CLIENT_CALL_H */
