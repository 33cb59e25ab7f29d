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
 *
 * Requests wait for the locks that are held here, so what is done under one
 * is a slice of some microseconds: so many rows, so many lines, and the rows
 * have been asked for when they are copied. Nothing here waits for a request:
 * a shard that is busy is gone on with later.
 */
#include "base/give_way.h"
#include "embedding/cut_impl.h"
#include "embedding/prefetch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of one slice: what its rows take stays in the L2 until they are copied. */
#define SLICE_ROWS  16u
#define SLICE_BYTES ((size_t)8 << 10)
#define SLICE_LINES 64u /* of the index, where few rows are wanted */
/* Of a shard: its neighbour in the file is another, so that a restore's
 * threads meet at none. */
#define TURN_SLICES 64u
#define BUSY_NS     50000 /* all shards that are left are in use */

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

/* How far one shard has been walked. */
struct place {
    uint64_t version; /* of its index, at the last look */
    uint32_t segment;
    uint32_t line;
    bool done;
};

struct walk {
    struct rps_cut *cut;
    size_t list;
    struct rps_table *table;
    const struct rps_cut_aside *aside;
    rps_status (*visit)(void *context, const struct rps_row_view *row);
    void *context;
    struct rps_error *error;

    struct place *places; /* [shard_count] */
    size_t row_bytes;
    size_t room; /* rows of a slice */
    size_t count;
    uint64_t keys[SLICE_ROWS];
    uint32_t meta[SLICE_ROWS];
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

/* Copy the wanted rows of one line. */
static void
take_line_locked(struct walk *walk, struct rps_shard *shard,
        const struct rps_index_line *line)
{
    for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
        const uint32_t row = line->rows[lane];
        if (row != 0 && rps_track_take_locked(shard, row)) {
            walk->keys[walk->count] = line->keys[lane];
            walk->meta[walk->count] = line->meta[lane];
            memcpy(walk->rows + walk->count * walk->row_bytes,
                    rps_shard_row_at(shard, row), walk->row_bytes);
            walk->count++;
        }
    }
}

/* The line at a place, and the place behind it. NULL: there is no more. */
static const struct rps_index_line *
next_line(const struct rps_index *index, struct place *place)
{
    while (place->segment < index->segment_count) {
        const struct rps_segment *segment = &index->segments[place->segment];
        if (place->line < segment->line_count) {
            return &segment->lines[place->line++];
        }
        place->segment++;
        place->line = 0;
    }
    place->done = true;
    return NULL;
}

static void
take_slice_locked(
        struct walk *walk, struct rps_shard *shard, struct place *place)
{
    const struct rps_index *index = &shard->index;
    const struct rps_index_line *line = NULL;

    if (place->version != rps_index_version(index)) {
        place->version = rps_index_version(index);
        place->line = 0;
    }
    for (size_t i = 0;
            i < SLICE_LINES && walk->count + RPS_LINE_KEYS <= walk->room &&
            (line = next_line(index, place)) != NULL;
            i++) {
        take_line_locked(walk, shard, line);
    }
}

/* What the slice after this one will copy; not all of it may be there still,
 * and none of it is waited for. */
static void
ask_slice_locked(
        const struct walk *walk, struct rps_shard *shard, struct place place)
{
    const struct rps_index_line *line = NULL;
    size_t asked = 0;

    for (size_t i = 0; i < SLICE_LINES && asked < walk->room &&
                       (line = next_line(&shard->index, &place)) != NULL;
            i++) {
        for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
            const uint32_t row = line->rows[lane];
            if (row != 0 && rps_shard_bit(shard, RPS_ROW_WANTED, row)) {
                rps_prefetch(rps_shard_row_at(shard, row), walk->row_bytes);
                asked++;
            }
        }
    }
}

/* False: somebody else has the shard. */
static bool
copy_slice(struct walk *walk, size_t s)
{
    struct rps_shard *shard = &walk->table->shards[s];

    walk->count = 0;
    if (pthread_mutex_trylock(&shard->lock) != 0) {
        return false;
    }
    take_slice_locked(walk, shard, &walk->places[s]);
    ask_slice_locked(walk, shard, walk->places[s]);
    pthread_mutex_unlock(&shard->lock);
    return true;
}

static rps_status
show_slice(struct walk *walk)
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

/* What was kept of this table so far, or so much of it as makes a block; what
 * was kept of others is put away if there is too much of it. */
static rps_status
show_kept(struct walk *walk, bool all)
{
    struct rps_kept_block *block = NULL;
    rps_status status = RPS_OK;

    while (status == RPS_OK && (block = rps_save_buffer_take(walk->cut->buffer,
                                        walk->list, all)) != NULL) {
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

/* A slice of the shard, and what was kept. */
static rps_status
show_both(struct walk *walk)
{
    rps_status status = show_slice(walk);

    if (status == RPS_OK) {
        status = show_kept(walk, false);
    }
    return status == RPS_OK ? check_buffer(walk) : status;
}

/* Some slices of a shard, or none where somebody else has it: *moved says. */
static rps_status
walk_shard(struct walk *walk, size_t s, bool *moved)
{
    rps_status status = RPS_OK;

    for (unsigned i = 0; status == RPS_OK && i < TURN_SLICES &&
                         !walk->places[s].done && copy_slice(walk, s);
            i++) {
        *moved = true;
        status = show_both(walk);
        rps_give_way();
    }
    return status;
}

static void
wait_for_shards(void)
{
    const struct timespec pause = {.tv_nsec = BUSY_NS};

    (void)nanosleep(&pause, NULL);
}

/* Around until all are done. */
static rps_status
walk_shards(struct walk *walk)
{
    const size_t count = walk->table->shard_count;
    rps_status status = RPS_OK;
    bool more = true;

    while (status == RPS_OK && more) {
        bool moved = false;
        more = false;
        for (size_t s = 0; status == RPS_OK && s < count; s++) {
            status = walk_shard(walk, s, &moved);
            more = more || !walk->places[s].done;
        }
        if (status == RPS_OK && more && !moved) {
            wait_for_shards();
            status = show_kept(walk, false);
        }
    }
    return status == RPS_OK ? show_kept(walk, true) : status;
}

static size_t
slice_rows(size_t row_bytes)
{
    const size_t fit = SLICE_BYTES / row_bytes;

    return fit < RPS_LINE_KEYS ? RPS_LINE_KEYS
           : fit > SLICE_ROWS  ? SLICE_ROWS
                               : fit;
}

static rps_status
walk_table(struct walk *walk)
{
    rps_status status = RPS_E_NOMEM;

    walk->places = calloc(walk->table->shard_count, sizeof(*walk->places));
    walk->rows = malloc(walk->room * walk->row_bytes);
    if (walk->places != NULL && walk->rows != NULL) {
        status = walk_shards(walk);
    } else {
        (void)rps_fail(walk->error, status, "table %s: no memory to save it",
                walk->table->spec.name);
    }
    if (status == RPS_OK) {
        status = check_buffer(walk);
    }
    free(walk->places);
    free(walk->rows);
    return status;
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

    walk.row_bytes = rps_table_row_bytes(walk.table);
    walk.room = slice_rows(walk.row_bytes);
    return walk_table(&walk);
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
