/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the memory of an index: the lines of its segments, its doors. Every
 * change is made beside what it replaces, so that a failure changes nothing.
 */
#include "embedding/index_grow.h"

#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_LINES (RPS_PAGE_BYTES / sizeof(struct rps_index_line))
#define LINES_SPLIT                                         \
    512u /* what would be larger than once or twice this is \
          * split: 32 to 64 KiB */
#define LINES_MAX      (RPS_REGION_BYTES / sizeof(struct rps_index_line))
#define LINE_HASH_BITS 32u /* the low ones, which name the line */

_Static_assert(LINES_MAX <= UINT16_MAX, "a door holds a line count");

static struct rps_index_doors *
doors_of(const struct rps_index *index)
{
    return atomic_load_explicit(&index->doors, memory_order_relaxed);
}

static uint64_t
door_of(const struct rps_segment *segment)
{
    const uint64_t start =
            (uintptr_t)segment->lines / sizeof(struct rps_index_line);

    return start << 16 | segment->line_count;
}

/* Copy what a probe needs into the segment's doors. Relaxed: readers that
 * act on it hold the lock. */
static void
paint_doors(struct rps_index *index, uint32_t number)
{
    struct rps_index_doors *doors = doors_of(index);
    const struct rps_segment *segment = &index->segments[number];
    const uint32_t log2 = doors->depth - segment->depth;
    const uint32_t first = segment->first << log2;

    for (uint32_t i = first; i < first + ((uint32_t)1 << log2); i++) {
        atomic_store_explicit(
                &doors->door[i], door_of(segment), memory_order_relaxed);
        doors->segments[i] = number;
    }
    rps_index_new_version(index);
}

/* A number of the segment's own, always the same. */
static uint64_t
draw_of(const struct rps_segment *segment)
{
    return rps_mix64((uint64_t)segment->first << 32 ^ segment->depth);
}

/*
 * Lines for so many keys, and more than `kept` further ones: 9/8 to 5/4 of
 * what they fill to 59/64, by a draw from the segment and its size; whole
 * pairs, whole pages from a page on.
 */
static uint32_t
lines_for(const struct rps_segment *segment, uint64_t count, uint64_t kept)
{
    const uint64_t tight = (count * 64 / 59 + RPS_LINE_KEYS) / RPS_LINE_KEYS;
    const uint64_t least = (count + kept + 1) / RPS_LINE_KEYS + 1;
    const uint64_t draw = rps_mix64(draw_of(segment) ^ segment->line_count);
    uint64_t lines = tight + tight / 8 + draw % (tight / 8 + 1);

    lines = lines < least ? least : lines;
    lines = lines < PAGE_LINES
                    ? (lines + 1) / 2 * 2
                    : (lines + PAGE_LINES - 1) / PAGE_LINES * PAGE_LINES;
    return lines > UINT32_MAX ? UINT32_MAX : (uint32_t)lines;
}

/* All segments of a depth hold about as many keys: so that they do not all
 * split when that is one number, each has its own. */
static uint32_t
lines_split(const struct rps_segment *segment)
{
    return LINES_SPLIT + (uint32_t)(draw_of(segment) % LINES_SPLIT);
}

/* Give a segment empty lines; its old ones are the caller's. */
static rps_status
take_lines(struct rps_arena *arena, struct rps_segment *segment, uint32_t lines)
{
    const size_t bytes = lines * sizeof(struct rps_index_line);
    rps_status status = RPS_OK;

    if (lines > LINES_MAX) {
        return RPS_E_LIMIT;
    }
    status = rps_arena_take(arena, bytes, &segment->run);
    if (status == RPS_OK) {
        segment->lines = segment->run.start;
        segment->line_count = lines;
        segment->count = 0;
        memset(segment->lines, 0, bytes);
    }
    return status;
}

/* Which half of it a key of a segment belongs to: the next bit. */
static unsigned
half_of(const struct rps_index *index, const struct rps_segment *whole,
        uint64_t hash)
{
    return (unsigned)(hash << index->skip << whole->depth >> 63);
}

static void
hash_line(const struct rps_index *index, const struct rps_index_line *line,
        uint64_t *hashes)
{
    rps_key_hashes(RPS_LINE_KEYS, line->keys, index->job_seed, hashes);
}

/* What is moved into to[0], or, where a segment is split, to[0] and to[1]. */
struct move {
    const struct rps_index *index;
    const struct rps_segment *from;
    struct rps_segment *to;
    bool splits;
    uint8_t filled[2][LINES_MAX]; /* keys of each line of to[] */
    uint8_t left[LINES_MAX];      /* a bit a lane of from: not moved yet */
};

/* What is left of line i; at_home: no further than to their home lines. */
static void
move_line(struct move *move, uint32_t i, bool at_home)
{
    const struct rps_index_line *line = &move->from->lines[i];
    uint64_t hashes[RPS_LINE_KEYS];

    hash_line(move->index, line, hashes);
    for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
        const unsigned half =
                move->splits ? half_of(move->index, move->from, hashes[lane])
                             : 0;
        if ((move->left[i] >> lane & 1) != 0 &&
                rps_segment_fill(&move->to[half], move->filled[half],
                        hashes[lane], line, lane, at_home)) {
            move->left[i] &= (uint8_t) ~(1u << lane);
        }
    }
}

/*
 * All lines are gone through from front to back: the order of keys in lines
 * is that of their hashes, nearly. Twice: a key that finds its home line full
 * must not take the place of one that is at home where it went.
 */
static void
move_keys(const struct rps_index *index, const struct rps_segment *from,
        struct rps_segment *to, bool splits)
{
    struct move move;

    move.index = index;
    move.from = from;
    move.to = to;
    move.splits = splits;
    memset(move.filled[0], 0, to[0].line_count);
    if (splits) {
        memset(move.filled[1], 0, to[1].line_count);
    }
    for (uint32_t i = 0; i < from->line_count; i++) {
        move.left[i] = 0;
        for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
            move.left[i] |= (uint8_t)((from->lines[i].rows[lane] != 0) << lane);
        }
        move_line(&move, i, true);
    }
    for (uint32_t i = 0; i < from->line_count; i++) {
        if (move.left[i] != 0) {
            move_line(&move, i, false);
        }
    }
}

/* Put a segment's keys into the lines of `fresh`, which is then it. */
static void
replace(struct rps_index *index, struct rps_segment *segment,
        struct rps_segment *fresh)
{
    struct rps_segment old = *segment;

    move_keys(index, &old, fresh, false);
    assert(fresh->count == old.count);
    *segment = *fresh;
    index->line_count += fresh->line_count;
    index->line_count -= old.line_count;
    rps_index_note_free(index, segment);
    paint_doors(index, (uint32_t)(segment - index->segments));
    rps_arena_give(index->arena, &old.run);
}

static rps_status
resize(struct rps_index *index, struct rps_segment *segment, uint32_t lines)
{
    struct rps_segment fresh = *segment;
    const rps_status status = take_lines(index->arena, &fresh, lines);

    if (status == RPS_OK) {
        replace(index, segment, &fresh);
    }
    return status;
}

bool
rps_index_move(struct rps_index *index, struct rps_segment *segment)
{
    struct rps_segment fresh = *segment;

    if (take_lines(index->arena, &fresh, segment->line_count) != RPS_OK) {
        return false;
    }
    if (fresh.run.region >= segment->run.region) {
        rps_arena_give(index->arena, &fresh.run);
        return false;
    }
    replace(index, segment, &fresh);
    return true;
}

static rps_status
make_segment_room(struct rps_index *index)
{
    const uint32_t room = index->segment_room + index->segment_room / 4 + 1;
    struct rps_segment *segments = NULL;

    if (index->segment_count < index->segment_room) {
        return RPS_OK;
    }
    segments = realloc(index->segments, room * sizeof(*segments));
    if (segments == NULL) {
        return RPS_E_NOMEM;
    }
    index->segments = segments;
    index->segment_room = room;
    return RPS_OK;
}

static size_t
doors_bytes(uint32_t depth)
{
    const struct rps_index_doors *doors = NULL;

    return sizeof(*doors) +
           ((size_t)1 << depth) *
                   (sizeof(doors->door[0]) + sizeof(doors->segments[0]));
}

static struct rps_index_doors *
new_doors(uint32_t depth)
{
    const size_t count = (size_t)1 << depth;
    struct rps_index_doors *doors = malloc(doors_bytes(depth));

    if (doors != NULL) {
        doors->replaced = NULL;
        doors->segments = (uint32_t *)(void *)((char *)(doors + 1) +
                                               count * sizeof(doors->door[0]));
        doors->depth = depth;
    }
    return doors;
}

static rps_status
double_doors(struct rps_index *index)
{
    struct rps_index_doors *old = doors_of(index);
    struct rps_index_doors *doors = new_doors(old->depth + 1);

    if (doors == NULL) {
        return RPS_E_NOMEM;
    }
    for (uint32_t i = 0; i < (uint32_t)1 << doors->depth; i++) {
        atomic_init(&doors->door[i],
                atomic_load_explicit(&old->door[i / 2], memory_order_relaxed));
        doors->segments[i] = old->segments[i / 2];
    }
    doors->replaced = old;
    /* release: a prefetch that sees them sees what stands in them */
    atomic_store_explicit(&index->doors, doors, memory_order_release);
    return RPS_OK;
}

/* counts[2]: keys of each half. */
static void
count_halves(const struct rps_index *index, const struct rps_segment *whole,
        uint32_t *counts)
{
    uint64_t hashes[RPS_LINE_KEYS];
    uint32_t second = 0;

    for (uint32_t i = 0; i < whole->line_count; i++) {
        const struct rps_index_line *line = &whole->lines[i];
        hash_line(index, line, hashes);
        for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
            second += half_of(index, whole, hashes[lane]) &
                      (line->rows[lane] != 0);
        }
    }
    counts[0] = whole->count - second;
    counts[1] = second;
}

/* halves[2]: the segments that a segment will be; they have lines. */
static rps_status
make_halves(struct rps_index *index, const struct rps_segment *whole,
        struct rps_segment *halves, uint64_t kept)
{
    uint32_t counts[2];
    rps_status status = RPS_OK;

    count_halves(index, whole, counts);
    for (uint32_t i = 0; status == RPS_OK && i < 2; i++) {
        halves[i] = (struct rps_segment){
                .depth = whole->depth + 1, .first = whole->first * 2 + i};
        status = take_lines(index->arena, &halves[i],
                lines_for(&halves[i], counts[i] + (uint64_t)1, kept));
    }
    if (status != RPS_OK) {
        rps_arena_give(index->arena, &halves[0].run);
    }
    return status;
}

static bool
is_shallow(const struct rps_segment *segment)
{
    return segment->depth < RPS_INDEX_PARTS_LOG2;
}

static rps_status
split(struct rps_index *index, uint32_t number, uint64_t kept)
{
    struct rps_segment halves[2] = {{.lines = NULL}};
    struct rps_segment old;
    rps_status status = make_segment_room(index);

    if (status == RPS_OK &&
            index->segments[number].depth == doors_of(index)->depth) {
        status = double_doors(index);
    }
    if (status == RPS_OK) {
        status = make_halves(index, &index->segments[number], halves, kept);
    }
    if (status != RPS_OK) {
        return status;
    }
    old = index->segments[number];
    move_keys(index, &old, halves, true);
    for (uint32_t i = 0; i < 2; i++) {
        rps_index_note_free(index, &halves[i]);
        index->line_count += halves[i].line_count;
    }
    assert(halves[0].count + halves[1].count == old.count);
    index->line_count -= old.line_count;
    index->shallow -= is_shallow(&old);
    index->shallow += 2u * is_shallow(&halves[0]);
    index->segments[number] = halves[0];
    index->segments[index->segment_count] = halves[1];
    index->segment_count++;
    paint_doors(index, number);
    paint_doors(index, index->segment_count - 1);
    rps_arena_give(index->arena, &old.run);
    return RPS_OK;
}

static bool
is_to_split(const struct rps_index *index, const struct rps_segment *segment,
        uint32_t lines)
{
    return lines > lines_split(segment) &&
           index->skip + segment->depth < 64 - LINE_HASH_BITS;
}

rps_status
rps_index_grow(struct rps_index *index, uint64_t hash, uint64_t kept)
{
    struct rps_segment *segment = rps_index_segment(index, hash);
    const uint32_t lines =
            lines_for(segment, segment->count + (uint64_t)1, kept);

    return is_to_split(index, segment, lines)
                   ? split(index, (uint32_t)(segment - index->segments), kept)
                   : resize(index, segment, lines);
}

/* Lines for its share of so many keys of the whole index. */
static uint32_t
lines_of_share(const struct rps_segment *segment, uint64_t keys)
{
    return lines_for(segment, (keys >> segment->depth) + 1, 0);
}

bool
rps_index_expect(struct rps_index *index, uint64_t keys)
{
    rps_status status = RPS_OK;

    for (uint32_t i = 0; status == RPS_OK && i < index->segment_count; i++) {
        uint32_t lines = lines_of_share(&index->segments[i], keys);
        while (status == RPS_OK &&
                is_to_split(index, &index->segments[i], lines)) {
            status = split(index, i, 0); /* the other half comes last */
            lines = lines_of_share(&index->segments[i], keys);
        }
        if (status == RPS_OK && lines > index->segments[i].line_count) {
            status = resize(index, &index->segments[i], lines);
        }
    }
    return status == RPS_OK;
}

void
rps_index_shrink(
        struct rps_index *index, struct rps_segment *segment, uint64_t kept)
{
    const uint64_t places = (uint64_t)segment->line_count * RPS_LINE_KEYS;
    const uint32_t lines =
            lines_for(segment, segment->count + (uint64_t)1, kept);

    if (segment->count < places * 3 / 8 && lines < segment->line_count) {
        (void)resize(index, segment, lines); /* or it stays as it is */
    }
}

rps_status
rps_index_init(struct rps_index *index, struct rps_arena *arena,
        uint64_t job_seed, uint32_t skip)
{
    rps_status status = RPS_OK;

    *index = (struct rps_index){
            .arena = arena, .job_seed = job_seed, .skip = skip};
    atomic_init(&index->doors, new_doors(0));
    status = doors_of(index) == NULL ? RPS_E_NOMEM : make_segment_room(index);
    if (status == RPS_OK) {
        index->segments[0] = (struct rps_segment){.lines = NULL};
        status = take_lines(arena, &index->segments[0], 2);
    }
    if (status == RPS_OK) {
        index->segment_count = 1;
        index->shallow = 1;
        index->line_count = 2;
        paint_doors(index, 0);
    }
    return status;
}

void
rps_index_finish(struct rps_index *index)
{
    struct rps_index_doors *doors = doors_of(index);

    for (uint32_t i = 0; i < index->segment_count; i++) {
        rps_arena_give(index->arena, &index->segments[i].run);
    }
    free(index->segments);
    index->segments = NULL;
    index->segment_count = 0;
    while (doors != NULL) {
        struct rps_index_doors *replaced = doors->replaced;
        free(doors);
        doors = replaced;
    }
    atomic_store_explicit(&index->doors, NULL, memory_order_relaxed);
}

size_t
rps_index_list_bytes(const struct rps_index *index)
{
    const struct rps_index_doors *doors = doors_of(index);
    size_t bytes = index->segment_room * sizeof(*index->segments);

    for (; doors != NULL; doors = doors->replaced) {
        bytes += doors_bytes(doors->depth);
    }
    return bytes;
}
