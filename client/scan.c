/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SCAN: the keys of a table, or its rows with all that belongs to them, server
 * after server. Where it is stands in the caller's rps_scan alone.
 */
#include "base/hash.h"
#include "base/json.h"
#include "base/spec.h"
#include "client/call.h"

#include <recps/rows.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX 65536u /* of one answer */

/** One request; what its answer holds goes to `rows`, or to `whole`. */
struct work {
    uint64_t table_id;
    rps_scanned *rows;     /* the caller's [max] */
    const rps_rows *whole; /* the caller's, each [max]; NULL: keys alone */
    uint32_t dim;          /* of whole rows */
    uint32_t slots;        /* floats of their slots; 0: none */
    size_t max;
    size_t count;
    rps_scan next; /* place, hash, key: where it goes on */
    bool end;
};

/* n(c) = 16 ((17/16)^c - 1), the count that a Morris counter of c stands
 * for: 0 .. 8.3e7. */
static uint32_t
uses_of(uint32_t counter)
{
    double power = 1.0;

    for (uint32_t i = 0; i < counter; i++) {
        power *= 17.0 / 16.0;
    }
    return (uint32_t)(16.0 * (power - 1.0) + 0.5);
}

static bool
read_cursor(const struct rps_message *reply, struct work *work)
{
    char *text = rps_message_text(reply);
    json_t *object = text != NULL ? json_loads(text, 0, NULL) : NULL;
    const bool legal = rps_answer_u64(object, "place", &work->next.place) &&
                       rps_answer_u64(object, "hash", &work->next.hash) &&
                       rps_answer_u64(object, "key", &work->next.key);

    work->end = json_is_true(json_object_get(object, "end"));
    json_decref(object);
    free(text);
    return legal;
}

/* Floats a row; false: another shape, or none. */
static bool
take_floats(const struct work *work, const struct rps_message *reply,
        uint16_t kind, uint32_t dim, float *out)
{
    const struct rps_section *section =
            rps_message_find(reply, kind, work->table_id);

    if (section == NULL || section->value != RPS_VALUE_F32 ||
            section->dim != dim || section->count != work->count) {
        return false;
    }
    if (out != NULL) {
        memcpy(out, rps_message_array(reply, section),
                work->count * dim * sizeof(*out));
    }
    return true;
}

static rps_status
take_whole(const struct work *work, const struct rps_message *reply,
        const uint64_t *keys, const uint32_t *meta, struct rps_error *error)
{
    const rps_rows *whole = work->whole;

    memcpy(whole->keys, keys, work->count * sizeof(*keys));
    memcpy(whole->meta, meta, work->count * sizeof(*meta));
    if (!take_floats(work, reply, RPS_SECTION_ROWS, work->dim, whole->rows) ||
            (work->slots > 0 && !take_floats(work, reply, RPS_SECTION_SLOTS,
                                        work->slots, whole->slots))) {
        return rps_fail(error, RPS_E_UNSUPPORTED,
                "the reply to SCAN has not the rows and slots of its keys: the "
                "server is of an earlier version than this client");
    }
    return RPS_OK;
}

/* rps_take_fn */
static rps_status
take(struct rps_exchange *exchange, const struct rps_message *reply,
        struct rps_error *error)
{
    struct work *work = exchange->ticket->work;
    const struct rps_section *keys_of =
            rps_message_find(reply, RPS_SECTION_KEYS, work->table_id);
    const struct rps_section *meta_of =
            rps_message_find(reply, RPS_SECTION_META, work->table_id);
    const uint64_t *keys;
    const uint32_t *meta;

    if (keys_of == NULL || meta_of == NULL || keys_of->count > work->max ||
            keys_of->count != meta_of->count || !read_cursor(reply, work) ||
            (keys_of->count == 0) != work->end) {
        return rps_fail(error, RPS_E_CORRUPT,
                "the reply to SCAN has not at most %zu keys, their meta and "
                "where it goes on",
                work->max);
    }
    work->count = keys_of->count;
    if (work->count == 0) {
        return RPS_OK;
    }
    keys = rps_message_array(reply, keys_of);
    meta = rps_message_array(reply, meta_of);
    if (work->whole != NULL) {
        return take_whole(work, reply, keys, meta, error);
    }
    for (size_t i = 0; i < work->count; i++) {
        work->rows[i] = (rps_scanned){.key = keys[i],
                .uses = uses_of(meta[i] >> 24),
                .last = meta[i] & 0xffffffu};
    }
    return RPS_OK;
}

static char *
request_text(const char *table, const rps_scan *scan, const struct work *work)
{
    char place[24], hash[24], key[24];

    (void)snprintf(place, sizeof(place), "%" PRIu64, scan->place);
    (void)snprintf(hash, sizeof(hash), "%" PRIu64, scan->hash);
    (void)snprintf(key, sizeof(key), "%" PRIu64, scan->key);
    return rps_json_text(json_pack("{s:s, s:s, s:s, s:s, s:I, s:b}", "table",
            table, "place", place, "hash", hash, "key", key, "max",
            (json_int_t)work->max, "rows", work->whole != NULL));
}

static rps_status
ask(rps_client *client, uint32_t ps, const char *text, struct work *work)
{
    const struct rps_request request = {
            .ps = ps, .opcode = RPS_OP_SCAN, .sections = 1};
    struct rps_ticket_state *ticket = rps_ticket_create(client);
    struct rps_exchange *exchange = NULL;
    struct rps_outbox outbox;
    struct rps_builder builder;
    rps_status status = ticket != NULL ? RPS_OK : rps_client_nomem();

    rps_outbox_init(&outbox);
    if (status == RPS_OK) {
        ticket->narrow = true;
        ticket->work = work;
        exchange = rps_exchange_begin(client, &outbox, &builder, &request);
        status = exchange != NULL ? RPS_OK : rps_client_nomem();
    }
    if (status == RPS_OK) {
        exchange->take = take;
        rps_builder_add_text(&builder, text, strlen(text));
        status = rps_exchange_end(exchange, &builder) == RPS_OK
                         ? RPS_OK
                         : rps_client_nomem();
    }
    if (status != RPS_OK) {
        rps_outbox_abort(client, &outbox);
        rps_ticket_destroy(ticket);
        return status;
    }
    rps_outbox_send(client, &outbox, ticket);
    return rps_ticket_settle(ticket, client->request_timeout_ms);
}

/* The next keys of the PS where the scan is; moves on where it has none. */
static rps_status
step(rps_client *client, const char *table, rps_scan *scan, struct work *work)
{
    char *text = request_text(table, scan, work);
    rps_status status = text != NULL ? ask(client, scan->ps, text, work)
                                     : rps_client_nomem();

    free(text);
    if (status != RPS_OK) {
        return status; /* the scan stays where it was: it may be repeated */
    }
    if (work->end) {
        *scan = (rps_scan){.ps = scan->ps + 1};
        scan->done = scan->ps >= client->channel_count;
        return RPS_OK;
    }
    scan->place = work->next.place;
    scan->hash = work->next.hash;
    scan->key = work->next.key;
    return RPS_OK;
}

static rps_status
check(const rps_client *client, const char *table, const rps_scan *scan,
        size_t max, const void *rows)
{
    rps_status status = rps_client_enter(client);

    if (status == RPS_OK) {
        status = rps_check_table_name(table);
    }
    if (status != RPS_OK) {
        return status;
    }
    if (scan == NULL || rows == NULL || max == 0) {
        return rps_client_fail(RPS_E_INVAL,
                "scan, rows: %s, and max must be 1 or more",
                scan == NULL || rows == NULL ? "one is NULL" : "given");
    }
    status = rps_client_all_whole(client);
    if (status == RPS_OK && scan->done == 0 &&
            scan->ps >= client->channel_count) {
        status = rps_client_fail(RPS_E_INVAL,
                "scan.ps: %u, but there are %u servers: a scan belongs to one "
                "cluster",
                scan->ps, client->channel_count);
    }
    return status;
}

static rps_status
scan_on(rps_client *client, const char *table, rps_scan *scan,
        struct work *work, size_t *count_out)
{
    RPS_TURN(client);
    const void *rows = work->whole != NULL ? (const void *)work->whole
                                           : (const void *)work->rows;
    rps_status status = check(client, table, scan, work->max, rows);

    if (count_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "count_out is NULL");
    }
    *count_out = 0;
    if (status != RPS_OK) {
        return status;
    }
    work->max = work->max < KEYS_MAX ? work->max : KEYS_MAX;
    work->table_id = rps_table_id(table);
    while (status == RPS_OK && work->count == 0 && scan->done == 0) {
        status = step(client, table, scan, work);
    }
    *count_out = status == RPS_OK ? work->count : 0;
    return status;
}

rps_status
rps_scan_rows(rps_client *client, const char *table, rps_scan *scan, size_t max,
        rps_scanned *rows, size_t *count_out)
{
    struct work work = {.rows = rows, .max = max};

    return scan_on(client, table, scan, &work, count_out);
}

rps_status
rps_read_rows(rps_client *client, const rps_embedding_table *table,
        rps_scan *scan, size_t max, const rps_rows *rows, size_t *count_out)
{
    struct work work = {.whole = rows, .max = max};

    if (table == NULL || rows == NULL || rows->keys == NULL ||
            rows->rows == NULL || rows->meta == NULL) {
        return rps_client_fail(RPS_E_INVAL,
                "table, rows, or its keys, rows or meta: one is NULL");
    }
    work.dim = table->spec.dim;
    work.slots = rps_spec_slot_floats(&table->spec);
    return scan_on(client, table->spec.name, scan, &work, count_out);
}
