/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of deltas into a table that lookups read meanwhile. A row that stays
 * is overwritten and never absent in between, unlike in a restore.
 */
#include "embedding/checkpoint/follow_rows.h"

#include "embedding/checkpoint/crew.h"
#include "embedding/checkpoint/keys.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Lookups want the other processors. */
#define WORKERS_MAX 2u

/** Keys that leave, ascending. */
struct leaving {
    uint64_t *keys; /* owned [room] */
    bool *stays;    /* owned [room] */
    size_t n;
    size_t room;
};

/** Of one piece. */
struct sink {
    struct rps_ckpt_patch *patch;
    const struct rps_ckpt_piece *piece;
    struct leaving leaving;
};

static bool
is_ours(const struct sink *sink, uint64_t hash)
{
    const struct rps_restore *how = sink->patch->r->how;

    return rps_ckpt_slots_has(&sink->piece->live, rps_hash_slot(hash)) &&
           how->owns(how->context, hash);
}

static rps_status
say_whose(const struct sink *sink, rps_status status, const char *why,
        struct rps_error *error)
{
    return rps_fail(error,
            status == RPS_E_INVAL || status == RPS_E_NONFINITE ? RPS_E_CORRUPT
                                                               : status,
            "%s: table %s: %.600s", sink->piece->folder->path,
            sink->piece->table->spec.name, why);
}

/* In place; the slots of the optimizer are not looked at. */
static size_t
keep_owned(const struct sink *sink, struct rps_ckpt_batch *batch)
{
    size_t kept = 0;

    for (size_t i = 0; i < batch->n; i++) {
        if (!is_ours(sink, batch->hashes[i])) {
            continue;
        }
        if (kept < i) {
            batch->keys[kept] = batch->keys[i];
            batch->meta[kept] = batch->meta[i];
            memcpy(batch->values + kept * batch->value_bytes,
                    batch->values + i * batch->value_bytes, batch->value_bytes);
        }
        kept++;
    }
    return kept;
}

/* Threads: several at once. */
static rps_status
count_new(void *context, struct rps_ckpt_batch *batch, struct rps_error *error)
{
    struct sink *sink = context;
    struct rps_ckpt_patch *patch = sink->patch;
    const rps_table_spec *spec = rps_table_spec_of(patch->table);
    const size_t kept = keep_owned(sink, batch);
    float *rows;
    size_t found;

    if (!patch->counts_new || kept == 0) {
        return RPS_OK;
    }
    rows = malloc(kept * spec->dim * sizeof(*rows));
    if (rows == NULL) {
        return say_whose(sink, RPS_E_NOMEM, "no memory for its rows", error);
    }
    found = rps_table_read(
            patch->table, kept, batch->keys, rows, NULL, batch->meta);
    free(rows);
    pthread_mutex_lock(&patch->r->lock);
    patch->new_rows += kept - found;
    pthread_mutex_unlock(&patch->r->lock);
    return RPS_OK;
}

static rps_status
write_batch(
        void *context, struct rps_ckpt_batch *batch, struct rps_error *error)
{
    struct sink *sink = context;
    struct rps_ckpt_patch *patch = sink->patch;
    struct rps_error why = {.text = ""};
    const size_t kept = keep_owned(sink, batch);
    const rps_status status = rps_table_restore_rows(patch->table, kept,
            batch->keys, batch->values, NULL, batch->meta, &why);

    pthread_mutex_lock(&patch->r->lock);
    patch->written += kept;
    pthread_mutex_unlock(&patch->r->lock);
    return status == RPS_OK ? RPS_OK : say_whose(sink, status, why.text, error);
}

static rps_status
pass_keys(void *context, struct rps_ckpt_keys *keys, struct rps_error *error)
{
    (void)context;
    (void)keys;
    (void)error;
    return RPS_OK;
}

static rps_status
collect_leaving(
        void *context, struct rps_ckpt_keys *keys, struct rps_error *error)
{
    struct sink *sink = context;
    struct leaving *leaving = &sink->leaving;

    (void)error;
    for (size_t i = 0; i < keys->n && leaving->n < leaving->room; i++) {
        if (is_ours(sink, keys->hashes[i])) {
            leaving->keys[leaving->n++] = keys->keys[i];
        }
    }
    return RPS_OK;
}

static int
by_key(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a;
    const uint64_t right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

/* It was made again: it stays. */
static rps_status
mark_staying(void *context, struct rps_ckpt_keys *keys, struct rps_error *error)
{
    struct leaving *leaving = &((struct sink *)context)->leaving;

    (void)error;
    for (size_t i = 0; i < keys->n; i++) {
        const uint64_t *at = bsearch(&keys->keys[i], leaving->keys, leaving->n,
                sizeof(*leaving->keys), by_key);

        if (at != NULL) {
            leaving->stays[at - leaving->keys] = true;
        }
    }
    return RPS_OK;
}

static void
erase_leaving(struct sink *sink)
{
    struct leaving *leaving = &sink->leaving;
    size_t n = 0;

    for (size_t i = 0; i < leaving->n; i++) {
        if (!leaving->stays[i]) {
            leaving->keys[n++] = leaving->keys[i];
        }
    }
    (void)rps_table_erase(sink->patch->table, n, leaving->keys);
}

static struct rps_ckpt_scan
scan_of(struct sink *sink)
{
    const struct rps_ckpt_piece *piece = sink->piece;
    const uint32_t usual = rps_ckpt_crew_usual();

    return (struct rps_ckpt_scan){.folder = piece->folder,
            .part = piece->part,
            .table = piece->table,
            .job_seed = rps_ckpt_chain_last(&sink->patch->r->chain)
                                ->manifest.job_seed,
            .context = sink,
            .workers = usual < WORKERS_MAX ? usual : WORKERS_MAX};
}

/* Duplicates in the file do no harm: they are sorted side by side, and the
 * first that is found is marked, so that bsearch must not see two. */
static void
drop_doubles(struct leaving *leaving)
{
    size_t n = 0;

    if (leaving->n > 0) {
        qsort(leaving->keys, leaving->n, sizeof(*leaving->keys), by_key);
    }
    for (size_t i = 0; i < leaving->n; i++) {
        if (n == 0 || leaving->keys[n - 1] != leaving->keys[i]) {
            leaving->keys[n++] = leaving->keys[i];
        }
    }
    leaving->n = n;
}

static rps_status
write_leaving(struct sink *sink, struct rps_error *error)
{
    const struct rps_ckpt_scan scan = scan_of(sink);
    struct leaving *leaving = &sink->leaving;
    rps_status status = RPS_E_NOMEM;

    leaving->room = sink->piece->table->erased;
    leaving->keys = calloc(leaving->room, sizeof(*leaving->keys));
    leaving->stays = calloc(leaving->room, sizeof(*leaving->stays));
    if (leaving->keys == NULL || leaving->stays == NULL) {
        (void)say_whose(sink, status, "no memory for its erased keys", error);
    } else {
        status = rps_ckpt_erased_scan(&scan, collect_leaving, error);
    }
    if (status == RPS_OK) {
        drop_doubles(leaving);
        status = rps_ckpt_keys_scan(&scan, mark_staying, error);
    }
    if (status == RPS_OK) {
        erase_leaving(sink);
    }
    free(leaving->keys);
    free(leaving->stays);
    return status;
}

rps_status
rps_ckpt_patch_check(struct rps_ckpt_patch *patch, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (size_t i = 0; i < patch->count && status == RPS_OK; i++) {
        struct sink sink = {.patch = patch, .piece = &patch->pieces[i]};
        struct rps_ckpt_scan scan = scan_of(&sink);

        scan.batch = count_new;
        status = rps_ckpt_scan_table(&scan, error);
        if (status == RPS_OK && sink.piece->table->erased > 0) {
            status = rps_ckpt_erased_scan(&scan, pass_keys, error);
        }
    }
    return status;
}

rps_status
rps_ckpt_patch_write(struct rps_ckpt_patch *patch, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (size_t i = 0; i < patch->count && status == RPS_OK; i++) {
        struct sink sink = {.patch = patch, .piece = &patch->pieces[i]};
        struct rps_ckpt_scan scan = scan_of(&sink);

        scan.batch = write_batch;
        status = rps_ckpt_scan_table(&scan, error);
        if (status == RPS_OK && sink.piece->table->erased > 0) {
            status = write_leaving(&sink, error);
        }
    }
    return status;
}
