/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing rows as they are: start values, restored rows. All of them are
 * checked, then room for all is made, then all are written.
 */
#include "base/spec.h"
#include "embedding/admit.h"
#include "embedding/optimizer.h"
#include "embedding/room.h"
#include "embedding/save_buffer.h"
#include "embedding/sorted.h"
#include "embedding/track.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct assign {
    struct rps_table *table;
    const uint64_t *keys;
    const float *rows;    /* [n][dim], or NULL: */
    const char *packed;   /* [n][packed_bytes] of the table's value type */
    size_t packed_bytes;  /* of dim values, nothing between or behind them */
    float *scratch;       /* [dim] */
    const float *slots;   /* or NULL */
    const uint32_t *meta; /* or NULL */
    uint32_t fresh_meta;  /* where it is NULL */
    size_t n;
    bool restores; /* nobody else changes the table, but others restore */
    struct rps_sorted sorted;
    struct rps_room room;
};

/* In the table's type: what is too large for it is not. */
static bool
values_finite(const struct assign *assign, size_t i)
{
    const struct rps_kernels *kernels = &assign->table->kernels;
    const enum rps_value type = assign->table->spec.value_dtype;
    const size_t dim = assign->table->spec.dim;

    if (assign->rows != NULL) {
        return kernels->narrow[type](
                assign->scratch, assign->rows + i * dim, dim);
    }
    kernels->widen[type](
            assign->scratch, assign->packed + i * assign->packed_bytes, dim);
    return kernels->finite(assign->scratch, dim);
}

static rps_status
check_finite(const struct assign *assign, struct rps_error *error)
{
    const struct rps_table *table = assign->table;

    for (size_t i = 0; i < assign->n; i++) {
        const bool slots =
                assign->slots != NULL &&
                !table->kernels.finite(assign->slots + i * table->slot_floats,
                        table->slot_floats);
        if (slots || !values_finite(assign, i)) {
            return rps_fail(error, RPS_E_NONFINITE,
                    "table %s: the %s to assign to key %" PRIu64
                    " hold a NaN or an infinity%s",
                    table->spec.name, slots ? "slots" : "values",
                    assign->keys[i],
                    slots || table->spec.value_dtype == RPS_VALUE_F32
                            ? ""
                            : ", or what is one in the table's value_dtype");
        }
    }
    return RPS_OK;
}

/* What stands behind the end of a dense variable is always the same, so
 * that the digest is one of what can be read. */
static void
reset_tail(const struct assign *assign, uint64_t key, char *row, float *slots)
{
    const struct rps_table *table = assign->table;
    const size_t dim = table->spec.dim;
    const size_t live = rps_table_live_floats(table, key);
    const size_t live_bytes = assign->packed_bytes / dim * live;

    if (live < dim) {
        memset(row + live_bytes, 0, assign->packed_bytes - live_bytes);
        for (uint32_t s = 0; s < rps_spec_slot_count(&table->spec); s++) {
            const size_t width = rps_spec_slot_width(&table->spec, s);
            for (size_t j = live; j < width; j++) {
                slots[j] = rps_slot_fresh(&table->spec, s);
            }
            slots += width;
        }
    }
}

static void
write_values(const struct assign *assign, size_t i, char *row)
{
    const struct rps_table *table = assign->table;
    const size_t dim = table->spec.dim;

    if (assign->rows != NULL) {
        (void)table->kernels.narrow[table->spec.value_dtype](
                row, assign->rows + i * dim, dim);
    } else {
        memcpy(row, assign->packed + i * assign->packed_bytes,
                assign->packed_bytes);
    }
}

static void
write_row_locked(struct assign *assign, size_t shard_index, size_t at,
        struct rps_index_place place)
{
    struct rps_table *table = assign->table;
    const size_t i = assign->sorted.order[at];
    const uint64_t key = assign->keys[i];
    char *row = rps_shard_row_locked(&table->shards[shard_index], place);
    float *slots = rps_table_slots_at(table, row);

    rps_track_change_locked(table, &table->shards[shard_index], place);
    (void)rps_admit_take_locked(
            table, &table->shards[shard_index], assign->sorted.hashes[at], key);
    write_values(assign, i, row);
    if (assign->slots == NULL) {
        rps_slots_fresh(&table->spec, slots);
    } else {
        memcpy(slots, assign->slots + i * table->slot_floats,
                table->slot_floats * sizeof(*slots));
    }
    reset_tail(assign, key, row, slots);
    place.line->meta[place.lane] =
            assign->meta == NULL ? assign->fresh_meta : assign->meta[i];
}

#define SLICE_KEYS 4096u /* one lock's worth of rows */

/* Who made rows in advance may erase them again, and cannot tell a row that
 * was assigned from its own: nobody else is at it meanwhile. */
static void
write_slice(struct assign *assign, size_t shard_index, size_t start, size_t end)
{
    struct rps_table *table = assign->table;
    struct rps_shard *shard = &table->shards[shard_index];
    const bool making = assign->room.making; /* the lock is ours */
    uint64_t kept_bytes = 0;

    rps_save_buffer_reserve(
            table->buffer, table->cut_list, end - start, &kept_bytes);
    if (!making) {
        pthread_mutex_lock(&table->making);
    }
    rps_shard_lock(shard);
    for (size_t at = start; at < end; at++) {
        write_row_locked(assign, shard_index, at,
                rps_room_place_locked(&assign->room, shard_index, at));
    }
    pthread_mutex_unlock(&shard->lock);
    if (!making) {
        pthread_mutex_unlock(&table->making);
    }
    rps_save_buffer_release(table->buffer, kept_bytes);
}

static void
write_rows(struct assign *assign)
{
    const size_t *starts = assign->sorted.starts;

    for (size_t s = 0; s < assign->table->shard_count; s++) {
        for (size_t at = starts[s]; at < starts[s + 1]; at += SLICE_KEYS) {
            const size_t left = starts[s + 1] - at;
            write_slice(assign, s, at,
                    at + (left < SLICE_KEYS ? left : SLICE_KEYS));
        }
    }
}

static void
note_newest(const struct assign *assign)
{
    uint64_t newest = 0;

    for (size_t i = 0; assign->meta != NULL && i < assign->n; i++) {
        if (RPS_META_LAST(assign->meta[i]) > newest) {
            newest = RPS_META_LAST(assign->meta[i]);
        }
    }
    rps_table_note_step(assign->table, newest);
}

#define AHEAD 16u /* lines asked for before they are needed */

/* Without room that is made before: false where a row has none. */
static bool
restore_shard(struct assign *assign, size_t shard_index)
{
    struct rps_table *table = assign->table;
    struct rps_shard *shard = &table->shards[shard_index];
    const struct rps_sorted *sorted = &assign->sorted;
    const size_t end = sorted->starts[shard_index + 1];
    struct rps_index_line *lines[AHEAD];
    bool there = true;

    rps_shard_lock(shard);
    for (size_t at = sorted->starts[shard_index]; there && at < end; at++) {
        const uint64_t hash = sorted->hashes[at];
        struct rps_index_place place;

        if ((at - sorted->starts[shard_index]) % AHEAD == 0) {
            rps_index_homes(&shard->index, end - at < AHEAD ? end - at : AHEAD,
                    sorted->hashes + at, lines);
        }
        place = rps_index_find(&shard->index, hash, sorted->keys[at]);
        there = place.row != 0 ||
                rps_table_bare_row_locked(table, shard, hash, sorted->keys[at],
                        false, &place) == RPS_OK;
        if (there) {
            write_row_locked(assign, shard_index, at, place);
        }
    }
    pthread_mutex_unlock(&shard->lock);
    return there;
}

/* The quick way. What it has written when it gives up is written again. */
static bool
restore_shards(struct assign *assign)
{
    for (size_t s = 0; s < assign->table->shard_count; s++) {
        if (assign->sorted.starts[s] < assign->sorted.starts[s + 1] &&
                !restore_shard(assign, s)) {
            return false;
        }
    }
    return true;
}

static void
choose_fresh_meta(struct assign *assign)
{
    const struct rps_table *table = assign->table;

    note_newest(assign);
    assign->fresh_meta = rps_meta_make(
            rps_ages_matter(&table->spec) ? rps_counted(&table->newest) : 0, 0);
}

static rps_status
make_room_and_write(struct assign *assign, struct rps_error *error)
{
    struct rps_table *table = assign->table;
    rps_status status;

    assign->room = (struct rps_room){.table = table,
            .keys = assign->sorted.keys,
            .hashes = assign->sorted.hashes,
            .starts = assign->sorted.starts,
            .bare = true};
    status = rps_room_begin(&assign->room);
    if (status == RPS_OK) {
        choose_fresh_meta(assign);
        write_rows(assign);
    }
    rps_room_end(&assign->room);
    return status == RPS_OK
                   ? RPS_OK
                   : rps_fail(error, status, "table %s: %s %zu rows%s",
                             table->spec.name,
                             status == RPS_E_LIMIT
                                     ? "its memory_limit has no room for"
                                     : "no memory for",
                             assign->n,
                             assign->restores ? "" : ": none was written");
}

static rps_status
sort_and_write(struct assign *assign, struct rps_error *error)
{
    rps_status status = rps_sorted_init(
            &assign->sorted, assign->table, assign->n, assign->keys);

    if (status != RPS_OK) {
        status = rps_fail(error, status,
                "table %s: no memory for %zu rows: none was written",
                assign->table->spec.name, assign->n);
        goto out;
    }
    if (assign->restores) {
        choose_fresh_meta(assign);
        if (restore_shards(assign)) {
            goto out;
        }
    }
    status = make_room_and_write(assign, error);
out:
    rps_sorted_finish(&assign->sorted);
    return status;
}

static rps_status
assign_rows(struct assign *assign, struct rps_error *error)
{
    struct rps_table *table = assign->table;
    rps_status status =
            rps_table_check_keys(table, assign->n, assign->keys, error);

    if (status != RPS_OK) {
        return status;
    }
    assign->packed_bytes = rps_table_packed_bytes(table);
    assign->scratch = malloc(table->spec.dim * sizeof(*assign->scratch));
    if (assign->scratch == NULL) {
        return rps_fail(error, RPS_E_NOMEM,
                "table %s: no memory for %zu rows: none was written",
                table->spec.name, assign->n);
    }
    status = check_finite(assign, error);
    if (status == RPS_OK) {
        status = sort_and_write(assign, error);
    }
    free(assign->scratch);
    return status;
}

rps_status
rps_table_assign(struct rps_table *table, size_t n, const uint64_t *keys,
        const float *rows, const float *slots, const uint32_t *meta,
        struct rps_error *error)
{
    struct assign assign = {.table = table,
            .keys = keys,
            .rows = rows,
            .slots = slots,
            .meta = meta,
            .n = n};

    return n == 0 ? RPS_OK : assign_rows(&assign, error);
}

rps_status
rps_table_restore_rows(struct rps_table *table, size_t n, const uint64_t *keys,
        const void *values, const float *slots, const uint32_t *meta,
        struct rps_error *error)
{
    struct assign assign = {.table = table,
            .keys = keys,
            .packed = values,
            .slots = slots,
            .meta = meta,
            .n = n,
            .restores = true};

    return n == 0 ? RPS_OK : assign_rows(&assign, error);
}
