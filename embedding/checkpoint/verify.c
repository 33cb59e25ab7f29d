/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every byte of a checkpoint and of all that it stands on read again, and
 * their digests recomputed from the rows; of a delta also the digest of the
 * state that it leads to.
 */
#include "base/spec.h"
#include "embedding/checkpoint/admission.h"
#include "embedding/checkpoint/chain.h"
#include "embedding/checkpoint/checkpoint.h"
#include "embedding/checkpoint/fields.h"
#include "embedding/checkpoint/find.h"
#include "embedding/checkpoint/keys.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/replay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct verify {
    struct rps_ckpt_chain chain;
    struct rps_checkpoint_report *report;
    void (*progress)(void *context, uint64_t done, uint64_t total);
    void *context;
    uint64_t done;
    uint64_t total;
};

struct sum {
    struct verify *v;
    uint32_t slot_floats;
    bool is_replay; /* which counts its bytes itself */
    uint64_t rows;
    struct rps_digest digest;
};

static void
advance(void *context, uint64_t bytes)
{
    struct verify *v = context;

    v->done = v->done + bytes < v->total ? v->done + bytes : v->total;
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
    sum->rows += batch->n;
    if (!sum->is_replay) {
        advance(sum->v, batch->file_bytes);
    }
    return RPS_OK;
}

static rps_status
add_erased(void *context, struct rps_ckpt_keys *keys, struct rps_error *error)
{
    struct sum *sum = context;

    (void)error;
    for (size_t i = 0; i < keys->n; i++) {
        rps_digest_add(&sum->digest, rps_digest_erased(keys->keys[i]));
    }
    advance(sum->v, keys->file_bytes);
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

/* One table of one part, against what the part file says of it. */
static rps_status
verify_part_table(struct verify *v, const struct rps_ckpt_link *link,
        const struct rps_ckpt_part *part, const struct rps_ckpt_table *table,
        struct rps_error *error)
{
    struct sum sum = {
            .v = v, .slot_floats = rps_spec_slot_floats(&table->spec)};
    const struct rps_ckpt_scan scan = {&link->folder, part, table,
            link->manifest.job_seed, add_batch, &sum};
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
    if (!rps_digest_equal(sum.digest, table->digest)) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s/part-%" PRIu32 "-of-%" PRIu32
                ".json: table %s has another digest than its files",
                link->folder.path, part->part, part->parts, table->spec.name);
    }
    return RPS_OK;
}

static rps_status
verify_part(struct verify *v, const struct rps_ckpt_link *link, uint32_t i,
        struct rps_error *error)
{
    const struct rps_ckpt_part *part = &link->parts[i];
    struct rps_lane_record *lanes = NULL;
    size_t count = 0;
    rps_status status = RPS_OK;

    for (size_t t = 0; t < part->table_count && status == RPS_OK; t++) {
        status = verify_part_table(v, link, part, &part->tables[t], error);
    }
    if (status == RPS_OK) {
        status =
                rps_ckpt_scan_lanes(&link->folder, part, &lanes, &count, error);
        free(lanes);
    }
    return status;
}

/** Tables and their digests, as one digest. */
struct listed_tables {
    struct rps_digest_entry *entries;
    char **texts;
    size_t count;
};

static void
listed_finish(struct listed_tables *listed)
{
    for (size_t i = 0; listed->texts != NULL && i < listed->count; i++) {
        free(listed->texts[i]);
    }
    free(listed->texts);
    free(listed->entries);
}

/* The tables of a manifest, with the digests that it says they have. */
static rps_status
list_tables(struct listed_tables *listed, const struct rps_ckpt_link *link,
        struct rps_error *error)
{
    const struct rps_ckpt_manifest *manifest = &link->manifest;

    listed->count = manifest->table_count;
    listed->entries = calloc(listed->count + 1, sizeof(*listed->entries));
    listed->texts = calloc(listed->count + 1, sizeof(*listed->texts));
    for (size_t i = 0; listed->entries != NULL && listed->texts != NULL &&
                       i < listed->count;
            i++) {
        listed->texts[i] = rps_spec_to_json(&manifest->tables[i].written);
        if (listed->texts[i] == NULL) {
            break;
        }
        listed->entries[i] =
                (struct rps_digest_entry){.name = manifest->tables[i].spec.name,
                        .spec_json = listed->texts[i],
                        .digest = manifest->tables[i].digest};
    }
    if (listed->entries == NULL || listed->texts == NULL ||
            (listed->count > 0 && listed->texts[listed->count - 1] == NULL)) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", link->folder.path);
    }
    return RPS_OK;
}

/* What the parts were found to have adds up to the manifest's tables (that was
 * checked when they were read), and these to its digest. */
static rps_status
verify_link_digest(const struct rps_ckpt_link *link, struct rps_error *error)
{
    struct listed_tables listed = {.count = 0};
    rps_status status = list_tables(&listed, link, error);

    if (status == RPS_OK &&
            !rps_digest_equal(link->manifest.digest,
                    rps_digest_checkpoint(listed.entries, listed.count))) {
        status = rps_fail(error, RPS_E_CORRUPT,
                "%s/%s: its digest is not the one of its tables",
                link->folder.path, RPS_CKPT_MANIFEST);
    }
    listed_finish(&listed);
    return status;
}

static rps_status
verify_link(struct verify *v, const struct rps_ckpt_link *link,
        struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (uint32_t i = 0; i < link->manifest.part_count && status == RPS_OK;
            i++) {
        status = verify_part(v, link, i, error);
    }
    return status == RPS_OK ? verify_link_digest(link, error) : status;
}

/* What the state of a table is: of a full checkpoint what was just read. */
static rps_status
report_table(struct verify *v, const struct rps_ckpt_table *table,
        struct rps_checkpoint_table_report *out, struct rps_error *error)
{
    const struct rps_ckpt_link *last = rps_ckpt_chain_last(&v->chain);
    struct sum sum = {.v = v,
            .slot_floats = rps_spec_slot_floats(&table->spec),
            .is_replay = true};
    const struct rps_ckpt_replay replay = {.chain = &v->chain,
            .table = table->spec.name,
            .slot_last = RPS_SLOT_COUNT - 1,
            .advance = advance,
            .context = v};
    rps_status status = RPS_OK;

    snprintf(out->name, sizeof(out->name), "%s", table->spec.name);
    for (uint32_t i = 0; i < last->manifest.part_count; i++) {
        const struct rps_ckpt_part *part = &last->parts[i];
        size_t at = rps_ckpt_table_find(
                part->tables, part->table_count, table->spec.name);

        out->admission +=
                at < part->table_count ? part->tables[at].admission : 0;
    }
    if (v->chain.count == 1) {
        out->rows = table->rows;
        out->digest = table->digest;
    } else {
        status = rps_ckpt_replay_rows(&replay, add_batch, &sum, error);
        out->rows = sum.rows;
        out->digest = sum.digest;
    }
    out->matches = status == RPS_OK;
    return status;
}

static rps_status
report_digest(struct verify *v, struct rps_error *error)
{
    struct rps_checkpoint_report *report = v->report;
    struct listed_tables listed = {.count = 0};
    rps_status status =
            list_tables(&listed, rps_ckpt_chain_last(&v->chain), error);

    for (size_t i = 0; i < listed.count && status == RPS_OK; i++) {
        listed.entries[i].digest = report->tables[i].digest;
    }
    if (status == RPS_OK) {
        report->digest = rps_digest_checkpoint(listed.entries, listed.count);
        report->matches = true;
    }
    listed_finish(&listed);
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

static struct rps_checkpoint_link_report
report_link(const struct rps_ckpt_link *link)
{
    const struct rps_ckpt_manifest *manifest = &link->manifest;
    struct rps_checkpoint_link_report out = {.step = manifest->step,
            .epoch = manifest->epoch,
            .parts = manifest->part_count,
            .is_delta = manifest->is_delta,
            .digest = manifest->digest};

    for (uint32_t i = 0; i < manifest->part_count; i++) {
        out.bytes += listed_bytes(&link->parts[i]) + manifest->parts[i].bytes;
    }
    for (size_t i = 0; i < manifest->table_count; i++) {
        out.rows += manifest->tables[i].rows;
        out.erased += manifest->tables[i].erased;
    }
    return out;
}

/* What will be read: a delta's rows twice, to find which of them count. */
static void
count_bytes(struct verify *v)
{
    const struct rps_ckpt_manifest *manifest =
            &rps_ckpt_chain_last(&v->chain)->manifest;

    for (uint32_t i = 0; i < v->chain.count; i++) {
        v->report->bytes += v->report->links[i].bytes;
    }
    v->total = v->report->bytes;
    for (size_t i = 0; i < manifest->table_count && v->chain.count > 1; i++) {
        const struct rps_ckpt_replay replay = {.chain = &v->chain,
                .table = manifest->tables[i].spec.name,
                .slot_last = RPS_SLOT_COUNT - 1};

        v->total += rps_ckpt_replay_bytes(&replay);
    }
}

static rps_status
report_links(struct verify *v, struct rps_error *error)
{
    struct rps_checkpoint_report *report = v->report;
    const struct rps_ckpt_manifest *manifest =
            &rps_ckpt_chain_last(&v->chain)->manifest;

    report->step = manifest->step;
    report->links = calloc(v->chain.count, sizeof(*report->links));
    report->tables = calloc(manifest->table_count + 1, sizeof(*report->tables));
    if (report->links == NULL || report->tables == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the report");
    }
    for (uint32_t i = 0; i < v->chain.count; i++) {
        report->links[report->link_count++] = report_link(&v->chain.links[i]);
    }
    count_bytes(v);
    return RPS_OK;
}

static rps_status
verify_all(struct verify *v, const char *path, struct rps_error *error)
{
    struct rps_checkpoint_report *report = v->report;
    const struct rps_ckpt_manifest *manifest;
    rps_status status = rps_ckpt_chain_open_folder(&v->chain, path, error);

    if (status == RPS_OK) {
        status = rps_ckpt_chain_read_parts(&v->chain, 0, 0, error);
    }
    if (status == RPS_OK) {
        status = report_links(v, error);
    }
    for (uint32_t i = 0; i < v->chain.count && status == RPS_OK; i++) {
        status = verify_link(v, &v->chain.links[i], error);
    }
    if (status != RPS_OK) {
        return status;
    }
    manifest = &rps_ckpt_chain_last(&v->chain)->manifest;
    for (size_t i = 0; i < manifest->table_count && status == RPS_OK; i++) {
        status = report_table(
                v, &manifest->tables[i], &report->tables[i], error);
        report->table_count++;
    }
    if (status == RPS_OK) {
        status = report_digest(v, error);
    }
    if (status == RPS_OK) {
        advance(v, v->total - v->done);
    }
    return status;
}

rps_status
rps_checkpoint_verify(const char *path,
        void (*progress)(void *context, uint64_t done, uint64_t total),
        void *context, struct rps_checkpoint_report *report,
        struct rps_error *error)
{
    struct verify v = {
            .report = report, .progress = progress, .context = context};
    char *folder = NULL;
    rps_status status;

    memset(report, 0, sizeof(*report));
    status = rps_ckpt_find(path, &folder, error);
    if (status == RPS_OK) {
        status = verify_all(&v, folder, error);
        /* the folder is there: what it lacks, and a parent that is another,
         * is damage */
        if (status == RPS_E_NOT_FOUND || status == RPS_E_MISMATCH) {
            status = RPS_E_CORRUPT;
        }
    }
    rps_ckpt_chain_close(&v.chain);
    free(folder);
    return status;
}

void
rps_checkpoint_report_finish(struct rps_checkpoint_report *report)
{
    free(report->tables);
    free(report->links);
    memset(report, 0, sizeof(*report));
}
