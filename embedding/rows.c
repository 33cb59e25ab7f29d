/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the chunks of one shard's rows; what stands in them is the table's. */
#include "embedding/rows.h"

#include "base/poison.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES      ((size_t)64)
#define CHUNK_BYTES_MAX ((size_t)128 << 10)

/* Padded to whole cache lines where that costs at most an eighth. */
static size_t
stride_of(size_t bytes)
{
    const size_t padded = (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;

    return (padded - bytes) * 8 <= bytes ? padded : bytes;
}

/* log2 of the rows that fit into a chunk; at least one row does. */
static uint32_t
rows_log2(size_t row_bytes)
{
    uint32_t log2 = 0;

    while ((row_bytes << (log2 + 1)) <= CHUNK_BYTES_MAX) {
        log2++;
    }
    return log2;
}

void
rps_rows_init(struct rps_rows *rows, struct rps_arena *arena, size_t bytes)
{
    const size_t stride = stride_of(bytes);

    assert(bytes >= sizeof(uint32_t) && bytes % sizeof(uint32_t) == 0);

    *rows = (struct rps_rows){
            .arena = arena, .stride = stride, .rows_log2 = rows_log2(stride)};
}

static uint64_t
bit_bytes(size_t words)
{
    return RPS_ROW_BITS * words * sizeof(uint64_t);
}

void
rps_rows_finish(struct rps_rows *rows)
{
    for (uint32_t i = 0; i < rows->chunk_count; i++) {
        struct rps_chunk *chunk = &rows->chunks[i];
        if (chunk->run.start != NULL) {
            rps_unpoison(chunk->run.start, chunk->run.bytes);
        }
        rps_arena_give(rows->arena, &chunk->run);
    }
    free(rows->chunks);
    free(rows->starts);
    free(rows->bits[0]);
    memset(rows->bits, 0, sizeof(rows->bits));
    rows->bit_words = 0;
    rows->chunks = NULL;
    rows->starts = NULL;
    rows->chunk_count = 0;
}

size_t
rps_rows_list_bytes(const struct rps_rows *rows)
{
    return rows->chunk_room * (sizeof(*rows->chunks) + sizeof(*rows->starts)) +
           bit_bytes(rows->bit_words);
}

static uint32_t
chunk_spare(const struct rps_chunk *chunk)
{
    return chunk->rows - chunk->live;
}

static rps_status
make_list_room(struct rps_rows *rows)
{
    const uint32_t room = rows->chunk_room + rows->chunk_room / 4 + 4;
    struct rps_chunk *chunks = NULL;
    char **starts = NULL;

    if (rows->chunk_count < rows->chunk_room) {
        return RPS_OK;
    }
    chunks = realloc(rows->chunks, room * sizeof(*chunks));
    if (chunks == NULL) {
        return RPS_E_NOMEM;
    }
    rows->chunks = chunks;
    starts = realloc(rows->starts, room * sizeof(*starts));
    if (starts == NULL) {
        return RPS_E_NOMEM;
    }
    rows->starts = starts;
    rows->chunk_room = room;
    return RPS_OK;
}

/* Bits for all numbers below `end`; new ones are 0. */
static rps_status
make_bit_room(struct rps_rows *rows, uint64_t end)
{
    const size_t old = rows->bit_words;
    size_t words = old;
    uint64_t *bits = NULL;

    if (end <= (uint64_t)old * 64) {
        return RPS_OK;
    }
    words = (size_t)((end + 63) / 64);
    words += words > 8 ? words / 8 : 0;
    bits = calloc(RPS_ROW_BITS * words, sizeof(*bits));
    if (bits == NULL) {
        return RPS_E_NOMEM;
    }
    for (unsigned i = 0; i < RPS_ROW_BITS; i++) {
        if (old > 0) {
            memcpy(bits + i * words, rows->bits[i], old * sizeof(*bits));
        }
    }
    free(rows->bits[0]);
    for (unsigned i = 0; i < RPS_ROW_BITS; i++) {
        rows->bits[i] = bits + i * words;
    }
    rows->bit_words = words;
    return RPS_OK;
}

/* A number without a chunk: one that was left, or the next. */
static uint32_t
free_number(const struct rps_rows *rows)
{
    uint32_t number = 0;

    if (rows->gap_count == 0) {
        return rows->chunk_count;
    }
    while (rows->chunks[number].rows != 0) {
        number++;
    }
    return number;
}

static rps_status
add_chunk(struct rps_rows *rows, uint32_t row_count)
{
    const uint32_t number = free_number(rows);
    struct rps_run run;
    rps_status status = make_list_room(rows);

    if (status == RPS_OK && (uint64_t)number >= UINT32_MAX >> rows->rows_log2) {
        status = RPS_E_LIMIT; /* row numbers are u32, and one stands for none */
    }
    if (status == RPS_OK) {
        status = make_bit_room(
                rows, ((uint64_t)number << rows->rows_log2) + row_count);
    }
    if (status == RPS_OK) {
        status = rps_arena_take(rows->arena, row_count * rows->stride, &run);
    }
    if (status != RPS_OK) {
        return status;
    }
    if (number == rows->chunk_count) {
        rows->chunk_count++;
    } else {
        rows->gap_count--;
    }
    rows->starts[number] = run.start;
    rows->chunks[number] = (struct rps_chunk){
            .run = run, .rows = row_count, .fresh = row_count};
    rows->spare += row_count;
    rows->open = rows->open < number ? rows->open : number;
    rps_poison(run.start, run.bytes);
    return RPS_OK;
}

/* The only chunk, larger: its rows move. */
static rps_status
grow_first(struct rps_rows *rows, uint32_t row_count)
{
    struct rps_chunk *chunk = &rows->chunks[0];
    const uint32_t more = row_count - chunk->rows;
    struct rps_run run;
    rps_status status = make_bit_room(rows, row_count);

    if (status == RPS_OK) {
        status = rps_arena_take(rows->arena, row_count * rows->stride, &run);
    }
    if (status != RPS_OK) {
        return status;
    }
    rps_unpoison(chunk->run.start, chunk->run.bytes);
    memcpy(run.start, chunk->run.start, chunk->rows * rows->stride);
    rps_arena_give(rows->arena, &chunk->run);
    chunk->run = run;
    chunk->rows = row_count;
    chunk->fresh += more;
    rows->starts[0] = run.start;
    rows->spare += more;
    rows->open = 0;
    return RPS_OK;
}

static bool
first_is_small(const struct rps_rows *rows)
{
    return rows->chunk_count == 1 && rows->chunks[0].rows != 0 &&
           rows->chunks[0].rows < (uint32_t)1 << rows->rows_log2;
}

static uint32_t
first_rows(uint64_t count, uint32_t full)
{
    uint32_t rows = RPS_ROWS_FIRST;

    while (rows < count && rows < full) {
        rows *= 2;
    }
    return rows < full ? rows : full;
}

rps_status
rps_rows_reserve(struct rps_rows *rows, uint64_t count)
{
    const uint32_t full = (uint32_t)1 << rows->rows_log2;
    rps_status status = RPS_OK;

    while (status == RPS_OK && rows->spare < count) {
        if (first_is_small(rows)) {
            const uint32_t doubled = rows->chunks[0].rows * 2;
            status = grow_first(rows, doubled < full ? doubled : full);
        } else if (rows->chunk_count == 0) {
            status = add_chunk(rows, first_rows(count, full));
        } else {
            status = add_chunk(rows, full);
        }
    }
    return status;
}

static bool
can_take(const struct rps_chunk *chunk)
{
    return !chunk->drained && chunk_spare(chunk) > 0;
}

/* A freed row holds the place + 1 of the next freed one, 0 for none. */
static uint32_t
take_freed(struct rps_rows *rows, struct rps_chunk *chunk)
{
    const uint32_t place = chunk->freed - 1;
    char *row = (char *)chunk->run.start + place * rows->stride;

    rps_unpoison(row, rows->stride);
    memcpy(&chunk->freed, row, sizeof(chunk->freed));
    return place;
}

uint32_t
rps_rows_take(struct rps_rows *rows)
{
    struct rps_chunk *chunk = NULL;
    uint32_t place = 0;

    assert(rows->spare > 0);

    while (!can_take(&rows->chunks[rows->open])) {
        rows->open++;
        assert(rows->open < rows->chunk_count);
    }
    chunk = &rows->chunks[rows->open];
    if (chunk->freed != 0) {
        place = take_freed(rows, chunk);
    } else {
        place = chunk->rows - chunk->fresh;
        chunk->fresh--;
        rps_unpoison(
                (char *)chunk->run.start + place * rows->stride, rows->stride);
    }
    chunk->live++;
    rows->live++;
    rows->spare--;
    return rows->open << rows->rows_log2 | place;
}

static void
leave_chunk(struct rps_rows *rows, uint32_t number)
{
    struct rps_chunk *chunk = &rows->chunks[number];

    assert(chunk->live == 0 && chunk->drained);
    rps_unpoison(chunk->run.start, chunk->run.bytes);
    rps_arena_give(rows->arena, &chunk->run);
    *chunk = (struct rps_chunk){.rows = 0};
    rows->starts[number] = NULL;
    rows->gap_count++;
    while (rows->chunk_count > 0 &&
            rows->chunks[rows->chunk_count - 1].rows == 0) {
        rows->chunk_count--;
        rows->gap_count--;
    }
}

void
rps_rows_give(struct rps_rows *rows, uint32_t number)
{
    const uint32_t index = rps_rows_chunk_of(rows, number);
    struct rps_chunk *chunk = &rows->chunks[index];
    char *row = rps_rows_at(rows, number);

    assert(chunk->live > 0);

    for (unsigned i = 0; i < RPS_ROW_BITS; i++) {
        rps_rows_clear_bit(rows, i, number);
    }
    memcpy(row, &chunk->freed, sizeof(chunk->freed));
    chunk->freed = number - (index << rows->rows_log2) + 1;
    rps_poison(row, rows->stride);
    chunk->live--;
    rows->live--;
    if (!chunk->drained) {
        rows->spare++;
        rows->open = rows->open < index ? rows->open : index;
    } else if (chunk->live == 0) {
        leave_chunk(rows, index);
    }
}

void
rps_rows_fill_bit(struct rps_rows *rows, enum rps_row_bit bit, bool value)
{
    if (rows->bit_words > 0) {
        memset(rows->bits[bit], value ? 0xff : 0,
                rows->bit_words * sizeof(*rows->bits[bit]));
    }
}

void
rps_rows_copy_bits(struct rps_rows *rows, uint32_t number,
        const struct rps_rows *old, uint32_t old_number)
{
    for (unsigned i = 0; i < RPS_ROW_BITS; i++) {
        if (rps_rows_bit(old, i, old_number)) {
            rps_rows_set_bit(rows, i, number);
        } else {
            rps_rows_clear_bit(rows, i, number);
        }
    }
}

void
rps_rows_drain(struct rps_rows *rows, uint32_t chunk)
{
    assert(!rows->chunks[chunk].drained && rows->chunks[chunk].rows != 0);

    rows->chunks[chunk].drained = true;
    rows->spare -= chunk_spare(&rows->chunks[chunk]);
    if (rows->chunks[chunk].live == 0) {
        leave_chunk(rows, chunk);
    }
}

void
rps_rows_keep(struct rps_rows *rows, uint32_t chunk)
{
    assert(rows->chunks[chunk].drained);

    rows->chunks[chunk].drained = false;
    rows->spare += chunk_spare(&rows->chunks[chunk]);
    rows->open = rows->open < chunk ? rows->open : chunk;
}

/* What holds no row is poisoned: the fresh ones, and those given back. */
static void
poison_spare(const struct rps_rows *rows, const struct rps_chunk *chunk)
{
    char *start = chunk->run.start;
    const size_t taken = (chunk->rows - chunk->fresh) * rows->stride;

    for (uint32_t next = chunk->freed; next != 0;) {
        char *row = start + (next - 1) * rows->stride;
        memcpy(&next, row, sizeof(next));
        rps_poison(row, rows->stride);
    }
    rps_poison(start + taken, chunk->run.bytes - taken);
}

bool
rps_rows_move(struct rps_rows *rows, uint32_t number)
{
    struct rps_chunk *chunk = &rows->chunks[number];
    struct rps_run run;

    if (rps_arena_take(rows->arena, chunk->run.bytes, &run) != RPS_OK) {
        return false;
    }
    if (run.region >= chunk->run.region) {
        rps_arena_give(rows->arena, &run);
        return false;
    }
    rps_unpoison(chunk->run.start, chunk->run.bytes);
    memcpy(run.start, chunk->run.start, chunk->rows * rows->stride);
    rps_arena_give(rows->arena, &chunk->run);
    chunk->run = run;
    rows->starts[number] = run.start;
    poison_spare(rows, chunk);
    return true;
}
