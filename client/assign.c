/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ASSIGN: rows (slots, meta) as they are. Of a key that stands twice the
 * last row is sent.
 */
#include "base/spec.h"
#include "client/batch.h"
#include "client/pack.h"

#include <stdlib.h>
#include <string.h>

struct work {
    const rps_assign *assign;
    struct rps_pack_item pack;
    struct rps_dedup dedup;
    uint32_t *last; /* [count]: position of the row that is sent */
    uint32_t slots; /* floats a row; 0: none are sent */
};

/* Rows of `floats` 32-bit values each. */
static void
write_rows(const struct work *work, struct rps_builder *builder,
        const struct rps_part *part, const struct rps_section *section,
        const void *rows, size_t row_bytes)
{
    const uint32_t *order = work->dedup.order + part->first;
    size_t at = rps_builder_reserve(builder, section);
    uint32_t i;

    for (i = 0; at != 0 && i < part->count; i++) {
        memcpy(builder->frame + at + i * row_bytes,
                (const char *)rows + work->last[order[i]] * row_bytes,
                row_bytes);
    }
}

static void
write_part(void *context, struct rps_builder *builder,
        const struct rps_part *part, uint32_t ps)
{
    const struct work *work = context;
    const rps_assign *assign = work->assign;
    struct rps_section section = {
            .table_id = assign->table->id,
            .kind = RPS_SECTION_ROWS,
            .value = RPS_VALUE_F32,
            .dim = assign->table->spec.dim,
            .count = part->count,
    };

    rps_pack_keys(builder, &work->pack, part);
    write_rows(work, builder, part, &section, assign->rows,
            section.dim * sizeof(float));
    if (work->slots > 0) {
        section.kind = RPS_SECTION_SLOTS;
        section.dim = work->slots;
        write_rows(work, builder, part, &section, assign->slots,
                work->slots * sizeof(float));
    }
    if (assign->meta != NULL) {
        section.kind = RPS_SECTION_META;
        section.dim = 0;
        section.value = 0;
        write_rows(
                work, builder, part, &section, assign->meta, sizeof(uint32_t));
    }
}

static rps_status
prepare(rps_client *client, struct work *work)
{
    const rps_assign *assign = work->assign;
    struct rps_batch batch = {
            .table = assign->table,
            .keys = assign->keys,
            .key_count = assign->key_count,
            .array = assign->rows,
    };
    rps_status status = rps_batch_check(client, &batch, "assign", 0);
    size_t i;

    if (status == RPS_OK) {
        status = rps_batch_dedup(client, &batch, &work->dedup);
    }
    if (status != RPS_OK) {
        return status;
    }
    work->last = malloc(
            (work->dedup.count > 0 ? work->dedup.count : 1) * sizeof(uint32_t));
    if (work->last == NULL) {
        return rps_client_nomem();
    }
    for (i = 0; i < assign->key_count; i++) {
        work->last[work->dedup.index[i]] = (uint32_t)i;
    }
    if (assign->slots != NULL) {
        work->slots = rps_spec_slot_floats(&assign->table->spec);
    }
    work->pack = (struct rps_pack_item){
            .table = assign->table,
            .dedup = &work->dedup,
            .key_bytes = sizeof(uint64_t) + sizeof(uint32_t) +
                         assign->table->spec.dim * sizeof(float) +
                         work->slots * sizeof(float),
    };
    return RPS_OK;
}

static rps_status
send_all(rps_client *client, struct work *work)
{
    struct rps_pack pack = {
            .client = client,
            .request = {.opcode = RPS_OP_ASSIGN, .numbered = true},
            .items = &work->pack,
            .item_count = 1,
            .sections = 4,
            .write = write_part,
            .work = work,
    };
    return rps_pack_exchange(&pack, NULL, "an assign");
}

rps_status
rps_assign_rows(rps_client *client, const rps_assign *assign)
{
    RPS_TURN(client);
    struct work work = {.assign = assign};
    rps_status status = rps_client_enter(client);

    if (status == RPS_OK && assign == NULL) {
        status = rps_client_fail(RPS_E_INVAL, "assign is NULL");
    }
    if (status == RPS_OK) {
        status = rps_client_all_whole(client);
    }
    if (status == RPS_OK) {
        status = prepare(client, &work);
    }
    if (status == RPS_OK) {
        status = send_all(client, &work);
    }
    rps_dedup_finish(&work.dedup);
    free(work.last);
    return status;
}
