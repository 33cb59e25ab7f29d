/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RESTORE: a checkpoint and what it stands on, any number of parts each, into
 * this PS of any number of PS. What fails leaves an empty store.
 */
#include "embedding/checkpoint/restore.h"

#include "base/hash.h"
#include "embedding/checkpoint/damage.h"
#include "embedding/checkpoint/scan.h"
#include "embedding/cut.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Every slot of this PS is in a part that is here: else rows would be
 * missing and nobody would notice. */
static rps_status
check_slots(const struct rps_restore *how, const struct rps_ckpt_link *link,
        struct rps_error *error)
{
    for (uint32_t s = 0; s < RPS_SLOT_COUNT; s++) {
        bool there = !how->owns(how->context, (uint64_t)s << 52);

        for (uint32_t i = 0; i < link->manifest.part_count && !there; i++) {
            const struct rps_ckpt_part *part = &link->parts[i];

            there = part->root != NULL && s >= part->slot_first &&
                    s <= part->slot_last;
        }
        if (!there) {
            return rps_fail(error,
                    link->all_parts ? RPS_E_CORRUPT : RPS_E_NOT_FOUND,
                    "%s: slot %" PRIu32
                    " of this PS is in no part file that is here",
                    link->folder.path, s);
        }
    }
    return RPS_OK;
}

/* Where seeds differ, a row of ours may be in any part. */
static rps_status
read_parts(struct rps_ckpt_restoring *r, struct rps_error *error)
{
    const struct rps_restore *how = r->how;
    rps_status status = rps_ckpt_chain_read_parts(
            &r->chain, how->part, r->same_seed ? how->parts : 0, error);

    for (uint32_t i = 0; i < r->chain.count && status == RPS_OK; i++) {
        if (r->same_seed) {
            status = check_slots(how, &r->chain.links[i], error);
        }
    }
    return status;
}

static rps_status
check_seed(struct rps_ckpt_restoring *r, struct rps_error *error)
{
    const struct rps_ckpt_link *last = rps_ckpt_chain_last(&r->chain);
    const uint64_t seed = rps_store_job_seed(r->store);

    r->same_seed = last->manifest.job_seed == seed;
    if (!r->same_seed && !r->how->begins) {
        return rps_fail(error, RPS_E_MISMATCH,
                "%s: saved with job seed %" PRIu64
                ", this job has --job-seed %" PRIu64,
                last->folder.path, last->manifest.job_seed, seed);
    }
    return RPS_OK;
}

/* What is ahead, before the first row is read. */
static rps_status
count_rows(struct rps_ckpt_restoring *r, struct rps_error *error)
{
    const struct rps_restore *how = r->how;
    rps_status status = RPS_OK;

    for (size_t w = 0; w < r->wanted_count && status == RPS_OK; w++) {
        struct rps_ckpt_piece *pieces = NULL;
        size_t count = 0;

        status = rps_ckpt_chain_pieces(&r->chain, r->wanted[w].entry->spec.name,
                &pieces, &count, error);
        for (size_t i = 0; i < count; i++) {
            if (rps_ckpt_piece_matters(r, &pieces[i])) {
                r->rows_total += pieces[i].table->rows;
            }
        }
        free(pieces);
    }
    if (status == RPS_OK && how->progress != NULL) {
        how->progress(how->context, 0, r->rows_total);
    }
    return status;
}

static rps_status
restore_all(
        struct rps_ckpt_restoring *r, bool *reads_out, struct rps_error *error)
{
    rps_status status =
            rps_ckpt_chain_open(&r->chain, r->how->dir, r->how->step, error);

    if (status == RPS_OK) {
        status = check_seed(r, error);
    }
    if (status == RPS_OK) {
        status = rps_ckpt_restore_plan(r, error);
    }
    if (status == RPS_OK) {
        status = read_parts(r, error);
    }
    if (status == RPS_OK) {
        status = count_rows(r, error);
        *reads_out = status == RPS_OK;
    }
    for (size_t i = 0; i < r->wanted_count && status == RPS_OK; i++) {
        status = rps_ckpt_restore_table(r, &r->wanted[i], error);
    }
    return status;
}

/* Lanes are connections to one PS of so many: with another number of PS
 * there are other lanes, and none is taken over; nor in another job. All are
 * read, so that damage is found by whoever restores. */
static rps_status
restore_lanes(struct rps_ckpt_restoring *r, struct rps_lane_record **lanes_out,
        size_t *count_out, struct rps_error *error)
{
    const struct rps_ckpt_link *last = rps_ckpt_chain_last(&r->chain);
    const bool same =
            r->how->parts == last->manifest.part_count && !r->how->begins;

    for (uint32_t i = 0; i < last->manifest.part_count; i++) {
        struct rps_lane_record *lanes = NULL;
        size_t count = 0;
        rps_status status;

        if (last->parts[i].root == NULL) {
            continue;
        }
        status = rps_ckpt_scan_lanes(
                &last->folder, &last->parts[i], &lanes, &count, error);
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

/* All that it has, as it has it: a delta may stand on it. */
static bool
is_exact(const struct rps_restore *how)
{
    return how->tables == NULL && !how->weights_only && !how->begins;
}

rps_status
rps_checkpoint_restore(const struct rps_restore *restore,
        struct rps_store *store, json_t **manifest_out,
        struct rps_lane_record **lanes_out, size_t *lane_count_out,
        struct rps_error *error)
{
    struct rps_ckpt_restoring r = {.how = restore, .store = store};
    bool reads = false; /* of arrays */
    rps_status status;

    assert(rps_store_count(store) == 0);
    assert(restore->part < restore->parts);
    *manifest_out = NULL;
    *lanes_out = NULL;
    *lane_count_out = 0;
    pthread_mutex_init(&r.lock, NULL);
    status = restore_all(&r, &reads, error);
    if (status == RPS_OK) {
        status = restore_lanes(&r, lanes_out, lane_count_out, error);
    }
    if (status == RPS_OK) {
        *manifest_out =
                json_incref(rps_ckpt_chain_last(&r.chain)->manifest.root);
        if (is_exact(restore)) {
            rps_store_mark_clean(store);
        }
    } else {
        if (status == RPS_E_CORRUPT && reads) {
            rps_ckpt_name_damaged(&r, error);
        }
        rps_store_clear(store);
        free(*lanes_out);
        *lanes_out = NULL;
        *lane_count_out = 0;
    }
    free(r.wanted);
    rps_ckpt_chain_close(&r.chain);
    pthread_mutex_destroy(&r.lock);
    return status;
}
