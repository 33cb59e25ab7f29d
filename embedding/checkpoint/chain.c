/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/chain.h"

#include "base/spec.h"
#include "base/text.h"
#include "embedding/checkpoint/checkpoint.h"

#include <assert.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>

#define NAME "ckpt-%012" PRIu64

struct rps_ckpt_head
rps_ckpt_head_of(const struct rps_ckpt_manifest *manifest)
{
    return (struct rps_ckpt_head){.step = manifest->step,
            .epoch = manifest->epoch,
            .job_seed = manifest->job_seed,
            .digest = manifest->digest,
            .is_folded = manifest->is_folded,
            .folded = manifest->folded,
            .is_delta = manifest->is_delta,
            .parent_step = manifest->parent_step,
            .parent_digest = manifest->parent_digest};
}

/* The epoch, too: two deltas of the same rows have the same digest, also on
 * different parents; one that was replaced has a newer epoch than all that
 * was made on it. */
rps_status
rps_ckpt_head_check(const char *dir, const struct rps_ckpt_head *child,
        const struct rps_ckpt_head *parent, struct rps_error *error)
{
    char is[RPS_DIGEST_HEX_BYTES];
    char was[RPS_DIGEST_HEX_BYTES];

    assert(child->is_delta && child->parent_step == parent->step);
    if (!rps_digest_equal(parent->digest, child->parent_digest) &&
            !(parent->is_folded &&
                    rps_digest_equal(parent->folded, child->parent_digest))) {
        return rps_fail(error, RPS_E_MISMATCH,
                "%s/" NAME " was made on " NAME
                " of digest %s; the one that is there has %s: it was replaced",
                dir, child->step, parent->step,
                rps_digest_hex(child->parent_digest, was),
                rps_digest_hex(parent->digest, is));
    }
    if (parent->epoch > child->epoch) {
        return rps_fail(error, RPS_E_MISMATCH,
                "%s/" NAME " of epoch %" PRIu32 " was made on " NAME
                "; the one that is there is of epoch %" PRIu32
                ": it was replaced",
                dir, child->step, child->epoch, parent->step, parent->epoch);
    }
    if (parent->job_seed != child->job_seed) {
        return rps_fail(error, RPS_E_MISMATCH,
                "%s/" NAME " has job seed %" PRIu64 ", its parent " NAME
                " has %" PRIu64,
                dir, child->step, child->job_seed, parent->step,
                parent->job_seed);
    }
    return RPS_OK;
}

static void
close_link(struct rps_ckpt_link *link)
{
    for (uint32_t i = 0; link->parts != NULL && i < link->manifest.part_count;
            i++) {
        rps_ckpt_part_finish(&link->parts[i]);
    }
    free(link->parts);
    rps_ckpt_manifest_finish(&link->manifest);
    rps_ckpt_folder_close(&link->folder);
    memset(link, 0, sizeof(*link));
}

void
rps_ckpt_chain_close(struct rps_ckpt_chain *chain)
{
    for (uint32_t i = 0; i < chain->count; i++) {
        close_link(&chain->links[i]);
    }
    chain->count = 0;
}

struct rps_ckpt_link *
rps_ckpt_chain_last(struct rps_ckpt_chain *chain)
{
    assert(chain->count > 0);
    return &chain->links[chain->count - 1];
}

/* The folder's name says its step, unless it was given another. */
static bool
has_step(const char *path, uint64_t *step)
{
    const char *slash = strrchr(path, '/');

    return rps_ckpt_parse_step(slash == NULL ? path : slash + 1, step);
}

static rps_status
open_link(struct rps_ckpt_link *link, const char *path, struct rps_error *error)
{
    uint64_t step;
    rps_status status = rps_ckpt_folder_open(&link->folder, path, error);

    if (status == RPS_OK) {
        status = rps_ckpt_manifest_read(&link->manifest, &link->folder, error);
    }
    if (status == RPS_OK && has_step(path, &step) &&
            step != link->manifest.step) {
        status = rps_fail(error, RPS_E_CORRUPT,
                "%s: its manifest is of step %" PRIu64, path,
                link->manifest.step);
    }
    if (status != RPS_OK) {
        close_link(link);
    }
    return status;
}

/* The words of the parent's own failure, and whose parent it is. */
static rps_status
parent_failed(const char *dir, const struct rps_ckpt_head *child,
        rps_status status, const struct rps_error *cause,
        struct rps_error *error)
{
    return rps_fail(error, status, "%s/" NAME " stands on " NAME ": %.700s",
            dir, child->step, child->parent_step, cause->text);
}

static rps_status
open_parent(
        struct rps_ckpt_chain *chain, const char *dir, struct rps_error *error)
{
    const struct rps_ckpt_head child =
            rps_ckpt_head_of(&chain->links[chain->count - 1].manifest);
    struct rps_ckpt_link *link = &chain->links[chain->count];
    struct rps_error cause = {""};
    struct rps_ckpt_head head;
    char *path;
    rps_status status;

    if (chain->count == 1 + RPS_CKPT_DELTAS_MAX) {
        return rps_fail(error, RPS_E_LIMIT,
                "%s/" NAME ": more than %u deltas stand behind it", dir,
                chain->links[0].manifest.step, RPS_CKPT_DELTAS_MAX);
    }
    path = rps_checkpoint_path(dir, child.parent_step);
    if (path == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", dir);
    }
    status = open_link(link, path, &cause);
    free(path);
    if (status != RPS_OK) {
        return parent_failed(dir, &child, status, &cause, error);
    }
    chain->count++;
    head = rps_ckpt_head_of(&link->manifest);
    return rps_ckpt_head_check(dir, &child, &head, error);
}

/* Opened from the youngest on; a reader wants the oldest first. */
static void
turn(struct rps_ckpt_chain *chain)
{
    for (uint32_t i = 0; i < chain->count / 2; i++) {
        struct rps_ckpt_link other = chain->links[i];

        chain->links[i] = chain->links[chain->count - 1 - i];
        chain->links[chain->count - 1 - i] = other;
    }
}

/* `dir` NULL: beside `path`, asked for only where there is a parent. */
static rps_status
open_all(struct rps_ckpt_chain *chain, const char *path, const char *dir,
        struct rps_error *error)
{
    char *real = NULL;
    rps_status status;

    memset(chain, 0, sizeof(*chain));
    status = open_link(&chain->links[0], path, error);
    if (status != RPS_OK) {
        return status;
    }
    chain->count = 1;
    if (dir == NULL && chain->links[0].manifest.is_delta) {
        real = realpath(path, NULL);
        if (real == NULL) {
            status = rps_fail(
                    error, RPS_E_IO, "%s: cannot tell what is beside", path);
            goto out;
        }
        dir = dirname(real);
    }
    while (status == RPS_OK &&
            chain->links[chain->count - 1].manifest.is_delta) {
        status = open_parent(chain, dir, error);
    }
out:
    if (status == RPS_OK) {
        turn(chain);
    } else {
        rps_ckpt_chain_close(chain);
    }
    free(real);
    return status;
}

rps_status
rps_ckpt_chain_open(struct rps_ckpt_chain *chain, const char *dir,
        uint64_t step, struct rps_error *error)
{
    char *path = rps_checkpoint_path(dir, step);
    rps_status status;

    if (path == NULL) {
        memset(chain, 0, sizeof(*chain));
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", dir);
    }
    status = open_all(chain, path, dir, error);
    free(path);
    return status;
}

rps_status
rps_ckpt_chain_open_folder(
        struct rps_ckpt_chain *chain, const char *path, struct rps_error *error)
{
    return open_all(chain, path, NULL, error);
}

static rps_status
read_link_parts(struct rps_ckpt_link *link, uint32_t part, uint32_t parts,
        struct rps_error *error)
{
    const uint32_t n = link->manifest.part_count;
    rps_status first = RPS_OK;

    assert(link->parts == NULL);
    link->all_parts = true;
    link->parts = calloc(n, sizeof(*link->parts));
    if (link->parts == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", link->folder.path);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct rps_error why = {.text = ""};
        const rps_status status = rps_ckpt_part_read(
                &link->parts[i], &link->folder, &link->manifest, i, &why);

        if (status == RPS_E_NOT_FOUND && n == parts && i != part) {
            link->all_parts = false;
        } else if (status != RPS_OK && first != RPS_OK) {
            rps_ckpt_name_another(error, i, n);
        } else if (status != RPS_OK) {
            first = rps_fail(error, status, "%s", why.text);
        }
    }
    if (first != RPS_OK) {
        return first;
    }
    return link->all_parts ? rps_ckpt_parts_check(&link->manifest, link->parts,
                                     &link->folder, error)
                           : RPS_OK;
}

rps_status
rps_ckpt_chain_read_parts(struct rps_ckpt_chain *chain, uint32_t part,
        uint32_t parts, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (uint32_t i = 0; i < chain->count && status == RPS_OK; i++) {
        status = read_link_parts(&chain->links[i], part, parts, error);
    }
    return status;
}

static const struct rps_ckpt_table *
table_of(const struct rps_ckpt_table *tables, size_t count, const char *name)
{
    const size_t at = rps_ckpt_table_find(tables, count, name);

    return at < count ? &tables[at] : NULL;
}

/* The oldest link whose rows of the table count: those before one that did
 * not have it, or had another of the name, are of a table that is gone. */
static uint32_t
first_link(const struct rps_ckpt_chain *chain, const char *name)
{
    const struct rps_ckpt_link *last = &chain->links[chain->count - 1];
    const struct rps_ckpt_table *table =
            table_of(last->manifest.tables, last->manifest.table_count, name);
    uint32_t first = chain->count - 1;

    while (first > 0) {
        const struct rps_ckpt_manifest *manifest =
                &chain->links[first - 1].manifest;
        const struct rps_ckpt_table *older =
                table_of(manifest->tables, manifest->table_count, name);

        if (older == NULL ||
                rps_spec_identity_differs(&older->spec, &table->spec) != NULL) {
            break;
        }
        first--;
    }
    return first;
}

/* The oldest link that counts is a table's first: where an older one has
 * another of the name, each of its parts must say that it has all rows. */
static rps_status
check_first(const struct rps_ckpt_chain *chain, uint32_t first,
        const char *name, struct rps_error *error)
{
    const struct rps_ckpt_link *link = &chain->links[first];
    const struct rps_ckpt_link *older = first > 0 ? link - 1 : NULL;

    if (older == NULL || table_of(older->manifest.tables,
                                 older->manifest.table_count, name) == NULL) {
        return RPS_OK;
    }
    for (uint32_t i = 0; i < link->manifest.part_count; i++) {
        const struct rps_ckpt_part *part = &link->parts[i];
        const struct rps_ckpt_table *table =
                table_of(part->tables, part->table_count, name);

        if (table != NULL && !table->whole) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "%s/part-%" PRIu32 "-of-%" PRIu32
                    ".json: table %s is another than in %s, and is not whole",
                    link->folder.path, i, link->manifest.part_count, name,
                    older->folder.path);
        }
    }
    return RPS_OK;
}

/* Pieces of one link, from its last part on; `dropped` are the slots that
 * later links have whole. */
static size_t
add_pieces(const struct rps_ckpt_chain *chain, uint32_t at, const char *name,
        struct rps_ckpt_slots *dropped, struct rps_ckpt_piece *pieces)
{
    const struct rps_ckpt_link *link = &chain->links[at];
    struct rps_ckpt_slots whole = *dropped;
    size_t count = 0;

    for (uint32_t i = link->manifest.part_count; i-- > 0;) {
        const struct rps_ckpt_part *part = &link->parts[i];
        struct rps_ckpt_piece *piece = &pieces[count];

        if (part->root == NULL) {
            continue;
        }
        *piece = (struct rps_ckpt_piece){.link = at,
                .folder = &link->folder,
                .part = part,
                .table = table_of(part->tables, part->table_count, name)};
        if (piece->table != NULL &&
                rps_ckpt_slots_add_but(&piece->live, part->slot_first,
                        part->slot_last, dropped)) {
            count++;
        }
        if (piece->table == NULL || piece->table->whole) {
            /* a part without the table is one of a PS that has none of it */
            rps_ckpt_slots_add(&whole, part->slot_first, part->slot_last);
        }
    }
    *dropped = whole;
    return count;
}

static void
turn_pieces(struct rps_ckpt_piece *pieces, size_t count)
{
    for (size_t i = 0; i < count / 2; i++) {
        struct rps_ckpt_piece other = pieces[i];

        pieces[i] = pieces[count - 1 - i];
        pieces[count - 1 - i] = other;
    }
}

rps_status
rps_ckpt_chain_pieces(const struct rps_ckpt_chain *chain, const char *table,
        struct rps_ckpt_piece **pieces_out, size_t *count_out,
        struct rps_error *error)
{
    const struct rps_ckpt_link *last = &chain->links[chain->count - 1];
    struct rps_ckpt_slots dropped = {{0}};
    struct rps_ckpt_piece *pieces;
    uint32_t first;
    size_t room = 0;
    size_t count = 0;
    rps_status status;

    *pieces_out = NULL;
    *count_out = 0;
    if (table_of(last->manifest.tables, last->manifest.table_count, table) ==
            NULL) {
        return rps_fail(error, RPS_E_NOT_FOUND, "%s: there is no table %.130s",
                last->folder.path, table);
    }
    first = first_link(chain, table);
    status = check_first(chain, first, table, error);
    if (status != RPS_OK) {
        return status;
    }
    for (uint32_t i = first; i < chain->count; i++) {
        room += chain->links[i].manifest.part_count;
    }
    pieces = calloc(room + 1, sizeof(*pieces));
    if (pieces == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", last->folder.path);
    }
    for (uint32_t i = chain->count; i-- > first;) {
        count += add_pieces(chain, i, table, &dropped, pieces + count);
    }
    turn_pieces(pieces, count);
    *pieces_out = pieces;
    *count_out = count;
    return RPS_OK;
}
