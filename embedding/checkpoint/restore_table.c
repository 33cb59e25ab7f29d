/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table restored: the pieces of its chain, oldest first, written into a
 * table that nobody else has yet, by several threads.
 */
#include "base/half.h"
#include "base/hash.h"
#include "base/spec.h"
#include "embedding/checkpoint/admission.h"
#include "embedding/checkpoint/crew.h"
#include "embedding/checkpoint/keys.h"
#include "embedding/checkpoint/restore.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/** Of one piece. */
struct sink {
    struct rps_ckpt_restoring *r;
    const struct rps_ckpt_wanted *wanted;
    const struct rps_ckpt_piece *piece;
    struct rps_table *table;
    uint32_t slot_floats; /* in the file */
    uint64_t kept;        /* r->lock; rows written */
};

static void
add_progress(struct sink *sink, uint64_t rows, uint64_t kept)
{
    struct rps_ckpt_restoring *r = sink->r;
    const struct rps_restore *how = r->how;

    pthread_mutex_lock(&r->lock);
    r->rows_read += rows;
    sink->kept += kept;
    if (how->progress != NULL) {
        how->progress(how->context, r->rows_read, r->rows_total);
    }
    pthread_mutex_unlock(&r->lock);
}

/* `hash` with the job seed of the checkpoint. */
static bool
is_ours(const struct sink *sink, uint64_t key, uint64_t hash)
{
    const struct rps_ckpt_restoring *r = sink->r;

    if (!rps_ckpt_slots_has(&sink->piece->live, rps_hash_slot(hash))) {
        return false;
    }
    if (!r->same_seed) {
        hash = rps_key_hash(key, rps_store_job_seed(r->store));
    }
    return r->how->owns(r->how->context, hash);
}

/* Keep the rows that this PS owns, in place. */
static size_t
keep_owned(const struct sink *sink, struct rps_ckpt_batch *batch)
{
    size_t value_bytes = batch->value_bytes;
    size_t slot_bytes = sink->slot_floats * sizeof(float);
    size_t kept = 0;

    for (size_t i = 0; i < batch->n; i++) {
        if (!is_ours(sink, batch->keys[i], batch->hashes[i])) {
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

static float
widen(enum rps_value type, const char *value)
{
    uint16_t half;
    float wide;

    if (type == RPS_VALUE_F32) {
        memcpy(&wide, value, sizeof(wide));
        return wide;
    }
    memcpy(&half, value, sizeof(half));
    return type == RPS_VALUE_F16 ? rps_float_of_f16(half)
                                 : rps_float_of_bf16(half);
}

/* Another value type: through f32, which holds all of them exactly. */
static rps_status
write_converted(const struct sink *sink, const struct rps_ckpt_batch *batch,
        size_t kept, const float *slots, const uint32_t *meta,
        struct rps_error *error)
{
    const rps_table_spec *from = &sink->piece->table->spec;
    const size_t n = kept * from->dim;
    const size_t item = batch->value_bytes / from->dim;
    float *rows = calloc(n, sizeof(*rows));
    rps_status status;

    if (rows == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory to convert its rows");
    }
    for (size_t i = 0; i < n; i++) {
        rows[i] = widen(from->value_dtype, batch->values + i * item);
    }
    status = rps_table_assign(
            sink->table, kept, batch->keys, rows, slots, meta, error);
    free(rows);
    return status;
}

static rps_status
write_rows(const struct sink *sink, const struct rps_ckpt_batch *batch,
        size_t kept, struct rps_error *error)
{
    const bool slots = sink->wanted->slots && sink->slot_floats > 0;
    const bool meta = !sink->r->how->begins;

    return sink->piece->table->spec.value_dtype ==
                           sink->wanted->spec.value_dtype
                   ? rps_table_restore_rows(sink->table, kept, batch->keys,
                             batch->values, slots ? batch->slots : NULL,
                             meta ? batch->meta : NULL, error)
                   : write_converted(sink, batch, kept,
                             slots ? batch->slots : NULL,
                             meta ? batch->meta : NULL, error);
}

/* The checksums hold, so INVAL and NONFINITE are the words of a false file;
 * but a shorter type may not hold what a longer one did. */
static rps_status
say_whose(const struct sink *sink, rps_status status,
        const struct rps_error *cause, struct rps_error *error)
{
    const struct rps_ckpt_table *table = sink->piece->table;
    const bool is_false =
            status == RPS_E_INVAL ||
            (status == RPS_E_NONFINITE &&
                    table->spec.value_dtype == sink->wanted->spec.value_dtype);

    return rps_fail(error, is_false ? RPS_E_CORRUPT : status,
            "%s: table %s: %s", sink->piece->folder->path, table->spec.name,
            cause->text);
}

/* Threads: several at once. */
static rps_status
assign_batch(
        void *context, struct rps_ckpt_batch *batch, struct rps_error *error)
{
    struct sink *sink = context;
    struct rps_error cause = {""};
    const size_t kept = keep_owned(sink, batch);
    const rps_status status =
            kept == 0 ? RPS_OK : write_rows(sink, batch, kept, &cause);

    add_progress(sink, batch->n, kept);
    return status == RPS_OK ? RPS_OK : say_whose(sink, status, &cause, error);
}

static rps_status
erase_keys(void *context, struct rps_ckpt_keys *keys, struct rps_error *error)
{
    const struct sink *sink = context;
    size_t kept = 0;

    (void)error;
    for (size_t i = 0; i < keys->n; i++) {
        if (is_ours(sink, keys->keys[i], keys->hashes[i])) {
            keys->keys[kept++] = keys->keys[i];
        }
    }
    (void)rps_table_erase(sink->table, kept, keys->keys);
    return RPS_OK;
}

bool
rps_ckpt_piece_matters(
        const struct rps_ckpt_restoring *r, const struct rps_ckpt_piece *piece)
{
    const struct rps_restore *how = r->how;

    for (uint32_t s = piece->part->slot_first; s <= piece->part->slot_last;
            s++) {
        if (rps_ckpt_slots_has(&piece->live, s) &&
                (!r->same_seed || how->owns(how->context, (uint64_t)s << 52))) {
            return true;
        }
    }
    return false;
}

/* Every row of a piece is a new one then: a key that is there twice shows. */
static rps_status
check_count(const struct sink *sink, uint64_t before, struct rps_error *error)
{
    struct rps_table_stats stats;

    rps_table_stats_of(sink->table, &stats);
    return stats.rows - before == sink->kept
                   ? RPS_OK
                   : rps_fail(error, RPS_E_CORRUPT,
                             "%s: table %s: %" PRIu64 " rows, but %" PRIu64
                             " different keys",
                             sink->piece->folder->path,
                             sink->piece->table->spec.name, sink->kept,
                             stats.rows - before);
}

/* What the piece erased goes, then what it has anew, then its rows come. */
static rps_status
read_piece(struct sink *sink, struct rps_error *error)
{
    const struct rps_ckpt_piece *piece = sink->piece;
    const struct rps_ckpt_link *link = &sink->r->chain.links[piece->link];
    const struct rps_ckpt_scan scan = {.folder = piece->folder,
            .part = piece->part,
            .table = piece->table,
            .job_seed = link->manifest.job_seed,
            .batch = assign_batch,
            .context = sink,
            .workers = rps_ckpt_crew_usual()};
    struct rps_table_stats stats;
    rps_status status = RPS_OK;

    if (!piece->table->whole) {
        status = rps_ckpt_erased_scan(&scan, erase_keys, error);
        if (status == RPS_OK) {
            status = rps_ckpt_keys_scan(&scan, erase_keys, error);
        }
    }
    rps_table_stats_of(sink->table, &stats);
    if (status == RPS_OK) {
        status = rps_ckpt_scan_table(&scan, error);
    }
    return status == RPS_OK ? check_count(sink, stats.rows, error) : status;
}

static rps_status
read_pieces(struct rps_ckpt_restoring *r, const struct rps_ckpt_wanted *wanted,
        struct rps_table *table, struct rps_error *error)
{
    struct rps_ckpt_piece *pieces = NULL;
    size_t count = 0;
    rps_status status = rps_ckpt_chain_pieces(
            &r->chain, wanted->entry->spec.name, &pieces, &count, error);

    if (status == RPS_OK) {
        rps_table_expect(table, rps_ckpt_rows_expected(r, pieces, count));
    }
    for (size_t i = 0; i < count && status == RPS_OK; i++) {
        struct sink sink = {.r = r,
                .wanted = wanted,
                .piece = &pieces[i],
                .table = table,
                .slot_floats = rps_spec_slot_floats(&pieces[i].table->spec)};

        if (rps_ckpt_piece_matters(r, &pieces[i])) {
            status = read_piece(&sink, error);
        }
    }
    free(pieces);
    return status;
}

/** Of a part of the last link. */
struct counts_sink {
    const struct rps_ckpt_restoring *r;
    const char *path;
    struct rps_table *table;
};

/* Counts go where their keys' rows would go. */
static rps_status
take_counts(
        void *context, struct rps_ckpt_counts *counts, struct rps_error *error)
{
    const struct counts_sink *sink = context;
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
            "%s: table %s: %s", sink->path,
            rps_table_spec_of(sink->table)->name, cause.text);
}

/* Each link has all of them, so the last one's count. */
static rps_status
read_counts(struct rps_ckpt_restoring *r, const struct rps_ckpt_wanted *wanted,
        struct rps_table *table, struct rps_error *error)
{
    const struct rps_ckpt_link *last = rps_ckpt_chain_last(&r->chain);
    struct counts_sink sink = {r, last->folder.path, table};
    rps_status status = RPS_OK;

    for (uint32_t i = 0; i < last->manifest.part_count && status == RPS_OK;
            i++) {
        const struct rps_ckpt_part *part = &last->parts[i];
        const size_t at = rps_ckpt_table_find(
                part->tables, part->table_count, wanted->entry->spec.name);

        if (at < part->table_count) {
            const struct rps_ckpt_scan scan = {.folder = &last->folder,
                    .part = part,
                    .table = &part->tables[at],
                    .job_seed = last->manifest.job_seed,
                    .context = &sink};

            status = rps_ckpt_admission_scan(&scan, take_counts, error);
        }
    }
    return status;
}

/* t of async: this PS's own count where the number of PS is the same. */
static uint64_t
pushes_of(struct rps_ckpt_restoring *r, const char *name)
{
    const struct rps_ckpt_link *last = rps_ckpt_chain_last(&r->chain);
    const bool same = r->how->parts == last->manifest.part_count;
    uint64_t pushes = 0;

    for (uint32_t i = 0; i < last->manifest.part_count; i++) {
        const struct rps_ckpt_part *part = &last->parts[i];
        const size_t at =
                rps_ckpt_table_find(part->tables, part->table_count, name);

        if (at < part->table_count && (!same || i == r->how->part) &&
                part->tables[at].pushes > pushes) {
            pushes = part->tables[at].pushes;
        }
    }
    return pushes;
}

static rps_status
fill_table(struct rps_ckpt_restoring *r, const struct rps_ckpt_wanted *wanted,
        struct rps_table *table, struct rps_error *error)
{
    rps_status status;

    rps_table_set_now(table, r->how->now);
    status = read_pieces(r, wanted, table, error);
    if (status == RPS_OK && wanted->counts) {
        status = read_counts(r, wanted, table, error);
    }
    if (status == RPS_OK && wanted->slots) {
        rps_table_set_pushes(table, pushes_of(r, wanted->entry->spec.name));
    }
    return status;
}

rps_status
rps_ckpt_restore_table(struct rps_ckpt_restoring *r,
        const struct rps_ckpt_wanted *wanted, struct rps_error *error)
{
    const struct rps_restore *how = r->how;
    struct rps_table *table = NULL;
    rps_status status = rps_table_create(
            &table, &wanted->spec, rps_store_job_seed(r->store), error);

    if (status == RPS_OK &&
            rps_store_begin_restored(r->store, table) != RPS_OK) {
        status = rps_fail(error, RPS_E_NOMEM,
                "table %s: no memory to restore it", wanted->spec.name);
    }
    if (status == RPS_OK) {
        status = fill_table(r, wanted, table, error);
    }
    if (status == RPS_OK) {
        status = rps_store_add_restored(r->store, table);
        if (status != RPS_OK) {
            rps_fail(error, status, "%s: table %s cannot be added (%s)",
                    how->dir, wanted->spec.name, rps_status_str(status));
        }
    }
    if (status != RPS_OK) {
        rps_table_destroy(table);
        return status;
    }
    if (how->told != NULL) {
        how->told(how->context, wanted->spec.name, wanted->entry->spec.name,
                wanted->slots || rps_spec_slot_floats(&wanted->spec) == 0);
    }
    return RPS_OK;
}
