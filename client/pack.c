/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pack.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Parts of one frame; with so many sections each they stay below
 * RPS_SECTIONS_MAX. */
#define PARTS_PER_FRAME   200u
#define SECTIONS_PER_PART 5u

/* All parts for one PS, in the order in which they are sent. */
struct layout {
    struct rps_part *parts;
    uint32_t *frames; /* [count]: number of the frame of each part */
    uint32_t count;
    uint32_t capacity;
    uint32_t frame;       /* the one being filled */
    uint32_t frame_first; /* its first part */
    size_t left;          /* bytes that still fit into it */
};

static size_t
frame_budget(const rps_client *client)
{
    size_t tables =
            8 + (PARTS_PER_FRAME * SECTIONS_PER_PART + 1) * RPS_SECTION_BYTES;

    return RPS_BODY_BYTES_MAX - tables - client->decision_bytes -
           2 * (size_t)RPS_MESSAGE_ALIGN;
}

size_t
rps_pack_part_bytes(const rps_client *client, uint32_t sections)
{
    return frame_budget(client) - (size_t)sections * RPS_MESSAGE_ALIGN;
}

static void
next_frame(struct layout *layout, const rps_client *client)
{
    layout->frame++;
    layout->frame_first = layout->count;
    layout->left = frame_budget(client);
}

static rps_status
add_part(struct layout *layout, struct rps_part part, size_t bytes)
{
    if (layout->count == layout->capacity) {
        uint32_t capacity = layout->capacity > 0 ? 2 * layout->capacity : 16;
        struct rps_part *parts =
                realloc(layout->parts, capacity * sizeof(*parts));
        uint32_t *frames;

        if (parts == NULL) {
            return RPS_E_NOMEM;
        }
        layout->parts = parts;
        frames = realloc(layout->frames, capacity * sizeof(*frames));
        if (frames == NULL) {
            return RPS_E_NOMEM;
        }
        layout->frames = frames;
        layout->capacity = capacity;
    }
    layout->parts[layout->count] = part;
    layout->frames[layout->count] = layout->frame;
    layout->count++;
    layout->left -= bytes;
    return RPS_OK;
}

/* A frame names a table once, so that its reply is found by table. */
static bool
table_in_frame(const struct rps_pack *pack, const struct layout *layout,
        const rps_embedding_table *table)
{
    uint32_t i;

    for (i = layout->frame_first; i < layout->count; i++) {
        if (pack->items[layout->parts[i].item].table == table) {
            return true;
        }
    }
    return false;
}

/* Pieces were cut to fit a frame of their own. */
static rps_status
lay_pieces(const struct rps_pack *pack, struct layout *layout, uint32_t ps,
        uint32_t item_index)
{
    const struct rps_pack_item *item = &pack->items[item_index];
    const struct rps_bag_plan *plan = item->plan;
    const size_t overhead = (size_t)pack->sections * RPS_MESSAGE_ALIGN;
    uint32_t piece = plan->starts[ps];
    const uint32_t end = plan->starts[ps + 1];
    rps_status status = RPS_OK;
    bool again = piece < end || pack->push;

    while (status == RPS_OK && again) {
        struct rps_part part = {.item = item_index};
        size_t bytes = overhead;

        if (piece < end) {
            bytes += plan->pieces[piece].bytes;
            part.first = piece;
            part.count = plan->pieces[piece].entry_count;
        }
        if (layout->count - layout->frame_first == PARTS_PER_FRAME ||
                layout->left < bytes ||
                table_in_frame(pack, layout, item->table)) {
            next_frame(layout, pack->client);
        }
        status = add_part(layout, part, bytes);
        piece++;
        again = piece < end;
    }
    return status;
}

static rps_status
lay_item(const struct rps_pack *pack, struct layout *layout, uint32_t ps,
        uint32_t item_index)
{
    const struct rps_pack_item *item = &pack->items[item_index];
    uint32_t first = item->dedup->starts[ps];
    uint32_t left = rps_dedup_run(item->dedup, ps);
    size_t overhead = (size_t)pack->sections * RPS_MESSAGE_ALIGN;
    rps_status status = RPS_OK;
    bool again = left > 0 || pack->push;

    while (status == RPS_OK && again) {
        size_t fits = 0;
        struct rps_part part = {.item = item_index, .first = first};

        if (layout->left > overhead) {
            fits = (layout->left - overhead) / item->key_bytes;
        }
        if (layout->count - layout->frame_first == PARTS_PER_FRAME ||
                (fits == 0 && left > 0) || layout->left <= overhead ||
                table_in_frame(pack, layout, item->table)) {
            next_frame(layout, pack->client);
            continue;
        }
        part.count = left < fits ? left : (uint32_t)fits;
        status =
                add_part(layout, part, overhead + part.count * item->key_bytes);
        first += part.count;
        left -= part.count;
        again = left > 0;
    }
    return status;
}

static rps_status
write_frame(const struct rps_pack *pack, const struct layout *layout,
        uint32_t ps, uint32_t begin, uint32_t end)
{
    struct rps_builder builder;
    struct rps_request request = pack->request;
    struct rps_exchange *exchange;
    uint32_t count = end - begin;
    uint32_t i;

    request.ps = ps;
    request.sections = count * pack->sections;
    request.continued = pack->push && begin > 0;
    if (pack->push && end < layout->count) {
        request.flags |= RPS_FLAG_MORE;
    }
    exchange =
            rps_exchange_begin(pack->client, pack->outbox, &builder, &request);
    if (exchange == NULL) {
        return RPS_E_NOMEM;
    }
    exchange->take = pack->take;
    exchange->parts = calloc(count > 0 ? count : 1, sizeof(struct rps_part));
    if (exchange->parts == NULL) {
        rps_builder_finish(&builder);
        return RPS_E_NOMEM;
    }
    exchange->part_count = count;
    for (i = 0; i < count; i++) {
        exchange->parts[i] = layout->parts[begin + i];
        pack->write(pack->work, &builder, &exchange->parts[i], ps);
    }
    return rps_exchange_end(exchange, &builder);
}

static rps_status
pack_ps(const struct rps_pack *pack, struct layout *layout, uint32_t ps)
{
    rps_status status = RPS_OK;
    uint32_t begin = 0;
    uint32_t i;

    layout->count = 0;
    next_frame(layout, pack->client);
    for (i = 0; status == RPS_OK && i < pack->item_count; i++) {
        if (pack->takes == NULL || pack->takes(pack->work, i)) {
            status = pack->items[i].plan != NULL
                             ? lay_pieces(pack, layout, ps, i)
                             : lay_item(pack, layout, ps, i);
        }
    }
    if (status == RPS_OK && pack->push && layout->count == 0) {
        return write_frame(pack, layout, ps, 0, 0); /* a push counts */
    }
    while (status == RPS_OK && begin < layout->count) {
        uint32_t end = begin;

        while (end < layout->count &&
                layout->frames[end] == layout->frames[begin]) {
            end++;
        }
        status = write_frame(pack, layout, ps, begin, end);
        begin = end;
    }
    return status;
}

rps_status
rps_pack_all(const struct rps_pack *pack)
{
    struct layout layout = {0};
    rps_status status = RPS_OK;
    uint32_t ps;

    for (ps = 0; status == RPS_OK && ps < pack->client->ps_count; ps++) {
        status = pack_ps(pack, &layout, ps);
    }
    free(layout.parts);
    free(layout.frames);
    return status;
}

rps_status
rps_pack_exchange(struct rps_pack *pack, const rps_embedding_table *asked,
        const char *what)
{
    rps_client *client = pack->client;
    struct rps_outbox outbox;
    struct rps_ticket_state *ticket = rps_ticket_create(client);
    rps_status status;

    if (ticket == NULL) {
        return rps_client_nomem();
    }
    ticket->work = pack->work;
    ticket->asked = asked;
    pack->outbox = &outbox;
    rps_outbox_init(&outbox);
    status = rps_pack_all(pack);
    if (status != RPS_OK) {
        rps_outbox_abort(client, &outbox);
        rps_ticket_destroy(ticket);
        return rps_client_fail(status, "no memory for %s", what);
    }
    rps_outbox_send(client, &outbox, ticket);
    return rps_ticket_settle(ticket, client->request_timeout_ms);
}

void
rps_pack_keys(struct rps_builder *builder, const struct rps_pack_item *item,
        const struct rps_part *part)
{
    struct rps_section section = {
            .table_id = item->table->id,
            .kind = RPS_SECTION_KEYS,
            .value = item->value,
            .count = part->count,
    };
    size_t at = rps_builder_reserve(builder, &section);
    const uint32_t *order = item->dedup->order + part->first;
    uint64_t *keys;
    uint32_t i;

    if (at == 0) {
        return;
    }
    keys = (uint64_t *)(void *)(builder->frame + at);
    for (i = 0; i < part->count; i++) {
        keys[i] = item->dedup->keys[order[i]];
    }
}

void
rps_pack_counts(struct rps_builder *builder, const struct rps_pack_item *item,
        const struct rps_part *part)
{
    struct rps_section section = {
            .table_id = item->table->id,
            .kind = RPS_SECTION_COUNTS,
            .count = part->count,
    };
    const uint32_t *order = item->dedup->order + part->first;
    uint32_t *counts;
    size_t at;
    uint32_t i = 0;

    while (i < part->count && item->dedup->counts[order[i]] == 1) {
        i++;
    }
    if (i == part->count) {
        return; /* absent means 1 each */
    }
    at = rps_builder_reserve(builder, &section);
    if (at == 0) {
        return;
    }
    counts = (uint32_t *)(void *)(builder->frame + at);
    for (i = 0; i < part->count; i++) {
        counts[i] = item->dedup->counts[order[i]];
    }
}
