/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/save.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/spec.h"
#include "base/text.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/values.h"
#include "embedding/checkpoint/writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/** Of one table, while its rows go by. */
struct table_save {
    const struct rps_ckpt_save *save;
    const rps_table_spec *spec;
    uint64_t job_seed;
    uint32_t slot_first;
    uint32_t slot_last;
    struct rps_ckpt_column columns[RPS_CKPT_COLUMNS_MAX];
    struct rps_ckpt_writer writers[RPS_CKPT_COLUMNS_MAX];
    uint32_t count;
    size_t value_bytes;
    uint32_t slot_floats;
    uint64_t rows;
    struct rps_digest digest;
};

/* What could not be restored is not saved. */
static rps_status
check_row(const struct table_save *s, const struct rps_row_view *row)
{
    uint32_t slot = rps_hash_slot(rps_key_hash(row->key, s->job_seed));

    if (slot < s->slot_first || slot > s->slot_last) {
        return rps_fail(s->save->error, RPS_E_WRONG_ROUTE,
                "table %s: key %" PRIu64 " is in slot %" PRIu32
                ", this PS has slots %" PRIu32 " to %" PRIu32,
                s->spec->name, row->key, slot, s->slot_first, s->slot_last);
    }
    if (!rps_ckpt_values_finite(
                s->spec->value_dtype, row->value, s->spec->dim) ||
            !rps_ckpt_values_finite(
                    RPS_VALUE_F32, row->slots, s->slot_floats)) {
        return rps_fail(s->save->error, RPS_E_NONFINITE,
                "table %s: the row of key %" PRIu64
                " is not finite: it is not saved; the older checkpoints are "
                "as they were (lower the learning rate, or set clip_norm)",
                s->spec->name, row->key);
    }
    return RPS_OK;
}

static rps_status
add_cell(struct table_save *s, uint32_t i, const struct rps_row_view *row)
{
    const struct rps_ckpt_column *column = &s->columns[i];
    uint32_t last = RPS_META_LAST(row->meta);
    uint8_t uses = (uint8_t)RPS_META_USES(row->meta);
    const void *cell = NULL;

    switch (column->kind) {
    case RPS_CKPT_KEYS:
        cell = &row->key;
        break;
    case RPS_CKPT_ROWS:
        cell = row->value;
        break;
    case RPS_CKPT_SLOT:
        cell = row->slots + column->slot_offset;
        break;
    case RPS_CKPT_USES:
        cell = &uses;
        break;
    case RPS_CKPT_LAST:
        cell = &last;
        break;
    }
    return rps_ckpt_writer_add(&s->writers[i], cell,
            rps_ckpt_column_bytes(column), s->save->error);
}

/* A large table takes minutes, in which somebody may wait for the end. */
static rps_status
check_wanted(const struct rps_ckpt_save *save)
{
    const atomic_bool *unwanted = save->id->unwanted;

    /* relaxed: no other memory goes with it, and a row later will do */
    return unwanted == NULL ||
                           !atomic_load_explicit(unwanted, memory_order_relaxed)
                   ? RPS_OK
                   : rps_fail(save->error, RPS_E_CANCELED,
                             "%s: nobody wants it any more: the job begins "
                             "again",
                             save->folder);
}

static rps_status
save_row(void *context, const struct rps_row_view *row)
{
    struct table_save *s = context;
    rps_status status = check_wanted(s->save);

    if (status == RPS_OK) {
        status = check_row(s, row);
    }

    for (uint32_t i = 0; i < s->count && status == RPS_OK; i++) {
        status = add_cell(s, i, row);
    }
    if (status != RPS_OK) {
        return status;
    }
    rps_digest_add(
            &s->digest, rps_digest_row(row->key, row->value, s->value_bytes,
                                row->slots, s->slot_floats * sizeof(float),
                                (uint8_t)RPS_META_USES(row->meta),
                                RPS_META_LAST(row->meta)));
    s->rows++;
    return RPS_OK;
}

static rps_status
open_writers(struct table_save *s, uint64_t rows)
{
    const struct rps_ckpt_save *save = s->save;

    for (uint32_t i = 0; i < s->count; i++) {
        const struct rps_ckpt_column *column = &s->columns[i];
        struct rps_npy npy = {
                .ndim = column->width == 0 ? 1 : 2,
                .shape = {rows, column->width},
        };
        char *name = rps_ckpt_column_name(
                s->spec->name, save->id->part, save->id->parts, column);
        rps_status status;

        memcpy(npy.dtype, column->dtype, sizeof(npy.dtype));
        if (name == NULL) {
            return rps_fail(
                    save->error, RPS_E_NOMEM, "%s: no memory", save->folder);
        }
        status = rps_ckpt_writer_open(
                &s->writers[i], save->folder, name, &npy, save->error);
        free(name);
        if (status != RPS_OK) {
            return status;
        }
    }
    return RPS_OK;
}

/* The header says how many there are: it was written first. */
static rps_status
write_rows(struct table_save *s, size_t table, uint64_t rows)
{
    const struct rps_ckpt_save *save = s->save;
    rps_status status = rps_cut_visit(
            save->cut, table, save->aside, save_row, s, save->error);

    if (status == RPS_OK && s->rows != rows) {
        status = rps_fail(save->error, RPS_E_CORRUPT,
                "table %s: the cut has %" PRIu64 " rows and %" PRIu64
                " were found: this is a fault of recps, please report it",
                s->spec->name, rows, s->rows);
    }
    for (uint32_t i = 0; i < s->count && status == RPS_OK; i++) {
        status = rps_ckpt_writer_close(&s->writers[i],
                json_object_get(save->part, "files"), save->error);
    }
    return status;
}

static rps_status
save_rows(const struct rps_ckpt_save *save, size_t table,
        struct rps_ckpt_saved *saved)
{
    struct table_save s = {.save = save,
            .spec = rps_cut_spec(save->cut, table),
            .job_seed = rps_cut_job_seed(save->cut)};
    rps_status status;

    s.count = rps_ckpt_columns(s.spec, s.columns);
    s.value_bytes = rps_ckpt_value_bytes(s.spec);
    s.slot_floats = rps_spec_slot_floats(s.spec);
    rps_ckpt_part_slots(
            save->id->part, save->id->parts, &s.slot_first, &s.slot_last);
    status = open_writers(&s, saved->rows);
    if (status == RPS_OK) {
        status = write_rows(&s, table, saved->rows);
    }
    for (uint32_t i = 0; i < s.count; i++) {
        rps_ckpt_writer_discard(&s.writers[i]);
    }
    rps_digest_add(&saved->digest, s.digest);
    return status;
}

/* Make the table's folder, or sync it. */
static rps_status
do_folder(const struct rps_ckpt_save *save, const rps_table_spec *spec,
        rps_status (*act)(const char *path, struct rps_error *error))
{
    char *path = rps_format("%s/table-%s", save->folder, spec->name);
    rps_status status = path != NULL ? act(path, save->error)
                                     : rps_fail(save->error, RPS_E_NOMEM,
                                               "%s: no memory", save->folder);

    free(path);
    return status;
}

rps_status
rps_ckpt_save_begin(const struct rps_ckpt_save *save, size_t table,
        struct rps_ckpt_saved *saved)
{
    rps_status status =
            do_folder(save, rps_cut_spec(save->cut, table), rps_dir_make);

    *saved = (struct rps_ckpt_saved){
            .changed_only =
                    save->is_delta && rps_cut_is_based(save->cut, table)};
    saved->rows = rps_cut_choose(save->cut, table, saved->changed_only);
    return status == RPS_OK
                   ? rps_ckpt_admission_save(save, table, &saved->admission)
                   : status;
}

/* What a table without it does not name is one that the first version
 * reads. */
static bool
set_count(json_t *entry, const char *field, uint64_t count)
{
    return count == 0 || json_object_set_new(entry, field,
                                 json_integer((json_int_t)count)) == 0;
}

static json_t *
table_entry(const struct rps_ckpt_save *save, size_t table,
        const struct rps_ckpt_saved *saved)
{
    char hex[RPS_DIGEST_HEX_BYTES];
    char text[24];
    json_t *entry;

    snprintf(text, sizeof(text), "%" PRIu64, rps_cut_pushes(save->cut, table));
    entry = json_pack("{s:o, s:I, s:s, s:s}", "spec",
            rps_spec_to_canonical(rps_cut_spec(save->cut, table)), "rows",
            (json_int_t)saved->rows, "digest",
            rps_digest_hex(saved->digest, hex), "pushes", text);
    if (!set_count(entry, "admission", saved->admission) ||
            !set_count(entry, "erased", saved->erased) ||
            (save->is_delta && !saved->changed_only &&
                    json_object_set_new(entry, "whole", json_true()) != 0)) {
        json_decref(entry);
        return NULL;
    }
    return entry;
}

rps_status
rps_ckpt_save_table(const struct rps_ckpt_save *save, size_t table,
        struct rps_ckpt_saved *saved)
{
    const rps_table_spec *spec = rps_cut_spec(save->cut, table);
    rps_status status = RPS_OK;

    if (saved->changed_only) {
        status = rps_ckpt_erased_save(
                save, table, &saved->erased, &saved->digest);
    }
    if (status == RPS_OK) {
        status = save_rows(save, table, saved);
    }
    if (status == RPS_OK) {
        status = do_folder(save, spec, rps_dir_sync);
    }
    if (status == RPS_OK &&
            json_object_set_new(json_object_get(save->part, "tables"),
                    spec->name, table_entry(save, table, saved)) != 0) {
        status = rps_fail(
                save->error, RPS_E_NOMEM, "%s: no memory", save->folder);
    }
    return status;
}
