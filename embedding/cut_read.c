/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a cut while its tables change. A shard is walked by the lines of
 * its index, a few rows under each lock: they are copied, and written when
 * the lock is given back. Keys may have moved since the last look, which the
 * index's version tells: then the segment is walked from its start again.
 * Rows that were taken are not wanted any more, so none comes twice; one that
 * moved to a segment behind the walk cannot have been wanted, since segments
 * only split, and new ones come last.
 *
 *   rows of a table = those taken from its shards + those kept in the buffer
 */
#include "embedding/cut_impl.h"
#include "embedding/prefetch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_ROWS  256u
#define BATCH_BYTES ((size_t)128 << 10)

bool
rps_cut_is_based(struct rps_cut *cut, size_t table_index)
{
    struct rps_table *table = cut->tables[table_index].table;
    bool based = table->spec.dense_elements == 0;

    for (size_t i = 0; based && i < table->shard_count; i++) {
        struct rps_shard *shard = &table->shards[i];
        pthread_mutex_lock(&shard->lock);
        based = shard->track.generations[shard->track.now ^ 1u].based;
        pthread_mutex_unlock(&shard->lock);
    }
    return based;
}

void
rps_cut_begin(struct rps_cut *cut)
{
    rps_save_buffer_serve(cut->buffer);
}

uint64_t
rps_cut_choose(struct rps_cut *cut, size_t table_index, bool changed_only)
{
    struct rps_table *table = cut->tables[table_index].table;
    uint64_t rows = 0;

    for (size_t i = 0; i < table->shard_count; i++) {
        struct rps_shard *shard = &table->shards[i];
        pthread_mutex_lock(&shard->lock);
        rows += rps_track_choose_locked(shard, changed_only);
        pthread_mutex_unlock(&shard->lock);
    }
    cut->tables[table_index].changed_only = changed_only;
    return rows;
}

struct walk {
    struct rps_cut *cut;
    size_t list;
    struct rps_table *table;
    const struct rps_cut_aside *aside;
    rps_status (*visit)(void *context, const struct rps_row_view *row);
    void *context;
    struct rps_error *error;

    size_t shard;
    uint32_t segment;
    uint32_t line;
    uint64_t version; /* of the shard's index, at the last look */

    size_t row_bytes;
    size_t room; /* rows of a batch */
    size_t count;
    uint64_t keys[BATCH_ROWS];
    uint32_t meta[BATCH_ROWS];
    const char *at[BATCH_ROWS];
    char *rows; /* [room][row_bytes] */
};

static rps_status
show(struct walk *walk, uint64_t key, uint32_t meta, const char *row)
{
    const struct rps_row_view view = {.key = key,
            .value = row,
            .slots = (const float *)(const void *)(row +
                                                   walk->table->value_bytes),
            .meta = meta};

    return walk->visit(walk->context, &view);
}

/* Wanted rows of one line; their memory is asked for. */
static void
take_line_locked(struct walk *walk, struct rps_shard *shard,
        const struct rps_index_line *line)
{
    for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
        const uint32_t row = line->rows[lane];
        if (row != 0 && rps_track_take_locked(shard, row)) {
            walk->keys[walk->count] = line->keys[lane];
            walk->meta[walk->count] = line->meta[lane];
            walk->at[walk->count] = rps_shard_row_at(shard, row);
            rps_prefetch(walk->at[walk->count], walk->row_bytes);
            walk->count++;
        }
    }
}

/* The next rows of the shard. False: it has no more. */
static bool
take_batch_locked(struct walk *walk, struct rps_shard *shard)
{
    const struct rps_index *index = &shard->index;

    walk->count = 0;
    if (walk->version != rps_index_version(index)) {
        walk->version = rps_index_version(index);
        walk->line = 0;
    }
    while (walk->segment < index->segment_count) {
        const struct rps_segment *segment = &index->segments[walk->segment];
        for (; walk->line < segment->line_count; walk->line++) {
            if (walk->count + RPS_LINE_KEYS > walk->room) {
                return true;
            }
            take_line_locked(walk, shard, &segment->lines[walk->line]);
        }
        walk->segment++;
        walk->line = 0;
    }
    return false;
}

/* True: the shard has more. */
static bool
copy_batch(struct walk *walk)
{
    struct rps_shard *shard = &walk->table->shards[walk->shard];
    bool more = false;

    pthread_mutex_lock(&shard->lock);
    more = take_batch_locked(walk, shard);
    for (size_t i = 0; i < walk->count; i++) {
        memcpy(walk->rows + i * walk->row_bytes, walk->at[i], walk->row_bytes);
    }
    pthread_mutex_unlock(&shard->lock);
    return more;
}

static rps_status
show_batch(struct walk *walk)
{
    rps_status status = RPS_OK;

    for (size_t i = 0; status == RPS_OK && i < walk->count; i++) {
        status = show(walk, walk->keys[i], walk->meta[i],
                walk->rows + i * walk->row_bytes);
    }
    return status;
}

/* A block that was put away comes back. */
static rps_status
fetch_block(
        struct walk *walk, const struct rps_kept_block *block, char **bytes_out)
{
    rps_status status;

    *bytes_out = malloc(block->used);
    if (*bytes_out == NULL) {
        return rps_fail(walk->error, RPS_E_NOMEM,
                "table %s: no memory to read back %zu bytes of kept rows",
                walk->table->spec.name, block->used);
    }
    status = walk->aside->get(
            walk->aside->context, block->offset, *bytes_out, block->used);
    if (status != RPS_OK) {
        free(*bytes_out);
        *bytes_out = NULL;
    }
    return status;
}

static rps_status
show_block(struct walk *walk, const struct rps_kept_block *block)
{
    const bool changed_only = walk->cut->tables[walk->list].changed_only;
    const size_t stride = rps_kept_stride(walk->row_bytes);
    char *own = NULL;
    const char *bytes = block->bytes;
    rps_status status = RPS_OK;

    if (bytes == NULL) {
        status = fetch_block(walk, block, &own);
        bytes = own;
    }
    for (size_t at = 0; status == RPS_OK && at < block->used; at += stride) {
        struct rps_kept_row kept;
        memcpy(&kept, bytes + at, sizeof(kept));
        if (kept.changed != 0 || !changed_only) {
            status = show(walk, kept.key, kept.meta, bytes + at + sizeof(kept));
        }
    }
    free(own);
    return status;
}

/* What was kept of this table so far; what was kept of others is put away
 * if there is too much of it. */
static rps_status
show_kept(struct walk *walk)
{
    struct rps_kept_block *block = NULL;
    rps_status status = RPS_OK;

    while (status == RPS_OK && (block = rps_save_buffer_take(walk->cut->buffer,
                                        walk->list)) != NULL) {
        status = show_block(walk, block);
        rps_save_buffer_drop(walk->cut->buffer, block);
    }
    if (status == RPS_OK) {
        status = rps_save_buffer_put_away(walk->cut->buffer, walk->list,
                walk->aside->put, walk->aside->context);
    }
    return status;
}

static rps_status
check_buffer(struct walk *walk)
{
    const rps_status status = rps_save_buffer_state(walk->cut->buffer);

    return status == RPS_OK ? RPS_OK
                            : rps_fail(walk->error, status,
                                      status == RPS_E_LIMIT
                                              ? "the save buffer was full "
                                                "before the checkpoint was "
                                                "begun: raise --save-buffer, "
                                                "or save in time"
                                              : "no memory to keep a row as "
                                                "it was at the cut");
}

static rps_status
walk_shards(struct walk *walk)
{
    rps_status status = RPS_OK;

    while (status == RPS_OK && walk->shard < walk->table->shard_count) {
        const bool more = copy_batch(walk);
        status = show_batch(walk);
        if (status == RPS_OK) {
            status = show_kept(walk);
        }
        if (status == RPS_OK) {
            status = check_buffer(walk);
        }
        if (!more) {
            walk->shard++;
            walk->segment = 0;
            walk->line = 0;
        }
    }
    return status == RPS_OK ? show_kept(walk) : status;
}

rps_status
rps_cut_visit(struct rps_cut *cut, size_t table,
        const struct rps_cut_aside *aside,
        rps_status (*visit)(void *context, const struct rps_row_view *row),
        void *context, struct rps_error *error)
{
    struct walk walk = {.cut = cut,
            .list = table,
            .table = cut->tables[table].table,
            .aside = aside,
            .visit = visit,
            .context = context,
            .error = error};
    rps_status status = RPS_OK;

    walk.row_bytes = rps_table_row_bytes(walk.table);
    walk.room = BATCH_BYTES / walk.row_bytes;
    walk.room = walk.room > BATCH_ROWS ? BATCH_ROWS : walk.room;
    walk.room = walk.room < RPS_LINE_KEYS ? RPS_LINE_KEYS : walk.room;
    walk.rows = malloc(walk.room * walk.row_bytes);
    if (walk.rows == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "table %s: no memory to save it",
                cut->tables[table].spec.name);
    }
    status = walk_shards(&walk);
    if (status == RPS_OK) {
        status = check_buffer(&walk);
    }
    free(walk.rows);
    return status;
}

static int
compare_keys(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a;
    const uint64_t right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

/* No change goes to this generation any more: it is read without the lock,
 * once that was seen under it. */
static struct rps_generation *
generation_of(struct rps_shard *shard)
{
    struct rps_generation *generation = NULL;

    pthread_mutex_lock(&shard->lock);
    generation = &shard->track.generations[shard->track.now ^ 1u];
    pthread_mutex_unlock(&shard->lock);
    return generation;
}

rps_status
rps_cut_visit_erased(struct rps_cut *cut, size_t table_index,
        rps_status (*visit)(void *context, uint64_t key), void *context)
{
    struct rps_table *table = cut->tables[table_index].table;
    rps_status status = RPS_OK;

    for (size_t s = 0; status == RPS_OK && s < table->shard_count; s++) {
        struct rps_generation *generation = generation_of(&table->shards[s]);
        uint64_t *keys = generation->erased;
        if (generation->count > 1) {
            qsort(keys, generation->count, sizeof(*keys), compare_keys);
        }
        for (size_t i = 0; status == RPS_OK && i < generation->count; i++) {
            if (i == 0 || keys[i] != keys[i - 1]) {
                status = visit(context, keys[i]);
            }
        }
    }
    return status;
}

typedef rps_status visit_count_fn(
        void *context, const struct rps_admission_count *count);

static rps_status
fail_counts(const struct rps_table *table, struct rps_error *error)
{
    return rps_fail(error, RPS_E_NOMEM,
            "table %s: no memory to keep the counts of keys without a row as "
            "they were at the cut",
            table->spec.name);
}

static rps_status
visit_counts(struct rps_table *table, struct rps_shard *shard, bool last,
        visit_count_fn *visit, void *context, struct rps_error *error)
{
    void *copy = NULL;
    size_t places = 0;
    const uint64_t *keys = NULL;
    const uint16_t *counts = NULL;
    rps_status status = RPS_OK;
    bool kept = false;

    pthread_mutex_lock(&shard->lock);
    kept = rps_counts_frozen(&shard->counts, &copy, &places);
    if (last) {
        rps_counts_thaw(&shard->counts);
    }
    pthread_mutex_unlock(&shard->lock);
    if (!kept) {
        return fail_counts(table, error);
    }
    keys = copy;
    counts = (const uint16_t *)(const void *)(keys + places);
    for (size_t i = 0; status == RPS_OK && i < places; i++) {
        if (counts[i] != 0) {
            const struct rps_admission_count count = {
                    .id = keys[i], .count = counts[i]};
            status = visit(context, &count);
        }
    }
    free(copy);
    return status;
}

static rps_status
visit_cells(struct rps_table *table, uint32_t slot, visit_count_fn *visit,
        void *context, struct rps_error *error)
{
    uint8_t cells[RPS_SKETCH_CELLS];
    rps_status status = RPS_OK;

    if (!rps_sketch_frozen(table->sketch, slot, cells)) {
        return fail_counts(table, error);
    }
    for (uint32_t i = 0; status == RPS_OK && i < RPS_SKETCH_CELLS; i++) {
        if (cells[i] != 0) {
            const struct rps_admission_count count = {
                    .id = (uint64_t)slot * RPS_SKETCH_CELLS + i,
                    .count = cells[i]};
            status = visit(context, &count);
        }
    }
    return status;
}

rps_status
rps_cut_visit_admission(struct rps_cut *cut, size_t table_index, bool last,
        visit_count_fn *visit, void *context, struct rps_error *error)
{
    struct rps_table *table = cut->tables[table_index].table;
    rps_status status = RPS_OK;

    for (uint32_t slot = 0;
            status == RPS_OK && table->sketch != NULL && slot < RPS_SLOT_COUNT;
            slot++) {
        status = visit_cells(table, slot, visit, context, error);
    }
    for (size_t s = 0; status == RPS_OK && s < table->shard_count; s++) {
        status = visit_counts(
                table, &table->shards[s], last, visit, context, error);
    }
    return status;
}
