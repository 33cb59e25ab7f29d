/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the requests about keys: ERASE, SCAN (with their rows where that is
 * asked for), HOT_KEYS.
 */
#include "base/hash.h"
#include "base/spec.h"
#include "server/figures.h"
#include "server/named.h"
#include "server/sections.h"
#include "server/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCAN_KEYS_DEFAULT 4096u
#define SCAN_KEYS_MAX     65536u              /* of an answer: 768 KiB */
#define SCAN_BYTES_MAX    ((uint64_t)8 << 20) /* of its rows and slots */
#define HOT_KEYS_DEFAULT  16u

/* --- ERASE --------------------------------------------------------------- */

static rps_status
check_erase(const struct rps_parts *parts, struct rps_error *error)
{
    for (size_t i = 0; i < parts->count; i++) {
        const rps_table_spec *spec = parts->items[i].spec;

        if (spec->dense_elements > 0) {
            return rps_fail(error, RPS_E_INVAL,
                    "table %s is a dense variable: all of its rows "
                    "exist for the whole job",
                    spec->name);
        }
    }
    return RPS_OK;
}

static json_t *
erase_parts(struct rps_request *request, const struct rps_parts *parts)
{
    json_t *list = json_array();

    for (size_t i = 0; i < parts->count; i++) {
        const struct rps_table_part *part = &parts->items[i];
        const size_t n = part->keys->count;
        uint64_t erased = 0;

        if (n > 0) {
            erased = rps_table_erase(part->table, n,
                    rps_message_array(request->message, part->keys));
            rps_changes_add(request->service, part->table_id, erased);
        }
        json_array_append_new(
                list, json_pack("{s:s, s:I}", "name", part->spec->name,
                              "erased", (json_int_t)erased));
    }
    return list;
}

rps_status
rps_serve_erase(struct rps_request *request)
{
    struct rps_parts parts;
    rps_status status = rps_parts_collect(request->service, request->message,
            RPS_KIND_BIT(RPS_SECTION_KEYS), 0, &parts, &request->error);

    if (status == RPS_OK) {
        status = rps_parts_status(&parts);
    }
    if (status == RPS_OK) {
        status = check_erase(&parts, &request->error);
    }
    if (status == RPS_OK) {
        request->text = rps_json_text(
                json_pack("{s:o}", "tables", erase_parts(request, &parts)));
        if (request->text == NULL) {
            status = rps_fail(&request->error, RPS_E_NOMEM,
                    "the rows are gone, no memory for the answer");
        }
    }
    rps_parts_finish(&parts);
    return status;
}

/* --- SCAN ---------------------------------------------------------------- */

/** A scan's request, and room for its answer. */
struct scan {
    struct rps_table *table;
    struct rps_scan_cursor cursor;
    uint64_t max;
    bool with_rows;
    uint32_t dim;
    uint32_t slot_floats;
    uint64_t *keys; /* owned [max] */
    uint32_t *meta; /* owned [max] */
    float *rows;    /* owned [max][dim]; NULL: not asked for */
    float *slots;   /* owned [max][slot_floats]; NULL: likewise, or none */
    size_t count;
    bool ended;
};

/* With its rows a page is bounded by bytes, too; one row at least. */
static void
plan_rows(struct scan *scan)
{
    const rps_table_spec *spec = rps_table_spec_of(scan->table);
    uint64_t fits;

    scan->dim = spec->dim;
    scan->slot_floats = rps_spec_slot_floats(spec);
    fits = SCAN_BYTES_MAX /
           ((scan->dim + scan->slot_floats) * (uint64_t)sizeof(float));
    if (scan->max > fits) {
        scan->max = fits > 0 ? fits : 1;
    }
}

static rps_status
read_scan(struct rps_request *request, struct scan *scan)
{
    struct rps_error *error = &request->error;
    json_t *object;
    rps_status status = rps_request_json(request, &object);

    if (status != RPS_OK) {
        return status;
    }
    scan->max = SCAN_KEYS_DEFAULT;
    status = rps_named_table(request, object, &scan->table);
    if (status == RPS_OK) {
        status = rps_json_u64(
                object, "place", UINT64_MAX, &scan->cursor.place, error);
    }
    if (status == RPS_OK) {
        status = rps_json_u64(
                object, "hash", UINT64_MAX, &scan->cursor.hash, error);
    }
    if (status == RPS_OK) {
        status = rps_json_u64(
                object, "key", UINT64_MAX, &scan->cursor.key, error);
    }
    if (status == RPS_OK) {
        status = rps_json_u64(object, "max", SCAN_KEYS_MAX, &scan->max, error);
    }
    scan->with_rows = json_is_true(json_object_get(object, "rows"));
    json_decref(object);
    if (status == RPS_OK && scan->max == 0) {
        status = rps_fail(error, RPS_E_INVAL,
                "max is 0; 1 to %u keys fit an answer", SCAN_KEYS_MAX);
    }
    if (status == RPS_OK && scan->with_rows) {
        plan_rows(scan);
    }
    return status;
}

static char *
cursor_text(const struct scan *scan)
{
    char place[24], hash[24], key[24];

    snprintf(place, sizeof(place), "%" PRIu64, scan->cursor.place);
    snprintf(hash, sizeof(hash), "%" PRIu64, scan->cursor.hash);
    snprintf(key, sizeof(key), "%" PRIu64, scan->cursor.key);
    return rps_json_text(json_pack("{s:s, s:s, s:s, s:b}", "place", place,
            "hash", hash, "key", key, "end", scan->ended));
}

static void
add_rows(struct rps_builder *builder, const struct scan *scan)
{
    struct rps_section section = {.table_id = rps_table_id_of(scan->table),
            .kind = RPS_SECTION_ROWS,
            .value = RPS_VALUE_F32,
            .dim = scan->dim,
            .count = scan->count};

    rps_builder_add(builder, &section, scan->rows);
    if (scan->slot_floats > 0) {
        section.kind = RPS_SECTION_SLOTS;
        section.dim = scan->slot_floats;
        rps_builder_add(builder, &section, scan->slots);
    }
}

static rps_status
answer_scan(struct rps_request *request, const struct scan *scan)
{
    const struct rps_header header = rps_reply_header(request->service,
            request->session, &request->message->header, RPS_OK);
    struct rps_section section = {.table_id = rps_table_id_of(scan->table),
            .kind = RPS_SECTION_KEYS,
            .count = scan->count};
    struct rps_builder builder;
    char *text = cursor_text(scan);

    if (text == NULL) {
        return rps_fail(&request->error, RPS_E_NOMEM, "no memory");
    }
    rps_builder_begin(&builder, &header, 5);
    rps_builder_add(&builder, &section, scan->keys);
    section.kind = RPS_SECTION_META;
    rps_builder_add(&builder, &section, scan->meta);
    if (scan->with_rows) {
        add_rows(&builder, scan);
    }
    rps_builder_add_text(&builder, text, strlen(text));
    free(text);
    if (rps_builder_end(&builder, &request->frame, &request->frame_bytes) !=
            RPS_OK) {
        rps_builder_finish(&builder);
        request->frame = NULL;
        return rps_fail(&request->error, RPS_E_NOMEM, "no memory");
    }
    return RPS_OK;
}

/* The next keys; of those that lost their row since, the next ones. */
static void
fill_scan(struct scan *scan)
{
    do {
        scan->count = rps_table_scan(
                scan->table, &scan->cursor, scan->max, scan->keys, scan->meta);
        scan->ended = scan->count == 0;
        if (scan->with_rows) {
            scan->count = rps_table_read(scan->table, scan->count, scan->keys,
                    scan->rows, scan->slots, scan->meta);
        }
    } while (scan->count == 0 && !scan->ended);
}

static bool
make_room(struct scan *scan)
{
    scan->keys = malloc(scan->max * sizeof(*scan->keys));
    scan->meta = malloc(scan->max * sizeof(*scan->meta));
    if (scan->with_rows) {
        scan->rows = malloc(scan->max * scan->dim * sizeof(*scan->rows));
    }
    if (scan->with_rows && scan->slot_floats > 0) {
        scan->slots =
                malloc(scan->max * scan->slot_floats * sizeof(*scan->slots));
    }
    return scan->keys != NULL && scan->meta != NULL &&
           (!scan->with_rows || scan->rows != NULL) &&
           (!scan->with_rows || scan->slot_floats == 0 || scan->slots != NULL);
}

rps_status
rps_serve_scan(struct rps_request *request)
{
    struct scan scan = {0};
    rps_status status = read_scan(request, &scan);

    if (status != RPS_OK) {
        return status;
    }
    if (make_room(&scan)) {
        fill_scan(&scan);
        status = answer_scan(request, &scan);
    } else {
        status = rps_fail(&request->error, RPS_E_NOMEM,
                "no memory for %" PRIu64 " keys", scan.max);
    }
    free(scan.keys);
    free(scan.meta);
    free(scan.rows);
    free(scan.slots);
    return status;
}

/* --- HOT_KEYS ------------------------------------------------------------ */

static json_t *
describe_hot(const struct rps_hot_key *hot)
{
    char key[24], count[24], error[24];

    snprintf(key, sizeof(key), "%" PRIu64, hot->key);
    snprintf(count, sizeof(count), "%" PRIu64, hot->count);
    snprintf(error, sizeof(error), "%" PRIu64, hot->error);
    return json_pack("[s, s, s]", key, count, error);
}

/* NULL: no memory. */
static char *
hot_text(struct rps_table *table, size_t max)
{
    struct rps_hot_key hot[RPS_HOT_KEYS_MAX];
    const size_t count = max > 0 ? rps_table_hot_keys(table, max, hot) : 0;
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++) {
        json_array_append_new(list, describe_hot(&hot[i]));
    }
    return rps_json_text(json_pack("{s:o}", "keys", list));
}

rps_status
rps_serve_hot_keys(struct rps_request *request)
{
    struct rps_table *table = NULL;
    uint64_t max = HOT_KEYS_DEFAULT;
    json_t *object;
    rps_status status = rps_request_json(request, &object);

    if (status != RPS_OK) {
        return status;
    }
    status = rps_named_table(request, object, &table);
    if (status == RPS_OK) {
        status = rps_json_u64(
                object, "max", RPS_HOT_KEYS_MAX, &max, &request->error);
    }
    json_decref(object);
    if (status != RPS_OK) {
        return status;
    }
    request->text = hot_text(table, max);
    return request->text != NULL ? RPS_OK : RPS_E_NOMEM;
}

rps_status
rps_service_hot_keys(struct rps_service *service, const char *table, size_t max,
        uint32_t wait_ms, char **text_out)
{
    rps_status status = RPS_E_NOT_FOUND;
    struct rps_table *found;

    *text_out = NULL;
    if (!rps_state_lock_within(service, wait_ms)) {
        return RPS_E_RETRY_LATER;
    }
    found = rps_store_find(service->store, rps_table_id(table));
    if (found != NULL && strcmp(rps_table_spec_of(found)->name, table) == 0) {
        *text_out = hot_text(found, max);
        status = *text_out != NULL ? RPS_OK : RPS_E_NOMEM;
    }
    pthread_rwlock_unlock(&service->state_lock);
    return status;
}
