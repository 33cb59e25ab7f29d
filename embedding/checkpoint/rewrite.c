/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/rewrite.h"

#include "base/spec.h"
#include "embedding/checkpoint/compose.h"
#include "embedding/checkpoint/replay.h"
#include "embedding/checkpoint/values.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct rewrite {
    const struct rps_ckpt_rewrite *how;
    uint32_t parts;
    uint64_t done;
    uint64_t total;
};

/** One table's way through. */
struct passage {
    struct rewrite *r;
    const rps_table_spec *from;
    const rps_table_spec *to;
    /* of the pass at hand */
    rps_status (*take)(
            void *taker, struct rps_ckpt_batch *batch, struct rps_error *error);
    void *taker;
    float *floats; /* [floats_room]: values between two types */
    size_t floats_room;
};

static void
advance(void *context, uint64_t bytes)
{
    struct rewrite *r = context;

    r->done += bytes;
    if (r->how->progress != NULL) {
        r->how->progress(r->how->context,
                r->done < r->total ? r->done : r->total, r->total);
    }
}

static struct rps_ckpt_replay
replay_of(const struct passage *p, uint32_t first, uint32_t last)
{
    return (struct rps_ckpt_replay){.chain = p->r->how->chain,
            .table = p->from->name,
            .slot_first = first,
            .slot_last = last,
            .memory_bytes = p->r->how->memory_bytes / 2,
            .advance = advance,
            .context = p->r};
}

static rps_status
pass_keys(void *context, uint32_t first, uint32_t last,
        rps_status (*take)(void *taker, struct rps_ckpt_keys *keys,
                struct rps_error *error),
        void *taker, struct rps_error *error)
{
    const struct rps_ckpt_replay replay = replay_of(context, first, last);

    return rps_ckpt_replay_keys(&replay, take, taker, error);
}

/* The batch with values of the other type: a shorter one is converted in its
 * place, a longer one needs room. */
static rps_status
convert(void *context, struct rps_ckpt_batch *batch, struct rps_error *error)
{
    struct passage *p = context;
    struct rps_ckpt_batch converted = *batch;
    const size_t n = batch->n * p->from->dim;
    float *grown;

    if (n > p->floats_room) {
        grown = reallocarray(p->floats, n, sizeof(*grown));
        if (grown == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "no memory to convert table %s",
                    p->from->name);
        }
        p->floats = grown;
        p->floats_room = n;
    }
    rps_ckpt_values_floats(p->from->value_dtype, batch->values, n, p->floats);
    /* in place: floats are at least as long as any type */
    rps_ckpt_values_of_floats(p->to->value_dtype, p->floats, n, p->floats);
    converted.values = (char *)p->floats;
    converted.value_bytes = rps_ckpt_value_bytes(p->to);
    return p->take(p->taker, &converted, error);
}

static rps_status
pass_rows(void *context, uint32_t first, uint32_t last,
        rps_status (*take)(void *taker, struct rps_ckpt_batch *batch,
                struct rps_error *error),
        void *taker, struct rps_error *error)
{
    struct passage *p = context;
    const struct rps_ckpt_replay replay = replay_of(p, first, last);

    p->take = take;
    p->taker = taker;
    return p->from->value_dtype == p->to->value_dtype
                   ? rps_ckpt_replay_rows(&replay, take, taker, error)
                   : rps_ckpt_replay_rows(&replay, convert, p, error);
}

/** Counts of a range of slots, of those of a part. */
struct some_counts {
    uint32_t first;
    uint32_t last;
    rps_status (*take)(void *taker, struct rps_ckpt_counts *counts,
            struct rps_error *error);
    void *taker;
};

static rps_status
keep_counts(
        void *context, struct rps_ckpt_counts *counts, struct rps_error *error)
{
    const struct some_counts *some = context;
    size_t kept = 0;

    for (size_t i = 0; i < counts->n; i++) {
        if (counts->slots[i] >= some->first && counts->slots[i] <= some->last) {
            counts->entries[kept] = counts->entries[i];
            counts->slots[kept++] = counts->slots[i];
        }
    }
    counts->n = kept;
    return kept == 0 ? RPS_OK : some->take(some->taker, counts, error);
}

static const struct rps_ckpt_table *
table_of(const struct rps_ckpt_part *part, const char *name)
{
    const size_t at =
            rps_ckpt_table_find(part->tables, part->table_count, name);

    return at < part->table_count ? &part->tables[at] : NULL;
}

/* Counts are whole in every link: the last one's are what counts. */
static rps_status
pass_counts(void *context, uint32_t first, uint32_t last,
        rps_status (*take)(void *taker, struct rps_ckpt_counts *counts,
                struct rps_error *error),
        void *taker, struct rps_error *error)
{
    const struct passage *p = context;
    const struct rps_ckpt_link *link = rps_ckpt_chain_last(p->r->how->chain);
    struct some_counts some = {first, last, take, taker};
    rps_status status = RPS_OK;

    for (uint32_t i = 0; i < link->manifest.part_count && status == RPS_OK;
            i++) {
        const struct rps_ckpt_part *part = &link->parts[i];
        const struct rps_ckpt_scan scan = {.folder = &link->folder,
                .part = part,
                .table = table_of(part, p->from->name),
                .job_seed = link->manifest.job_seed,
                .context = &some};

        if (scan.table != NULL && part->slot_first <= last &&
                part->slot_last >= first) {
            status = rps_ckpt_admission_scan(&scan, keep_counts, error);
        }
    }
    return status;
}

/* As a restore does: its own where the number is the same, else the most. */
static uint64_t
pushes_of(void *context, uint32_t part, uint32_t parts)
{
    const struct passage *p = context;
    const struct rps_ckpt_link *link = rps_ckpt_chain_last(p->r->how->chain);
    const bool same = link->manifest.part_count == parts;
    uint64_t pushes = 0;

    for (uint32_t i = 0; i < link->manifest.part_count; i++) {
        const struct rps_ckpt_table *table =
                table_of(&link->parts[i], p->from->name);

        if (table != NULL && (!same || i == part) && table->pushes > pushes) {
            pushes = table->pushes;
        }
    }
    return pushes;
}

static rps_status
rewrite_table(struct rewrite *r, struct rps_ckpt_compose *compose,
        const struct rps_ckpt_table *table, struct rps_error *error)
{
    rps_table_spec spec = table->written;
    struct passage p = {.r = r, .from = &table->written, .to = &spec};
    const struct rps_ckpt_source source = {
            &p, pass_keys, pass_rows, pass_counts, pushes_of};
    rps_status status;

    if (r->how->respec != NULL) {
        r->how->respec(r->how->context, &spec);
    }
    status = rps_ckpt_compose_table(compose, &spec, &source, error);
    free(p.floats);
    return status;
}

/* Lanes are of one PS of so many: another number has others. */
static rps_status
rewrite_lanes(struct rewrite *r, struct rps_ckpt_compose *compose,
        struct rps_error *error)
{
    const struct rps_ckpt_link *link = rps_ckpt_chain_last(r->how->chain);
    rps_status status = RPS_OK;

    if (link->manifest.part_count != r->parts) {
        return RPS_OK;
    }
    for (uint32_t i = 0; i < r->parts && status == RPS_OK; i++) {
        struct rps_lane_record *lanes = NULL;
        size_t count = 0;

        status = rps_ckpt_scan_lanes(
                &link->folder, &link->parts[i], &lanes, &count, error);
        if (status == RPS_OK) {
            status = rps_ckpt_compose_lanes(compose, i, lanes, count, error);
        }
        free(lanes);
    }
    return status;
}

/* Once for the keys, which are an eighth or less of it, once for the rows,
 * and what is written is read again. */
static void
count_bytes(struct rewrite *r)
{
    const struct rps_ckpt_link *link = rps_ckpt_chain_last(r->how->chain);

    for (size_t i = 0; i < link->manifest.table_count; i++) {
        const struct rps_ckpt_replay replay = {.chain = r->how->chain,
                .table = link->manifest.tables[i].spec.name,
                .slot_last = RPS_SLOT_COUNT - 1,
                .memory_bytes = r->how->memory_bytes / 2};

        r->total += rps_ckpt_replay_bytes(&replay);
    }
    r->total *= 2;
}

static void
advance_check(void *context, uint64_t done, uint64_t total)
{
    struct rewrite *r = context;

    if (r->how->progress != NULL && total > 0) {
        r->how->progress(r->how->context,
                r->total / 2 + (uint64_t)((double)r->total / 2 *
                                          ((double)done / (double)total)),
                r->total);
    }
}

/* What stands on the disk now is read again before anything is replaced. */
static rps_status
check(struct rewrite *r, const struct rps_ckpt_compose *compose,
        struct rps_error *error)
{
    struct rps_checkpoint_report report;
    const char *path = rps_ckpt_compose_path(compose);
    rps_status status =
            rps_checkpoint_verify(path, advance_check, r, &report, error);

    if (status == RPS_OK &&
            (!report.matches || !rps_digest_equal(report.digest,
                                        rps_ckpt_compose_digest(compose)))) {
        status = rps_fail(error, RPS_E_CORRUPT,
                "%s: it is not what was written to it", path);
    }
    rps_checkpoint_report_finish(&report);
    return status;
}

static bool
is_the_same(const struct rewrite *r)
{
    return r->how->respec == NULL && r->how->more == NULL;
}

/* A full checkpoint that is written as it is must have the digest it had. */
static rps_status
compare(const struct rewrite *r, const struct rps_ckpt_compose *compose,
        struct rps_error *error)
{
    const struct rps_ckpt_link *link = rps_ckpt_chain_last(r->how->chain);

    if (r->how->chain->count > 1 || !is_the_same(r) ||
            rps_digest_equal(
                    link->manifest.digest, rps_ckpt_compose_digest(compose))) {
        return RPS_OK;
    }
    return rps_fail(error, RPS_E_CORRUPT,
            "%s: its digest is not the one of its tables", link->folder.path);
}

static rps_status
write_all(struct rewrite *r, struct rps_ckpt_compose *compose,
        struct rps_error *error)
{
    const struct rps_ckpt_manifest *manifest =
            &rps_ckpt_chain_last(r->how->chain)->manifest;
    const struct rps_digest *folded = manifest->is_delta    ? &manifest->digest
                                      : manifest->is_folded ? &manifest->folded
                                                            : NULL;
    rps_status status = RPS_OK;

    for (size_t i = 0; i < manifest->table_count && status == RPS_OK; i++) {
        status = rewrite_table(r, compose, &manifest->tables[i], error);
    }
    if (status == RPS_OK) {
        status = rewrite_lanes(r, compose, error);
    }
    if (status == RPS_OK && r->how->more != NULL) {
        status = r->how->more(r->how->context, compose, error);
    }
    if (status == RPS_OK) {
        /* only the same content may pass for the delta */
        status = rps_ckpt_compose_seal(
                compose, is_the_same(r) ? folded : NULL, error);
    }
    if (status == RPS_OK) {
        status = compare(r, compose, error);
    }
    return status == RPS_OK ? check(r, compose, error) : status;
}

static rps_status
create(const struct rewrite *r, struct rps_ckpt_compose **compose_out,
        struct rps_error *error)
{
    const struct rps_ckpt_manifest *manifest =
            &rps_ckpt_chain_last(r->how->chain)->manifest;
    json_t *like = json_copy(manifest->root);
    struct rps_ckpt_new what = {.dir = r->how->dir,
            .step = manifest->step,
            .epoch = manifest->epoch,
            .parts = r->parts,
            .job_seed = manifest->job_seed,
            .like = like,
            .memory_bytes = r->how->memory_bytes / 2};
    rps_status status;

    if (like != NULL && r->how->respec != NULL) {
        (void)json_object_del(like, RPS_CKPT_ARCHIVED);
    }
    if (like == NULL ||
            (r->how->fields != NULL &&
                    json_object_update(
                            like, (json_t *)(uintptr_t)r->how->fields) != 0)) {
        json_decref(like);
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", r->how->dir);
    }
    status = rps_ckpt_compose_create(compose_out, &what, error);
    json_decref(like);
    return status;
}

rps_status
rps_ckpt_rewrite(const struct rps_ckpt_rewrite *how,
        struct rps_digest *digest_out, struct rps_error *error)
{
    struct rewrite r = {.how = how, .parts = how->parts};
    struct rps_ckpt_compose *compose = NULL;
    rps_status status;

    if (r.parts == 0) {
        r.parts = rps_ckpt_chain_last(how->chain)->manifest.part_count;
    }
    count_bytes(&r);
    status = create(&r, &compose, error);
    if (status == RPS_OK) {
        status = write_all(&r, compose, error);
    }
    if (status == RPS_OK) {
        *digest_out = rps_ckpt_compose_digest(compose);
        status = rps_ckpt_compose_install(compose, how->replace, error);
    }
    rps_ckpt_compose_destroy(compose);
    return status;
}
