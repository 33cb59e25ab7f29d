/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RESTORE: any number of parts into this PS of any number of PS. What fails
 * leaves an empty store.
 */
#include "base/hash.h"
#include "base/spec.h"
#include "embedding/checkpoint/admission.h"
#include "embedding/checkpoint/checkpoint.h"
#include "embedding/checkpoint/manifest.h"
#include "embedding/checkpoint/scan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct restore {
    const struct rps_restore *how;
    struct rps_store *store;
    struct rps_ckpt_folder folder;
    struct rps_ckpt_manifest manifest;
    struct rps_ckpt_part *parts; /* [part_count]; root NULL: not there */
    bool all_parts;
    uint64_t rows_read; /* of the parts that matter */
    uint64_t rows_total;
};

/** Of one table in one part. */
struct sink {
    struct restore *r;
    struct rps_table *table;
    uint32_t slot_floats;
    uint64_t *rows; /* of the table so far */
};

static void
tell_progress(struct restore *r, uint64_t rows)
{
    const struct rps_restore *how = r->how;

    r->rows_read += rows;
    if (how->progress != NULL) {
        how->progress(how->context, r->rows_read, r->rows_total);
    }
}

/* Keep the rows that this PS owns, in place. */
static size_t
keep_owned(const struct sink *sink, struct rps_ckpt_batch *batch)
{
    const struct rps_restore *how = sink->r->how;
    size_t value_bytes = batch->value_bytes;
    size_t slot_bytes = sink->slot_floats * sizeof(float);
    size_t kept = 0;

    for (size_t i = 0; i < batch->n; i++) {
        if (!how->owns(how->context, batch->hashes[i])) {
            continue;
        }
        if (kept < i) {
            batch->keys[kept] = batch->keys[i];
            batch->meta[kept] = batch->meta[i];
            memcpy(batch->values + kept * value_bytes,
                    batch->values + i * value_bytes, value_bytes);
            memcpy(batch->slots + kept * sink->slot_floats,
                    batch->slots + i * sink->slot_floats, slot_bytes);
        }
        kept++;
    }
    return kept;
}

static rps_status
assign_batch(
        void *context, struct rps_ckpt_batch *batch, struct rps_error *error)
{
    const struct sink *sink = context;
    struct rps_error cause = {""};
    size_t kept = keep_owned(sink, batch);
    rps_status status;

    tell_progress(sink->r, batch->n);
    if (kept == 0) {
        return RPS_OK;
    }
    status = rps_table_restore_rows(sink->table, kept, batch->keys,
            batch->values, sink->slot_floats == 0 ? NULL : batch->slots,
            batch->meta, &cause);
    if (status == RPS_OK) {
        *sink->rows += kept;
        return RPS_OK;
    }
    /* the checksums hold, so these are the words of a false file */
    return rps_fail(error,
            status == RPS_E_INVAL || status == RPS_E_NONFINITE ? RPS_E_CORRUPT
                                                               : status,
            "%s: table %s: %s", sink->r->folder.path,
            rps_table_spec_of(sink->table)->name, cause.text);
}

/* Counts go where their keys' rows would go. */
static rps_status
restore_counts(
        void *context, struct rps_ckpt_counts *counts, struct rps_error *error)
{
    const struct sink *sink = context;
    const struct rps_restore *how = sink->r->how;
    struct rps_error cause = {""};
    size_t kept = 0;
    rps_status status;

    for (size_t i = 0; i < counts->n; i++) {
        if (how->owns(how->context, (uint64_t)counts->slots[i] << 52)) {
            counts->entries[kept++] = counts->entries[i];
        }
    }
    status = rps_table_restore_admission(
            sink->table, kept, counts->entries, &cause);
    if (status == RPS_OK) {
        return RPS_OK;
    }
    return rps_fail(error, status == RPS_E_INVAL ? RPS_E_CORRUPT : status,
            "%s: table %s: %s", sink->r->folder.path,
            rps_table_spec_of(sink->table)->name, cause.text);
}

/* Does this PS own any slot of the part? */
static bool
part_matters(const struct restore *r, const struct rps_ckpt_part *part)
{
    const struct rps_restore *how = r->how;

    for (uint32_t s = part->slot_first; s <= part->slot_last; s++) {
        if (how->owns(how->context, (uint64_t)s << 52)) {
            return true;
        }
    }
    return false;
}

/* t of async: this PS's own count where the number of PS is the same. */
static uint64_t
pushes_of(const struct restore *r, const char *name)
{
    uint32_t own = r->how->part;
    bool same = r->how->parts == r->manifest.part_count;
    uint64_t pushes = 0;

    for (uint32_t i = 0; i < r->manifest.part_count; i++) {
        const struct rps_ckpt_part *part = &r->parts[i];
        size_t at = rps_ckpt_table_find(part->tables, part->table_count, name);

        if (at < part->table_count && (!same || i == own) &&
                part->tables[at].pushes > pushes) {
            pushes = part->tables[at].pushes;
        }
    }
    return pushes;
}

static rps_status
read_rows(struct restore *r, struct rps_table *table, uint64_t *rows,
        struct rps_error *error)
{
    const rps_table_spec *spec = rps_table_spec_of(table);
    struct sink sink = {r, table, rps_spec_slot_floats(spec), rows};
    rps_status status = RPS_OK;

    for (uint32_t i = 0; i < r->manifest.part_count; i++) {
        const struct rps_ckpt_part *part = &r->parts[i];
        size_t at = rps_ckpt_table_find(
                part->tables, part->table_count, spec->name);
        struct rps_ckpt_scan scan = {&r->folder, part, NULL,
                r->manifest.job_seed, assign_batch, &sink};

        if (at == part->table_count || !part_matters(r, part)) {
            continue;
        }
        scan.table = &part->tables[at];
        status = rps_ckpt_scan_table(&scan, error);
        if (status == RPS_OK) {
            status = rps_ckpt_admission_scan(&scan, restore_counts, error);
        }
        if (status != RPS_OK) {
            return status;
        }
    }
    return status;
}

/* What is ahead, before the first row is read. */
static void
count_rows(struct restore *r)
{
    for (uint32_t i = 0; i < r->manifest.part_count; i++) {
        const struct rps_ckpt_part *part = &r->parts[i];

        for (size_t t = 0; part->root != NULL && part_matters(r, part) &&
                           t < part->table_count;
                t++) {
            r->rows_total += part->tables[t].rows;
        }
    }
    tell_progress(r, 0);
}

static rps_status
restore_table(struct restore *r, const struct rps_ckpt_table *entry,
        struct rps_error *error)
{
    struct rps_table *table = NULL;
    struct rps_table_stats stats;
    uint64_t rows = 0;
    rps_status status =
            rps_table_create(&table, &entry->spec, r->manifest.job_seed, error);

    if (status != RPS_OK) {
        return status;
    }
    status = read_rows(r, table, &rows, error);
    if (status != RPS_OK) {
        goto fail;
    }
    rps_table_stats_of(table, &stats);
    if (stats.rows != rows) {
        status = rps_fail(error, RPS_E_CORRUPT,
                "%s: table %s: %" PRIu64 " rows, but %" PRIu64
                " different keys",
                r->folder.path, entry->spec.name, rows, stats.rows);
        goto fail;
    }
    rps_table_set_pushes(table, pushes_of(r, entry->spec.name));
    status = rps_store_add_restored(r->store, table);
    if (status != RPS_OK) {
        rps_fail(error, status, "%s: table %s cannot be added (%s)",
                r->folder.path, entry->spec.name, rps_status_str(status));
        goto fail;
    }
    return RPS_OK;
fail:
    rps_table_destroy(table);
    return status;
}

static rps_status
read_parts(struct restore *r, struct rps_error *error)
{
    uint32_t n = r->manifest.part_count;
    bool own_is_enough = n == r->how->parts;

    r->all_parts = true;
    r->parts = calloc(n, sizeof(*r->parts));
    if (r->parts == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", r->folder.path);
    }
    for (uint32_t i = 0; i < n; i++) {
        rps_status status = rps_ckpt_part_read(
                &r->parts[i], &r->folder, &r->manifest, i, error);

        if (status == RPS_E_NOT_FOUND && own_is_enough && i != r->how->part) {
            r->all_parts = false;
            continue;
        }
        if (status != RPS_OK) {
            return status;
        }
    }
    return r->all_parts ? rps_ckpt_parts_check(
                                  &r->manifest, r->parts, &r->folder, error)
                        : RPS_OK;
}

/* Every slot of this PS is in a part that is here: else rows would be
 * missing and nobody would notice. */
static rps_status
check_slots(const struct restore *r, struct rps_error *error)
{
    const struct rps_restore *how = r->how;

    for (uint32_t s = 0; s < RPS_SLOT_COUNT; s++) {
        bool there = !how->owns(how->context, (uint64_t)s << 52);

        for (uint32_t i = 0; i < r->manifest.part_count && !there; i++) {
            const struct rps_ckpt_part *part = &r->parts[i];

            there = part->root != NULL && s >= part->slot_first &&
                    s <= part->slot_last;
        }
        if (!there) {
            return rps_fail(error,
                    r->all_parts ? RPS_E_CORRUPT : RPS_E_NOT_FOUND,
                    "%s: slot %" PRIu32
                    " of this PS is in no part file that is here",
                    r->folder.path, s);
        }
    }
    return RPS_OK;
}

static rps_status
check_manifest(const struct restore *r, struct rps_error *error)
{
    uint64_t seed = rps_store_job_seed(r->store);

    if (r->manifest.step != r->how->step) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: its manifest is of step %" PRIu64, r->folder.path,
                r->manifest.step);
    }
    if (r->manifest.is_delta) {
        return rps_fail(error, RPS_E_UNSUPPORTED,
                "%s is a delta: this version restores full checkpoints",
                r->folder.path);
    }
    if (r->manifest.job_seed != seed) {
        return rps_fail(error, RPS_E_MISMATCH,
                "%s: saved with job seed %" PRIu64
                ", this job has --job-seed %" PRIu64,
                r->folder.path, r->manifest.job_seed, seed);
    }
    return RPS_OK;
}

static rps_status
restore_all(struct restore *r, const char *path, struct rps_error *error)
{
    rps_status status = rps_ckpt_folder_open(&r->folder, path, error);

    if (status == RPS_OK) {
        status = rps_ckpt_manifest_read(&r->manifest, &r->folder, error);
    }
    if (status == RPS_OK) {
        status = check_manifest(r, error);
    }
    if (status == RPS_OK) {
        status = read_parts(r, error);
    }
    if (status == RPS_OK) {
        status = check_slots(r, error);
    }
    if (status == RPS_OK) {
        count_rows(r);
    }
    for (size_t i = 0; i < r->manifest.table_count && status == RPS_OK; i++) {
        status = restore_table(r, &r->manifest.tables[i], error);
    }
    return status;
}

/* Lanes are connections to one PS of so many: with another number of PS
 * there are other lanes, and none is taken over. All are read, so that
 * damage is found by whoever restores. */
static rps_status
restore_lanes(const struct restore *r, struct rps_lane_record **lanes_out,
        size_t *count_out, struct rps_error *error)
{
    bool same = r->how->parts == r->manifest.part_count;

    for (uint32_t i = 0; i < r->manifest.part_count; i++) {
        struct rps_lane_record *lanes = NULL;
        size_t count = 0;
        rps_status status;

        if (r->parts[i].root == NULL) {
            continue;
        }
        status = rps_ckpt_scan_lanes(
                &r->folder, &r->parts[i], &lanes, &count, error);
        if (status != RPS_OK) {
            return status;
        }
        if (same && i == r->how->part) {
            *lanes_out = lanes;
            *count_out = count;
        } else {
            free(lanes);
        }
    }
    return RPS_OK;
}

static void
finish(struct restore *r)
{
    for (uint32_t i = 0; r->parts != NULL && i < r->manifest.part_count; i++) {
        rps_ckpt_part_finish(&r->parts[i]);
    }
    free(r->parts);
    rps_ckpt_manifest_finish(&r->manifest);
    rps_ckpt_folder_close(&r->folder);
}

rps_status
rps_checkpoint_restore(const struct rps_restore *restore,
        struct rps_store *store, json_t **manifest_out,
        struct rps_lane_record **lanes_out, size_t *lane_count_out,
        struct rps_error *error)
{
    struct restore r = {.how = restore, .store = store, .folder = {-1, NULL}};
    char *path = rps_checkpoint_path(restore->dir, restore->step);
    rps_status status;

    assert(rps_store_count(store) == 0);
    assert(restore->part < restore->parts);
    *manifest_out = NULL;
    *lanes_out = NULL;
    *lane_count_out = 0;
    if (path == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", restore->dir);
    }
    status = restore_all(&r, path, error);
    if (status == RPS_OK) {
        status = restore_lanes(&r, lanes_out, lane_count_out, error);
    }
    if (status == RPS_OK) {
        *manifest_out = json_incref(r.manifest.root);
    } else {
        rps_store_clear(store);
        free(*lanes_out);
        *lanes_out = NULL;
        *lane_count_out = 0;
    }
    finish(&r);
    free(path);
    return status;
}
