/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/replay.h"

#include "base/spec.h"
#include "embedding/checkpoint/keyset.h"
#include "embedding/checkpoint/values.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ERASED_MARK UINT8_MAX /* others: the link's number + 1 */

_Static_assert(RPS_CKPT_DELTAS_MAX + 1 < ERASED_MARK, "a mark is a byte");

struct state {
    const struct rps_ckpt_replay *replay;
    struct rps_ckpt_piece *pieces;
    size_t count;
    rps_status (*take_rows)(void *context, struct rps_ckpt_batch *batch,
            struct rps_error *error);
    rps_status (*take_keys)(
            void *context, struct rps_ckpt_keys *keys, struct rps_error *error);
    void *context;
    struct rps_keyset seen;
    /* of the range at hand */
    uint32_t first;
    uint32_t last;
    const struct rps_ckpt_piece *piece;
    uint32_t slot_floats;
};

static void
advance(const struct state *s, uint64_t bytes)
{
    if (s->replay->advance != NULL) {
        s->replay->advance(s->replay->context, bytes);
    }
}

/* Nothing older is live in the slots of a whole part, so nobody asks whether
 * its keys were seen. */
static bool
must_remember(const struct state *s)
{
    return !s->piece->table->whole;
}

static bool
is_in_range(const struct state *s, uint64_t hash)
{
    const uint32_t slot = rps_hash_slot(hash);

    return slot >= s->first && slot <= s->last &&
           rps_ckpt_slots_has(&s->piece->live, slot);
}

/* Is this key's row the newest? */
static rps_status
judge(struct state *s, uint64_t key, uint64_t hash, bool *keep,
        struct rps_error *error)
{
    const uint8_t own = (uint8_t)(s->piece->link + 1);
    uint8_t mark;

    *keep = false;
    if (!is_in_range(s, hash)) {
        return RPS_OK;
    }
    mark = rps_keyset_mark(&s->seen, key);
    if (mark == own) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: table %s has key %" PRIu64 " twice",
                s->piece->folder->path, s->replay->table, key);
    }
    *keep = mark == 0;
    if (mark == 0 && must_remember(s)) {
        uint8_t *fresh = rps_keyset_add(&s->seen, key);

        if (fresh == NULL) {
            return rps_fail(error, RPS_E_NOMEM,
                    "%s: no memory for the keys of table %s",
                    s->piece->folder->path, s->replay->table);
        }
        *fresh = own;
    }
    return RPS_OK;
}

static void
move_row(const struct state *s, struct rps_ckpt_batch *batch, size_t from,
        size_t to)
{
    if (from == to) {
        return;
    }
    batch->keys[to] = batch->keys[from];
    batch->hashes[to] = batch->hashes[from];
    batch->meta[to] = batch->meta[from];
    memcpy(batch->values + to * batch->value_bytes,
            batch->values + from * batch->value_bytes, batch->value_bytes);
    memcpy(batch->slots + to * s->slot_floats,
            batch->slots + from * s->slot_floats,
            s->slot_floats * sizeof(float));
}

static rps_status
filter_rows(
        void *context, struct rps_ckpt_batch *batch, struct rps_error *error)
{
    struct state *s = context;
    size_t kept = 0;

    advance(s, batch->file_bytes);
    for (size_t i = 0; i < batch->n; i++) {
        bool keep;
        rps_status status =
                judge(s, batch->keys[i], batch->hashes[i], &keep, error);

        if (status != RPS_OK) {
            return status;
        }
        if (keep) {
            move_row(s, batch, i, kept++);
        }
    }
    batch->n = kept;
    return kept == 0 ? RPS_OK : s->take_rows(s->context, batch, error);
}

static rps_status
filter_keys(void *context, struct rps_ckpt_keys *keys, struct rps_error *error)
{
    struct state *s = context;
    size_t kept = 0;

    advance(s, keys->file_bytes);
    for (size_t i = 0; i < keys->n; i++) {
        bool keep;
        rps_status status =
                judge(s, keys->keys[i], keys->hashes[i], &keep, error);

        if (status != RPS_OK) {
            return status;
        }
        if (keep) {
            keys->keys[kept] = keys->keys[i];
            keys->hashes[kept++] = keys->hashes[i];
        }
    }
    keys->n = kept;
    return kept == 0 ? RPS_OK : s->take_keys(s->context, keys, error);
}

static rps_status
remember_erased(
        void *context, struct rps_ckpt_keys *keys, struct rps_error *error)
{
    struct state *s = context;

    advance(s, keys->file_bytes);
    for (size_t i = 0; i < keys->n; i++) {
        uint8_t *mark;

        if (!is_in_range(s, keys->hashes[i])) {
            continue;
        }
        mark = rps_keyset_add(&s->seen, keys->keys[i]);
        if (mark == NULL) {
            return rps_fail(error, RPS_E_NOMEM,
                    "%s: no memory for the erased keys of table %s",
                    s->piece->folder->path, s->replay->table);
        }
        *mark = *mark == 0 ? ERASED_MARK : *mark;
    }
    return RPS_OK;
}

static bool
overlaps(const struct state *s, const struct rps_ckpt_piece *piece)
{
    return piece->part->slot_first <= s->last &&
           piece->part->slot_last >= s->first;
}

static rps_status
read_piece(struct state *s, bool erased, struct rps_error *error)
{
    const struct rps_ckpt_link *link = &s->replay->chain->links[s->piece->link];
    const struct rps_ckpt_scan scan = {s->piece->folder, s->piece->part,
            s->piece->table, link->manifest.job_seed, filter_rows, s};

    if (erased) {
        return must_remember(s)
                       ? rps_ckpt_erased_scan(&scan, remember_erased, error)
                       : RPS_OK;
    }
    return s->take_rows != NULL ? rps_ckpt_scan_table(&scan, error)
                                : rps_ckpt_keys_scan(&scan, filter_keys, error);
}

/* Pieces from..to - 1 are one link's: its rows come after what it erased. */
static rps_status
read_link(struct state *s, size_t from, size_t to, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (int erased = 0; erased < 2; erased++) {
        for (size_t i = from; i < to && status == RPS_OK; i++) {
            s->piece = &s->pieces[i];
            if (overlaps(s, s->piece)) {
                status = read_piece(s, erased == 1, error);
            }
        }
    }
    return status;
}

static rps_status
read_range(struct state *s, struct rps_error *error)
{
    rps_status status = RPS_OK;
    size_t to = s->count;

    rps_keyset_clear(&s->seen);
    while (to > 0 && status == RPS_OK) {
        size_t from = to - 1;

        while (from > 0 && s->pieces[from - 1].link == s->pieces[to - 1].link) {
            from--;
        }
        status = read_link(s, from, to, error);
        to = from;
    }
    return status;
}

/* Keys that will have to be remembered, at most. */
static uint64_t
count_keys(const struct state *s)
{
    uint64_t keys = 0;

    for (size_t i = 0; i < s->count; i++) {
        const struct rps_ckpt_table *table = s->pieces[i].table;

        if (!table->whole && overlaps(s, &s->pieces[i])) {
            keys += table->rows + table->erased;
        }
    }
    return keys;
}

/* Slots hold about the same number of keys: hashes are even. */
static uint32_t
count_ranges(const struct state *s)
{
    const size_t asked = s->replay->memory_bytes == 0 ? RPS_CKPT_REPLAY_BYTES
                                                      : s->replay->memory_bytes;
    const size_t least = rps_keyset_bytes(0);
    const size_t room = asked > least ? asked : least;
    const uint32_t slots = s->last - s->first + 1;
    const uint64_t keys = count_keys(s);
    uint32_t ranges = 1;

    while (ranges < slots && rps_keyset_bytes(keys / ranges) > room) {
        ranges++;
    }
    return ranges;
}

static rps_status
replay_all(struct state *s, struct rps_error *error)
{
    const struct rps_ckpt_replay *replay = s->replay;
    rps_status status = rps_ckpt_chain_pieces(
            replay->chain, replay->table, &s->pieces, &s->count, error);
    uint32_t ranges = 1;

    s->first = replay->slot_first;
    s->last = replay->slot_last;
    assert(s->first <= s->last && s->last < RPS_SLOT_COUNT);
    if (status == RPS_OK && s->count > 0) {
        s->slot_floats = rps_spec_slot_floats(&s->pieces[0].table->spec);
        ranges = count_ranges(s);
    }
    for (uint32_t i = 0; i < ranges && status == RPS_OK; i++) {
        const uint32_t slots = replay->slot_last - replay->slot_first + 1;

        s->first =
                replay->slot_first + (uint32_t)((uint64_t)slots * i / ranges);
        s->last = replay->slot_first +
                  (uint32_t)((uint64_t)slots * (i + 1) / ranges) - 1;
        status = read_range(s, error);
    }
    rps_keyset_finish(&s->seen);
    free(s->pieces);
    return status;
}

rps_status
rps_ckpt_replay_rows(const struct rps_ckpt_replay *replay,
        rps_status (*take)(void *context, struct rps_ckpt_batch *batch,
                struct rps_error *error),
        void *context, struct rps_error *error)
{
    struct state s = {.replay = replay, .take_rows = take, .context = context};

    return replay_all(&s, error);
}

rps_status
rps_ckpt_replay_keys(const struct rps_ckpt_replay *replay,
        rps_status (*take)(void *context, struct rps_ckpt_keys *keys,
                struct rps_error *error),
        void *context, struct rps_error *error)
{
    struct state s = {.replay = replay, .take_keys = take, .context = context};

    return replay_all(&s, error);
}

/* key, uses and last beside the values and the slots */
static uint64_t
row_file_bytes(const rps_table_spec *spec)
{
    return sizeof(uint64_t) + sizeof(uint8_t) + sizeof(uint32_t) +
           rps_ckpt_value_bytes(spec) +
           rps_spec_slot_floats(spec) * sizeof(float);
}

uint64_t
rps_ckpt_replay_bytes(const struct rps_ckpt_replay *replay)
{
    struct state s = {.replay = replay,
            .first = replay->slot_first,
            .last = replay->slot_last};
    uint64_t bytes = 0;

    if (rps_ckpt_chain_pieces(replay->chain, replay->table, &s.pieces, &s.count,
                NULL) != RPS_OK) {
        return 0;
    }
    for (size_t i = 0; i < s.count; i++) {
        const struct rps_ckpt_table *table = s.pieces[i].table;

        if (overlaps(&s, &s.pieces[i])) {
            bytes += table->rows * row_file_bytes(&table->spec) +
                     table->erased * sizeof(uint64_t);
        }
    }
    bytes *= count_ranges(&s);
    free(s.pieces);
    return bytes;
}
