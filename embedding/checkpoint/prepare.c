/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PREPARE and ABORT: this PS's files in the temporary folder. Other PS may
 * write beside it, so only files named "<i>-of-<n>" are ever touched.
 */
#include "base/file.h"
#include "base/hash.h"
#include "base/spec.h"
#include "base/text.h"
#include "embedding/checkpoint/checkpoint.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/values.h"
#include "embedding/checkpoint/writer.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/** Of one table, while its rows go by. */
struct table_save {
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
    struct rps_error *error;
};

/* What could not be restored is not saved. */
static rps_status
check_row(const struct table_save *save, const struct rps_row_view *row)
{
    uint32_t slot = rps_hash_slot(rps_key_hash(row->key, save->job_seed));

    if (slot < save->slot_first || slot > save->slot_last) {
        return rps_fail(save->error, RPS_E_WRONG_ROUTE,
                "table %s: key %" PRIu64 " is in slot %" PRIu32
                ", this PS has slots %" PRIu32 " to %" PRIu32,
                save->spec->name, row->key, slot, save->slot_first,
                save->slot_last);
    }
    if (!rps_ckpt_values_finite(
                save->spec->value_dtype, row->value, save->spec->dim) ||
            !rps_ckpt_values_finite(
                    RPS_VALUE_F32, row->slots, save->slot_floats)) {
        return rps_fail(save->error, RPS_E_NONFINITE,
                "table %s: the row of key %" PRIu64
                " is not finite: it is not saved; the older checkpoints are "
                "as they were (lower the learning rate, or set clip_norm)",
                save->spec->name, row->key);
    }
    return RPS_OK;
}

static rps_status
add_cell(struct table_save *save, uint32_t i, const struct rps_row_view *row)
{
    const struct rps_ckpt_column *column = &save->columns[i];
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
    return rps_ckpt_writer_add(&save->writers[i], cell,
            rps_ckpt_column_bytes(column), save->error);
}

static rps_status
save_row(void *context, const struct rps_row_view *row)
{
    struct table_save *save = context;
    rps_status status = check_row(save, row);

    for (uint32_t i = 0; i < save->count && status == RPS_OK; i++) {
        status = add_cell(save, i, row);
    }
    if (status != RPS_OK) {
        return status;
    }
    rps_digest_add(&save->digest,
            rps_digest_row(row->key, row->value, save->value_bytes, row->slots,
                    save->slot_floats * sizeof(float),
                    (uint8_t)RPS_META_USES(row->meta),
                    RPS_META_LAST(row->meta)));
    save->rows++;
    return RPS_OK;
}

static rps_status
open_writers(struct table_save *save, const struct rps_checkpoint_id *id,
        const char *folder, uint64_t rows)
{
    for (uint32_t i = 0; i < save->count; i++) {
        const struct rps_ckpt_column *column = &save->columns[i];
        struct rps_npy npy = {
                .ndim = column->width == 0 ? 1 : 2,
                .shape = {rows, column->width},
        };
        char *name = rps_ckpt_column_name(
                save->spec->name, id->part, id->parts, column);
        rps_status status;

        memcpy(npy.dtype, column->dtype, sizeof(npy.dtype));
        if (name == NULL) {
            return rps_fail(save->error, RPS_E_NOMEM, "%s: no memory", folder);
        }
        status = rps_ckpt_writer_open(
                &save->writers[i], folder, name, &npy, save->error);
        free(name);
        if (status != RPS_OK) {
            return status;
        }
    }
    return RPS_OK;
}

static json_t *
table_entry(const struct table_save *save, uint64_t pushes)
{
    char hex[RPS_DIGEST_HEX_BYTES];
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, pushes);
    return json_pack("{s:o, s:I, s:s, s:s}", "spec",
            rps_spec_to_canonical(save->spec), "rows", (json_int_t)save->rows,
            "digest", rps_digest_hex(save->digest, hex), "pushes", text);
}

static rps_status
write_rows(struct table_save *save, struct rps_table *table, uint64_t rows,
        json_t *files)
{
    rps_status status = rps_table_visit(table, save_row, save);

    if (status == RPS_OK && save->rows != rows) {
        status = rps_fail(save->error, RPS_E_RETRY_LATER,
                "table %s changed while it was saved (%" PRIu64
                " rows, then %" PRIu64 ")",
                save->spec->name, rows, save->rows);
    }
    for (uint32_t i = 0; i < save->count && status == RPS_OK; i++) {
        status = rps_ckpt_writer_close(&save->writers[i], files, save->error);
    }
    return status;
}

static rps_status
save_table(const struct rps_checkpoint_id *id, const char *folder,
        struct rps_store *store, struct rps_table *table, json_t *part,
        struct rps_error *error)
{
    struct table_save save = {.error = error};
    struct rps_table_stats stats;
    char *path = NULL;
    rps_status status = RPS_E_NOMEM;

    save.spec = rps_table_spec_of(table);
    save.job_seed = rps_store_job_seed(store);
    save.count = rps_ckpt_columns(save.spec, save.columns);
    save.value_bytes = rps_ckpt_value_bytes(save.spec);
    save.slot_floats = rps_spec_slot_floats(save.spec);
    rps_ckpt_part_slots(id->part, id->parts, &save.slot_first, &save.slot_last);
    rps_table_stats_of(table, &stats);
    path = rps_format("%s/table-%s", folder, save.spec->name);
    if (path == NULL) {
        rps_fail(error, RPS_E_NOMEM, "%s: no memory", folder);
        goto out;
    }
    status = rps_dir_make(path, error);
    if (status == RPS_OK) {
        status = open_writers(&save, id, folder, stats.rows);
    }
    if (status == RPS_OK) {
        status = write_rows(
                &save, table, stats.rows, json_object_get(part, "files"));
    }
    if (status == RPS_OK) {
        status = rps_dir_sync(path, error);
    }
    if (status == RPS_OK &&
            json_object_set_new(json_object_get(part, "tables"),
                    save.spec->name, table_entry(&save, stats.pushes)) != 0) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
out:
    for (uint32_t i = 0; i < save.count; i++) {
        rps_ckpt_writer_discard(&save.writers[i]);
    }
    free(path);
    return status;
}

static rps_status
save_lanes(const struct rps_checkpoint_id *id, const char *folder,
        const struct rps_lane_record *lanes, size_t lane_count, json_t *files,
        struct rps_error *error)
{
    struct rps_npy npy = {"<u8", 2, {lane_count, RPS_CKPT_LANE_WORDS}, 0, 0};
    struct rps_ckpt_writer writer;
    char *name = rps_ckpt_lanes_name(id->part, id->parts);
    rps_status status;

    if (name == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", folder);
    }
    status = rps_ckpt_writer_open(&writer, folder, name, &npy, error);
    free(name);
    for (size_t i = 0; i < lane_count && status == RPS_OK; i++) {
        const uint64_t words[RPS_CKPT_LANE_WORDS] = {lanes[i].client,
                lanes[i].lane, lanes[i].number,
                (uint64_t)(int64_t)lanes[i].status};

        status = rps_ckpt_writer_add(&writer, words, sizeof(words), error);
    }
    if (status == RPS_OK) {
        return rps_ckpt_writer_close(&writer, files, error);
    }
    rps_ckpt_writer_discard(&writer);
    return status;
}

static json_t *
new_part(const struct rps_checkpoint_id *id)
{
    uint32_t first;
    uint32_t last;

    rps_ckpt_part_slots(id->part, id->parts, &first, &last);
    return json_pack("{s:i, s:I, s:I, s:I, s:I, s:[I, I], s:{}, s:{}}",
            "format", (int)RPS_CKPT_FORMAT, "part", (json_int_t)id->part,
            "parts", (json_int_t)id->parts, "step", (json_int_t)id->step,
            "epoch", (json_int_t)id->epoch, "slots", (json_int_t)first,
            (json_int_t)last, "tables", "files");
}

/* The part file, last, when all that it lists is on the disk. */
static rps_status
write_part(const struct rps_checkpoint_id *id, const char *folder, json_t *part,
        json_t **answer_out, struct rps_error *error)
{
    char *text = json_dumps(part, JSON_INDENT(1) | JSON_SORT_KEYS);
    char *name = rps_ckpt_part_name(id->part, id->parts);
    char *path = name == NULL ? NULL : rps_format("%s/%s", folder, name);
    char hex[17];
    rps_status status = RPS_E_NOMEM;

    if (text == NULL || path == NULL) {
        rps_fail(error, RPS_E_NOMEM, "%s: no memory", folder);
        goto out;
    }
    status = rps_dir_sync(folder, error);
    if (status == RPS_OK) {
        status = rps_file_write(path, text, strlen(text), false, error);
    }
    if (status == RPS_OK) {
        status = rps_dir_sync(folder, error);
    }
    if (status != RPS_OK) {
        goto out;
    }
    snprintf(hex, sizeof(hex), "%016" PRIx64, rps_checksum(text, strlen(text)));
    *answer_out = json_pack("{s:s, s:I, s:s, s:O}", "file", name, "bytes",
            (json_int_t)strlen(text), "xxh3", hex, "part", part);
    if (*answer_out == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
out:
    free(text);
    free(name);
    free(path);
    return status;
}

/* Files in one folder whose names start with `prefix`. */
static void
remove_prefixed(const char *path, const char *prefix)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;

    if (dir == NULL) {
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0) {
            unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    closedir(dir);
}

/* This PS's files; also the table folders and the folder, if `folders` and
 * nobody else has a file there. */
static void
remove_own(const struct rps_checkpoint_id *id, const char *folder, bool folders)
{
    char *part = rps_ckpt_part_name(id->part, id->parts);
    char *lanes = rps_ckpt_lanes_name(id->part, id->parts);
    char *prefix =
            rps_format("%" PRIu32 "-of-%" PRIu32 ".", id->part, id->parts);
    DIR *dir = opendir(folder);
    const struct dirent *entry;

    if (part == NULL || lanes == NULL || prefix == NULL || dir == NULL) {
        goto out;
    }
    /* first what says that the rest is whole */
    unlinkat(dirfd(dir), part, 0);
    unlinkat(dirfd(dir), RPS_CKPT_MANIFEST, 0);
    unlinkat(dirfd(dir), RPS_CKPT_MANIFEST ".xxh3", 0);
    remove_prefixed(folder, lanes);
    while ((entry = readdir(dir)) != NULL) {
        char *path = NULL;

        if (strncmp(entry->d_name, "table-", 6) != 0) {
            continue;
        }
        path = rps_format("%s/%s", folder, entry->d_name);
        if (path != NULL) {
            remove_prefixed(path, prefix);
            if (folders) {
                rmdir(path);
            }
        }
        free(path);
    }
    if (folders) {
        rmdir(folder);
    }
out:
    if (dir != NULL) {
        closedir(dir);
    }
    free(part);
    free(lanes);
    free(prefix);
}

void
rps_checkpoint_abort(const struct rps_checkpoint_id *id)
{
    char *folder = NULL;

    if (rps_ckpt_id_check(id, NULL) != RPS_OK) {
        return;
    }
    folder = rps_ckpt_tmp_path(id->dir, id->step, id->epoch);
    if (folder != NULL) {
        remove_own(id, folder, true);
    }
    free(folder);
}

static rps_status
write_all(const struct rps_checkpoint_id *id, const char *folder,
        struct rps_store *store, const struct rps_lane_record *lanes,
        size_t lane_count, json_t *part, json_t **part_out,
        struct rps_error *error)
{
    rps_status status = rps_dir_make(folder, error);

    if (status != RPS_OK) {
        return status;
    }
    remove_own(id, folder, false); /* of an attempt that failed */
    for (size_t i = 0; i < rps_store_count(store) && status == RPS_OK; i++) {
        status = save_table(
                id, folder, store, rps_store_at(store, i), part, error);
    }
    if (status == RPS_OK) {
        status = save_lanes(id, folder, lanes, lane_count,
                json_object_get(part, "files"), error);
    }
    return status == RPS_OK ? write_part(id, folder, part, part_out, error)
                            : status;
}

rps_status
rps_checkpoint_prepare(const struct rps_checkpoint_id *id,
        struct rps_store *store, const struct rps_lane_record *lanes,
        size_t lane_count, json_t **part_out, struct rps_error *error)
{
    rps_status status = rps_ckpt_id_check(id, error);
    char *folder = NULL;
    json_t *part = NULL;

    *part_out = NULL;
    if (status != RPS_OK) {
        return status;
    }
    folder = rps_ckpt_tmp_path(id->dir, id->step, id->epoch);
    part = new_part(id);
    if (folder == NULL || part == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory to save", id->dir);
        goto out;
    }
    status = write_all(
            id, folder, store, lanes, lane_count, part, part_out, error);
    if (status != RPS_OK) {
        remove_own(id, folder, true); /* gives a full disk its room back */
    }
out:
    json_decref(part);
    free(folder);
    return status;
}
