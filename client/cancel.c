/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CANCEL: what a ticket that is given up has waiting at the servers. Requests
 * that never wait there (lookups, pushes) are answered before a CANCEL could
 * reach them: those are only forgotten.
 */
#include "base/text.h"
#include "client/exchange.h"

#include <string.h>

static bool
may_wait_there(uint16_t opcode)
{
    return opcode == RPS_OP_STEP_END || opcode == RPS_OP_SAVE ||
           opcode == RPS_OP_RESTORE || opcode == RPS_OP_EVICT ||
           opcode == RPS_OP_STAT;
}

/* {"requests":["7"]} of one PS; nothing to ask: empty. */
static void
list_waiting(const struct rps_ticket_state *ticket,
        const struct rps_channel *channel, struct rps_text *text)
{
    const struct rps_exchange *exchange = channel->waiting;
    const char *before = "{\"requests\":[";

    for (; exchange != NULL; exchange = exchange->next) {
        if (exchange->ticket == ticket && may_wait_there(exchange->opcode)) {
            rps_text_add(text, "%s\"%llu\"", before,
                    (unsigned long long)exchange->request_id);
            before = ",";
        }
    }
    if (text->bytes != NULL) {
        rps_text_add(text, "]}");
    }
}

static rps_status
build(rps_client *client, struct rps_outbox *outbox, uint32_t ps,
        const char *text)
{
    const struct rps_request request = {
            .ps = ps, .opcode = RPS_OP_CANCEL, .sections = 1, .bare = true};
    struct rps_builder builder;
    struct rps_exchange *exchange =
            rps_exchange_begin(client, outbox, &builder, &request);

    if (exchange == NULL) {
        return RPS_E_NOMEM;
    }
    rps_builder_add_text(&builder, text, strlen(text));
    return rps_exchange_end(exchange, &builder);
}

void
rps_ticket_withdraw(const struct rps_ticket_state *ticket)
{
    rps_client *client = ticket->client;
    struct rps_ticket_state *asking = rps_ticket_create(client);
    rps_status status = asking != NULL ? RPS_OK : RPS_E_NOMEM;
    struct rps_outbox outbox;

    rps_outbox_init(&outbox);
    for (uint32_t ps = 0; status == RPS_OK && ps < client->channel_count;
            ps++) {
        struct rps_text text = {0};

        list_waiting(ticket, client->channels[ps], &text);
        if (text.bytes != NULL) {
            status = build(client, &outbox, ps, text.bytes);
        }
        rps_text_finish(&text);
    }
    if (status == RPS_OK) {
        rps_outbox_send(client, &outbox, asking);
    } else { /* without memory the servers go on */
        rps_outbox_abort(client, &outbox);
    }
    rps_ticket_destroy(asking); /* nobody reads the answers */
}
