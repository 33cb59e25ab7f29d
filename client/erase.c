/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ERASE: distinct keys to the servers that own them. The table is named: a
 * tool has no handle of it.
 */
#include "base/hash.h"
#include "client/call.h"
#include "client/pack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct work {
    rps_embedding_table table; /* its id and name alone */
    struct rps_pack_item pack;
    struct rps_dedup dedup;
    uint64_t erased;
};

static void
write_part(void *context, struct rps_builder *builder,
        const struct rps_part *part, uint32_t ps)
{
    const struct work *work = context;

    rps_pack_keys(builder, &work->pack, part);
}

/* rps_take_fn: {"tables":[{"name":…,"erased":3}]} */
static rps_status
take(struct rps_exchange *exchange, const struct rps_message *reply,
        struct rps_error *error)
{
    struct work *work = exchange->ticket->work;
    /* a kept verdict has no text: its rows are gone, their number is not told
     */
    const bool repeated = reply->section_count == 0;
    char *text = rps_message_text(reply);
    json_t *object = text != NULL ? json_loads(text, 0, NULL) : NULL;
    const json_t *entry = json_array_get(json_object_get(object, "tables"), 0);
    uint64_t erased = 0;
    const bool legal = rps_answer_u64(entry, "erased", &erased) ||
                       (repeated && exchange->repeats);

    json_decref(object);
    free(text);
    if (!legal) {
        return rps_fail(error, RPS_E_CORRUPT,
                "the reply to ERASE has no number of rows");
    }
    work->erased += erased;
    return RPS_OK;
}

static rps_status
prepare(rps_client *client, const char *table, size_t n, const uint64_t *keys,
        struct work *work)
{
    rps_status status = rps_check_table_name(table);

    if (status != RPS_OK) {
        return status;
    }
    if (n > RPS_DEDUP_KEYS_MAX) {
        return rps_client_fail(RPS_E_LIMIT, "%zu keys, at most %u in one call",
                n, RPS_DEDUP_KEYS_MAX);
    }
    if (n > 0 && keys == NULL) {
        return rps_client_fail(RPS_E_INVAL, "keys is NULL");
    }
    work->table.client = client;
    work->table.id = rps_table_id(table);
    memcpy(work->table.spec.name, table, strlen(table) + 1);
    work->pack = (struct rps_pack_item){.table = &work->table,
            .dedup = &work->dedup,
            .key_bytes = sizeof(uint64_t)};
    return rps_dedup_init(&work->dedup, keys, n, NULL, &client->route,
                   client->job_seed) == RPS_OK
                   ? RPS_OK
                   : rps_client_nomem();
}

/* What was done stays done: it is told with what was not. */
static rps_status
fail_partly(const struct work *work, rps_status status)
{
    char *words = strdup(rps_client_words());

    if (words != NULL && work->erased > 0) {
        (void)rps_client_fail(status,
                "%s; %" PRIu64 " other rows were erased: repeating it is safe",
                words, work->erased);
    }
    free(words);
    return status;
}

static rps_status
send_all(rps_client *client, struct work *work)
{
    struct rps_pack pack = {
            .client = client,
            .request = {.opcode = RPS_OP_ERASE, .numbered = true},
            .items = &work->pack,
            .item_count = 1,
            .sections = 1,
            .take = take,
            .write = write_part,
            .work = work,
    };
    rps_status status;

    status = rps_pack_exchange(&pack, &work->table, "an erase");
    return status == RPS_OK ? status : fail_partly(work, status);
}

rps_status
rps_erase_rows(rps_client *client, const char *table, size_t n,
        const uint64_t *keys, uint64_t *erased_out)
{
    RPS_TURN(client);
    struct work work = {.erased = 0};
    rps_status status = rps_client_enter(client);

    if (status == RPS_OK) {
        status = rps_client_all_whole(client);
    }
    if (status == RPS_OK) {
        status = prepare(client, table, n, keys, &work);
    }
    if (status == RPS_OK) {
        status = send_all(client, &work);
    }
    rps_dedup_finish(&work.dedup);
    if (erased_out != NULL) {
        *erased_out = work.erased;
    }
    return status;
}
