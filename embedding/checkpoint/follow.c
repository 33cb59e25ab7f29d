/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what is loaded and what is written in place, and that all of it was
 * read before the first row changes. follow_rows.c writes rows.
 */
#include "embedding/checkpoint/follow.h"

#include "base/spec.h"
#include "embedding/budget.h"
#include "embedding/checkpoint/follow_rows.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A row's share of the index, at the fullest that it grows at. */
#define INDEX_BYTES 28u

struct rps_advance {
    struct rps_restore how;
    struct rps_ckpt_restoring r; /* r.store: what is loaded beside */
    struct rps_store *store;     /* the living one */
    struct rps_budget *budget;
    struct rps_ckpt_patch *patches; /* owned [patch_count] */
    size_t patch_count;
    struct rps_table **gone; /* owned [gone_room]: to be destroyed */
    size_t gone_count;
    uint32_t first_link; /* behind what is held */
    uint64_t rows;
};

void
rps_checkpoint_served_spec(const rps_table_spec *spec, rps_table_spec *to)
{
    rps_table_spec_init(to, spec->name, spec->dim, RPS_OPTIMIZER_SGD);
    to->value_dtype = spec->value_dtype;
    to->key_dtype = spec->key_dtype;
    to->device_vocabulary_size = spec->device_vocabulary_size;
    to->seed = spec->seed;
    to->dense_elements = spec->dense_elements;
    to->initializer = spec->initializer;
    to->initializer_low = spec->initializer_low;
    to->initializer_high = spec->initializer_high;
    to->default_value = spec->default_value;
}

static struct rps_restore
restore_of(const struct rps_follow *follow, uint64_t step)
{
    return (struct rps_restore){.dir = follow->dir,
            .step = step,
            .part = follow->part,
            .parts = follow->parts,
            .owns = follow->owns,
            .context = follow->context,
            .weights_only = true,
            .now = {.step = step}};
}

static rps_status
check_seed(const struct rps_ckpt_chain *chain, uint64_t seed,
        struct rps_error *error)
{
    const struct rps_ckpt_link *last = &chain->links[chain->count - 1];

    return last->manifest.job_seed == seed
                   ? RPS_OK
                   : rps_fail(error, RPS_E_MISMATCH,
                             "%s: saved with job seed %" PRIu64
                             ", this server has --job-seed %" PRIu64,
                             last->folder.path, last->manifest.job_seed, seed);
}

/* --- memory --------------------------------------------------------------- */

/* Of the piece's rows, those of slots of this PS: keys spread evenly. */
static uint64_t
rows_of_piece(const struct rps_restore *how, const struct rps_ckpt_piece *piece)
{
    const struct rps_ckpt_part *part = piece->part;
    const uint64_t slots = part->slot_last - part->slot_first + 1;
    uint64_t own = 0;

    for (uint32_t s = part->slot_first; s <= part->slot_last; s++) {
        own += rps_ckpt_slots_has(&piece->live, s) &&
               how->owns(how->context, (uint64_t)s << 52);
    }
    return (uint64_t)((double)piece->table->rows * (double)own / (double)slots);
}

static uint64_t
bytes_of_rows(const rps_table_spec *spec, uint64_t rows)
{
    return rows * (rps_spec_row_bytes(spec) + INDEX_BYTES);
}

/* What a table takes that is read from the first link on, at least about: of
 * the rows of deltas nobody knows yet which are new. */
static rps_status
table_bytes(const struct rps_ckpt_restoring *r, const rps_table_spec *spec,
        uint64_t *bytes, struct rps_error *error)
{
    struct rps_ckpt_piece *pieces = NULL;
    size_t count = 0;
    uint64_t rows = 0;
    rps_status status = rps_ckpt_chain_pieces(
            &r->chain, spec->name, &pieces, &count, error);

    for (size_t i = 0; i < count; i++) {
        rows += pieces[i].table->whole ? rows_of_piece(r->how, &pieces[i]) : 0;
    }
    free(pieces);
    *bytes += bytes_of_rows(spec, rows);
    return status;
}

static rps_status
check_fits(const struct rps_budget *budget, const char *path, uint64_t bytes,
        struct rps_error *error)
{
    const uint64_t left = rps_budget_left(budget);

    return bytes <= left
                   ? RPS_OK
                   : rps_fail(error, RPS_E_LIMIT,
                             "%s: takes about %" PRIu64
                             " bytes beside what is held, and the memory limit "
                             "leaves %" PRIu64,
                             path, bytes, left);
}

/* --- load ----------------------------------------------------------------- */

static rps_status
plan_load(struct rps_ckpt_restoring *r, const struct rps_budget *budget,
        rps_table_spec *specs, struct rps_restore_table *tables,
        struct rps_error *error)
{
    const struct rps_ckpt_link *last = rps_ckpt_chain_last(&r->chain);
    const struct rps_ckpt_manifest *manifest = &last->manifest;
    uint64_t bytes = 0;
    rps_status status = RPS_OK;

    for (size_t i = 0; i < manifest->table_count && status == RPS_OK; i++) {
        rps_checkpoint_served_spec(&manifest->tables[i].spec, &specs[i]);
        tables[i] = (struct rps_restore_table){.spec = &specs[i]};
        status = table_bytes(r, &specs[i], &bytes, error);
    }
    return status == RPS_OK
                   ? check_fits(budget, last->folder.path, bytes, error)
                   : status;
}

static rps_status
open_chain(struct rps_ckpt_restoring *r, uint64_t seed, struct rps_error *error)
{
    const struct rps_restore *how = r->how;
    rps_status status =
            rps_ckpt_chain_open(&r->chain, how->dir, how->step, error);

    if (status == RPS_OK) {
        status = check_seed(&r->chain, seed, error);
        r->same_seed = true;
    }
    if (status == RPS_OK) {
        status = rps_ckpt_chain_read_parts(
                &r->chain, how->part, how->parts, error);
    }
    if (status != RPS_OK) {
        rps_ckpt_chain_close(&r->chain);
    }
    return status;
}

static rps_status
load_planned(struct rps_restore *how, const struct rps_budget *budget,
        struct rps_store *store, struct rps_held *held, struct rps_error *error)
{
    struct rps_ckpt_restoring r = {.how = how};
    struct rps_lane_record *lanes = NULL;
    struct rps_restore_table *tables = NULL;
    rps_table_spec *specs = NULL;
    json_t *manifest = NULL;
    size_t count = 0;
    rps_status status = open_chain(&r, rps_store_job_seed(store), error);

    if (status != RPS_OK) {
        return status;
    }
    const struct rps_ckpt_manifest *last =
            &rps_ckpt_chain_last(&r.chain)->manifest;
    const struct rps_ckpt_head head = rps_ckpt_head_of(last);

    count = last->table_count;
    specs = calloc(count + 1, sizeof(*specs));
    tables = calloc(count + 1, sizeof(*tables));
    status = specs == NULL || tables == NULL
                     ? rps_fail(error, RPS_E_NOMEM, "%s: no memory", how->dir)
                     : plan_load(&r, budget, specs, tables, error);
    rps_ckpt_chain_close(&r.chain);
    if (status == RPS_OK) {
        how->tables = tables;
        how->table_count = count;
        status = rps_checkpoint_restore(
                how, store, &manifest, &lanes, &count, error);
    }
    if (status == RPS_OK) {
        *held = (struct rps_held){.step = head.step,
                .epoch = head.epoch,
                .is_delta = head.is_delta,
                .digest = head.digest};
    }
    json_decref(manifest);
    free(lanes);
    free(tables);
    free(specs);
    return status;
}

rps_status
rps_checkpoint_serve(const struct rps_follow *follow, uint64_t step,
        struct rps_store *store, struct rps_held *held_out,
        struct rps_error *error)
{
    struct rps_restore how = restore_of(follow, step);
    rps_status status =
            load_planned(&how, follow->budget, store, held_out, error);

    if (status == RPS_OK) {
        for (size_t i = 0; i < rps_store_count(store); i++) {
            struct rps_table_stats stats;

            rps_table_stats_of(rps_store_at(store, i), &stats);
            held_out->rows += stats.rows;
        }
    }
    return status;
}

/* --- advance -------------------------------------------------------------- */

/* The link that is held; chain.count: none. */
static uint32_t
find_held(const struct rps_ckpt_chain *chain, const struct rps_held *held)
{
    uint32_t i = 0;

    while (i < chain->count) {
        const struct rps_ckpt_head head =
                rps_ckpt_head_of(&chain->links[i].manifest);

        if (head.step == held->step && head.epoch == held->epoch &&
                (rps_digest_equal(head.digest, held->digest) ||
                        (head.is_folded &&
                                rps_digest_equal(head.folded, held->digest)))) {
            break;
        }
        i++;
    }
    return i;
}

static bool
specs_equal(const rps_table_spec *a, const rps_table_spec *b)
{
    return rps_spec_identity_differs(a, b) == NULL &&
           rps_spec_policy_differs(a, b) == NULL;
}

/* A part that is whole says no key that is gone: the table is read anew. A
 * dense table has all of its keys always. */
static bool
is_replaced(const struct rps_advance *advance,
        const struct rps_ckpt_piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].link >= advance->first_link && pieces[i].table->whole &&
                pieces[i].table->spec.dense_elements == 0 &&
                rps_ckpt_piece_matters(&advance->r, &pieces[i])) {
            return true;
        }
    }
    return false;
}

static rps_status
load_beside(struct rps_advance *advance, const struct rps_ckpt_table *entry,
        const rps_table_spec *spec, struct rps_error *error)
{
    const struct rps_ckpt_wanted wanted = {.spec = *spec, .entry = entry};
    uint64_t bytes = 0;
    rps_status status = table_bytes(&advance->r, spec, &bytes, error);

    if (status == RPS_OK) {
        status = check_fits(advance->budget,
                rps_ckpt_chain_last(&advance->r.chain)->folder.path, bytes,
                error);
    }
    return status == RPS_OK
                   ? rps_ckpt_restore_table(&advance->r, &wanted, error)
                   : status;
}

/* Takes the pieces. */
static rps_status
plan_patch(struct rps_advance *advance, struct rps_table *table,
        struct rps_ckpt_piece *pieces, size_t count, struct rps_error *error)
{
    struct rps_ckpt_patch *patch = &advance->patches[advance->patch_count++];
    const rps_table_spec *spec = rps_table_spec_of(table);
    const uint64_t left = rps_budget_left(advance->budget);
    uint64_t rows = 0;

    *patch = (struct rps_ckpt_patch){
            .r = &advance->r, .table = table, .pieces = pieces};
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].link >= advance->first_link &&
                rps_ckpt_piece_matters(&advance->r, &pieces[i])) {
            pieces[patch->count++] = pieces[i];
            rows += rows_of_piece(advance->r.how, &pieces[i]);
        }
    }
    patch->counts_new = bytes_of_rows(spec, rows) > left;
    return rps_ckpt_patch_check(patch, error);
}

static rps_status
plan_table(struct rps_advance *advance, const struct rps_ckpt_table *entry,
        struct rps_error *error)
{
    struct rps_table *table =
            rps_store_find(advance->store, rps_table_id(entry->spec.name));
    struct rps_ckpt_piece *pieces = NULL;
    rps_table_spec spec;
    size_t count = 0;
    rps_status status = RPS_OK;

    rps_checkpoint_served_spec(&entry->spec, &spec);
    if (table == NULL || !specs_equal(&spec, rps_table_spec_of(table))) {
        return load_beside(advance, entry, &spec, error);
    }
    status = rps_ckpt_chain_pieces(
            &advance->r.chain, spec.name, &pieces, &count, error);
    if (status != RPS_OK) {
        return status;
    }
    if (is_replaced(advance, pieces, count)) {
        free(pieces);
        return load_beside(advance, entry, &spec, error);
    }
    return plan_patch(advance, table, pieces, count, error);
}

/* New rows of all tables together. */
static rps_status
check_patches_fit(struct rps_advance *advance, struct rps_error *error)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < advance->patch_count; i++) {
        const struct rps_ckpt_patch *patch = &advance->patches[i];

        bytes +=
                bytes_of_rows(rps_table_spec_of(patch->table), patch->new_rows);
    }
    return bytes == 0 ? RPS_OK
                      : check_fits(advance->budget,
                                rps_ckpt_chain_last(&advance->r.chain)
                                        ->folder.path,
                                bytes, error);
}

static rps_status
plan(struct rps_advance *advance, struct rps_error *error)
{
    const struct rps_ckpt_manifest *manifest =
            &rps_ckpt_chain_last(&advance->r.chain)->manifest;
    const size_t room =
            manifest->table_count + rps_store_count(advance->store) + 1;
    rps_status status = rps_store_create(
            &advance->r.store, rps_store_job_seed(advance->store));

    advance->patches = calloc(room, sizeof(*advance->patches));
    advance->gone = calloc(room, sizeof(struct rps_table *));
    if (status != RPS_OK || advance->patches == NULL || advance->gone == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", advance->how.dir);
    }
    for (size_t i = 0; i < manifest->table_count && status == RPS_OK; i++) {
        status = plan_table(advance, &manifest->tables[i], error);
    }
    return status == RPS_OK ? check_patches_fit(advance, error) : status;
}

rps_status
rps_checkpoint_advance_begin(const struct rps_follow *follow,
        const struct rps_held *held, uint64_t step, struct rps_store *store,
        struct rps_advance **advance_out, struct rps_error *error)
{
    struct rps_advance *advance = calloc(1, sizeof(*advance));
    rps_status status;
    uint32_t at;

    *advance_out = NULL;
    if (advance == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", follow->dir);
    }
    advance->how = restore_of(follow, step);
    advance->r.how = &advance->how;
    advance->store = store;
    advance->budget = follow->budget;
    pthread_mutex_init(&advance->r.lock, NULL);
    status = open_chain(&advance->r, rps_store_job_seed(store), error);
    at = status == RPS_OK ? find_held(&advance->r.chain, held) : 0;
    if (status == RPS_OK && at < advance->r.chain.count) {
        advance->first_link = at + 1;
        status = plan(advance, error);
        if (status == RPS_OK) {
            *advance_out = advance;
            return RPS_OK;
        }
    }
    rps_checkpoint_advance_end(advance);
    return status;
}

rps_status
rps_checkpoint_advance_rows(
        struct rps_advance *advance, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (size_t i = 0; i < advance->patch_count && status == RPS_OK; i++) {
        status = rps_ckpt_patch_write(&advance->patches[i], error);
        advance->rows += advance->patches[i].written;
    }
    return status;
}

static void
let_go(struct rps_advance *advance, uint64_t id)
{
    size_t index;
    struct rps_table *old = rps_store_remove(advance->store, id, &index);

    if (old != NULL) {
        advance->gone[advance->gone_count++] = old;
    }
}

static void
drop_tables(
        struct rps_advance *advance, const struct rps_ckpt_manifest *manifest)
{
    size_t i = 0;

    while (i < rps_store_count(advance->store)) {
        struct rps_table *table = rps_store_at(advance->store, i);

        if (rps_ckpt_table_find(manifest->tables, manifest->table_count,
                    rps_table_spec_of(table)->name) == manifest->table_count) {
            let_go(advance, rps_table_id_of(table));
        } else {
            i++;
        }
    }
}

static rps_status
take_tables(struct rps_advance *advance, struct rps_error *error)
{
    while (rps_store_count(advance->r.store) > 0) {
        struct rps_table *table = rps_store_at(advance->r.store, 0);
        struct rps_table_stats stats;
        size_t index;

        rps_table_stats_of(table, &stats);
        advance->rows += stats.rows;
        let_go(advance, rps_table_id_of(table));
        (void)rps_store_remove(
                advance->r.store, rps_table_id_of(table), &index);
        if (rps_store_add_restored(advance->store, table) != RPS_OK) {
            advance->gone[advance->gone_count++] = table;
            return rps_fail(error, RPS_E_NOMEM, "%s: no memory for table %s",
                    advance->how.dir, rps_table_spec_of(table)->name);
        }
    }
    return RPS_OK;
}

rps_status
rps_checkpoint_advance_swap(struct rps_advance *advance,
        struct rps_held *held_out, struct rps_error *error)
{
    const struct rps_ckpt_manifest *manifest =
            &rps_ckpt_chain_last(&advance->r.chain)->manifest;
    const struct rps_ckpt_head head = rps_ckpt_head_of(manifest);
    rps_status status;

    drop_tables(advance, manifest);
    status = take_tables(advance, error);
    if (status == RPS_OK) {
        *held_out = (struct rps_held){.step = head.step,
                .epoch = head.epoch,
                .is_delta = head.is_delta,
                .digest = head.digest,
                .rows = advance->rows};
    }
    return status;
}

void
rps_checkpoint_advance_end(struct rps_advance *advance)
{
    if (advance == NULL) {
        return;
    }
    for (size_t i = 0; i < advance->patch_count; i++) {
        free(advance->patches[i].pieces);
    }
    for (size_t i = 0; i < advance->gone_count; i++) {
        rps_table_destroy(advance->gone[i]);
    }
    free(advance->patches);
    free(advance->gone);
    rps_store_destroy(advance->r.store);
    rps_ckpt_chain_close(&advance->r.chain);
    pthread_mutex_destroy(&advance->r.lock);
    free(advance);
}
