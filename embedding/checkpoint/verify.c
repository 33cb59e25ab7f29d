/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every byte of a checkpoint read again, and its digests recomputed from
 * the rows.
 */
#include "base/spec.h"
#include "base/text.h"
#include "embedding/checkpoint/admission.h"
#include "embedding/checkpoint/checkpoint.h"
#include "embedding/checkpoint/erased.h"
#include "embedding/checkpoint/fields.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/manifest.h"
#include "embedding/checkpoint/scan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct verify {
    struct rps_ckpt_folder folder;
    struct rps_ckpt_manifest manifest;
    struct rps_ckpt_part *parts;
    struct rps_checkpoint_report *report;
    void (*progress)(void *context, uint64_t done, uint64_t total);
    void *context;
    uint64_t done;
    uint64_t total;
};

struct sum {
    struct verify *v;
    const rps_table_spec *spec;
    uint32_t slot_floats;
    struct rps_digest digest;
};

static void
advance(struct verify *v, uint64_t bytes)
{
    v->done += bytes;
    if (v->progress != NULL) {
        v->progress(v->context, v->done, v->total);
    }
}

static rps_status
add_batch(void *context, struct rps_ckpt_batch *batch, struct rps_error *error)
{
    struct sum *sum = context;

    (void)error;
    for (size_t i = 0; i < batch->n; i++) {
        uint32_t meta = batch->meta[i];

        rps_digest_add(&sum->digest,
                rps_digest_row(batch->keys[i],
                        batch->values + i * batch->value_bytes,
                        batch->value_bytes, batch->slots + i * sum->slot_floats,
                        sum->slot_floats * sizeof(float),
                        (uint8_t)RPS_META_USES(meta), RPS_META_LAST(meta)));
    }
    advance(sum->v, batch->file_bytes);
    return RPS_OK;
}

static rps_status
pass_counts(
        void *context, struct rps_ckpt_counts *counts, struct rps_error *error)
{
    struct sum *sum = context;

    (void)error;
    advance(sum->v, counts->file_bytes);
    return RPS_OK;
}

static rps_status
add_erased(
        void *context, struct rps_ckpt_erased *erased, struct rps_error *error)
{
    struct sum *sum = context;

    (void)error;
    for (size_t i = 0; i < erased->n; i++) {
        rps_digest_add(&sum->digest, rps_digest_erased(erased->keys[i]));
    }
    advance(sum->v, erased->file_bytes);
    return RPS_OK;
}

/* One table of one part, against what the part file says of it. */
static rps_status
verify_part_table(struct verify *v, const struct rps_ckpt_part *part,
        const struct rps_ckpt_table *table, struct rps_digest *digest,
        struct rps_error *error)
{
    struct sum sum = {
            v, &table->spec, rps_spec_slot_floats(&table->spec), {0, 0}};
    const struct rps_ckpt_scan scan = {
            &v->folder, part, table, v->manifest.job_seed, add_batch, &sum};
    rps_status status = rps_ckpt_scan_table(&scan, error);

    if (status == RPS_OK) {
        status = rps_ckpt_erased_scan(&scan, add_erased, error);
    }
    if (status == RPS_OK) {
        status = rps_ckpt_admission_scan(&scan, pass_counts, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    rps_digest_add(digest, sum.digest);
    if (!rps_digest_equal(sum.digest, table->digest)) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s/part-%" PRIu32 "-of-%" PRIu32
                ".json: table %s has another digest than its files",
                v->folder.path, part->part, part->parts, table->spec.name);
    }
    return RPS_OK;
}

static rps_status
verify_table(struct verify *v, const struct rps_ckpt_table *table,
        struct rps_checkpoint_table_report *out, struct rps_error *error)
{
    rps_status status = RPS_OK;

    snprintf(out->name, sizeof(out->name), "%s", table->spec.name);
    for (uint32_t i = 0; i < v->manifest.part_count && status == RPS_OK; i++) {
        const struct rps_ckpt_part *part = &v->parts[i];
        size_t at = rps_ckpt_table_find(
                part->tables, part->table_count, table->spec.name);

        if (at < part->table_count) {
            out->rows += part->tables[at].rows;
            out->admission += part->tables[at].admission;
            status = verify_part_table(
                    v, part, &part->tables[at], &out->digest, error);
        }
    }
    out->matches =
            status == RPS_OK && rps_digest_equal(out->digest, table->digest);
    return status;
}

static rps_status
verify_lanes(struct verify *v, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (uint32_t i = 0; i < v->manifest.part_count && status == RPS_OK; i++) {
        struct rps_lane_record *lanes = NULL;
        size_t count = 0;

        status = rps_ckpt_scan_lanes(
                &v->folder, &v->parts[i], &lanes, &count, error);
        free(lanes);
    }
    return status;
}

/* The checkpoint's digest from the tables' recomputed ones. */
static rps_status
verify_digest(struct verify *v, struct rps_error *error)
{
    struct rps_checkpoint_report *report = v->report;
    size_t n = report->table_count;
    struct rps_digest_entry *entries = calloc(n + 1, sizeof(*entries));
    char **texts = calloc(n + 1, sizeof(*texts));
    rps_status status = RPS_E_NOMEM;

    if (entries == NULL || texts == NULL) {
        rps_fail(error, status, "%s: no memory", v->folder.path);
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        texts[i] = rps_spec_to_json(&v->manifest.tables[i].written);
        if (texts[i] == NULL) {
            rps_fail(error, status, "%s: no memory", v->folder.path);
            goto out;
        }
        entries[i].name = report->tables[i].name;
        entries[i].spec_json = texts[i];
        entries[i].digest = report->tables[i].digest;
    }
    report->digest = rps_digest_checkpoint(entries, n);
    report->matches = rps_digest_equal(report->digest, v->manifest.digest);
    status = RPS_OK;
    if (!report->matches) {
        status = rps_fail(error, RPS_E_CORRUPT,
                "%s/%s: its digest is not the one of its tables",
                v->folder.path, RPS_CKPT_MANIFEST);
    }
out:
    for (size_t i = 0; texts != NULL && i < n; i++) {
        free(texts[i]);
    }
    free(texts);
    free(entries);
    return status;
}

static uint64_t
listed_bytes(const struct rps_ckpt_part *part)
{
    uint64_t bytes = 0;
    const char *name;
    json_t *value;

    json_object_foreach(part->files, name, value)
    {
        struct rps_ckpt_listed listed;

        if (rps_ckpt_listed_parse(value, &listed)) {
            bytes += listed.bytes;
        }
    }
    return bytes;
}

static rps_status
read_parts(struct verify *v, struct rps_error *error)
{
    v->parts = calloc(v->manifest.part_count, sizeof(*v->parts));
    if (v->parts == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", v->folder.path);
    }
    for (uint32_t i = 0; i < v->manifest.part_count; i++) {
        rps_status status = rps_ckpt_part_read(
                &v->parts[i], &v->folder, &v->manifest, i, error);

        if (status != RPS_OK) {
            return status;
        }
        v->total += listed_bytes(&v->parts[i]) + v->manifest.parts[i].bytes;
    }
    v->report->bytes = v->total;
    return rps_ckpt_parts_check(&v->manifest, v->parts, &v->folder, error);
}

static rps_status
verify_all(struct verify *v, const char *path, struct rps_error *error)
{
    struct rps_checkpoint_report *report = v->report;
    rps_status status = rps_ckpt_folder_open(&v->folder, path, error);

    if (status == RPS_OK) {
        status = rps_ckpt_manifest_read(&v->manifest, &v->folder, error);
    }
    if (status == RPS_OK) {
        report->step = v->manifest.step;
        status = read_parts(v, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    report->tables =
            calloc(v->manifest.table_count + 1, sizeof(*report->tables));
    if (report->tables == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
    for (size_t i = 0; i < v->manifest.table_count && status == RPS_OK; i++) {
        status = verify_table(
                v, &v->manifest.tables[i], &report->tables[i], error);
        report->table_count++;
    }
    if (status == RPS_OK) {
        status = verify_lanes(v, error);
    }
    if (status == RPS_OK) {
        status = verify_digest(v, error);
    }
    if (status == RPS_OK) {
        advance(v, v->total - v->done);
    }
    return status;
}

static bool
looks_like_step(const char *path)
{
    const char *slash = strrchr(path, '/');
    uint64_t step;

    return rps_ckpt_parse_step(slash == NULL ? path : slash + 1, &step);
}

/* The newest step below path. One that is not complete is named as it is:
 * passing it over would call a damaged folder good. */
static rps_status
find_newest(const char *path, char **folder_out, struct rps_error *error)
{
    struct rps_checkpoint_survey survey;
    rps_status status = rps_checkpoint_survey(path, 0, 0, &survey, error);
    uint64_t step = 0;

    if (status != RPS_OK) {
        return status;
    }
    if (survey.count + survey.unusable_count == 0) {
        return looks_like_step(path)
                       ? rps_fail(error, RPS_E_CORRUPT,
                                 "%s: manifest.json is missing", path)
                       : rps_fail(error, RPS_E_NOT_FOUND,
                                 "%s: neither a checkpoint (manifest.json) nor "
                                 "a folder with "
                                 "one (ckpt-<step>)",
                                 path);
    }
    if (survey.count > 0) {
        step = survey.complete[survey.count - 1].step;
    }
    if (survey.unusable_count > 0 &&
            survey.unusable[survey.unusable_count - 1].step > step) {
        status = rps_fail(error, RPS_E_CORRUPT, "%s",
                survey.unusable[survey.unusable_count - 1].why);
    } else {
        *folder_out = rps_checkpoint_path(path, step);
        status = *folder_out == NULL ? RPS_E_NOMEM : RPS_OK;
    }
    rps_checkpoint_survey_finish(&survey);
    return status;
}

/* The folder itself, or the newest step below it. */
static rps_status
find_folder(const char *path, char **folder_out, struct rps_error *error)
{
    char *manifest = rps_format("%s/%s", path, RPS_CKPT_MANIFEST);
    rps_status status = RPS_E_NOMEM;

    *folder_out = NULL;
    if (manifest != NULL && access(manifest, F_OK) == 0) {
        *folder_out = strdup(path);
        status = *folder_out == NULL ? RPS_E_NOMEM : RPS_OK;
    } else if (manifest != NULL) {
        status = find_newest(path, folder_out, error);
    }
    free(manifest);
    return status == RPS_E_NOMEM
                   ? rps_fail(error, status, "%s: no memory", path)
                   : status;
}

rps_status
rps_checkpoint_verify(const char *path,
        void (*progress)(void *context, uint64_t done, uint64_t total),
        void *context, struct rps_checkpoint_report *report,
        struct rps_error *error)
{
    struct verify v = {.folder = {-1, NULL},
            .report = report,
            .progress = progress,
            .context = context};
    char *folder = NULL;
    rps_status status;

    memset(report, 0, sizeof(*report));
    status = find_folder(path, &folder, error);
    if (status == RPS_OK) {
        status = verify_all(&v, folder, error);
        /* the folder is there: what it lacks is damage */
        status = status == RPS_E_NOT_FOUND ? RPS_E_CORRUPT : status;
    }
    for (uint32_t i = 0; v.parts != NULL && i < v.manifest.part_count; i++) {
        rps_ckpt_part_finish(&v.parts[i]);
    }
    free(v.parts);
    rps_ckpt_manifest_finish(&v.manifest);
    rps_ckpt_folder_close(&v.folder);
    free(folder);
    return status;
}

void
rps_checkpoint_report_finish(struct rps_checkpoint_report *report)
{
    free(report->tables);
    memset(report, 0, sizeof(*report));
}
