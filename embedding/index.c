/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding, storing and forgetting keys. How segments grow is in
 * index_grow.c.
 */
#include "embedding/index.h"

#include "base/hash.h"
#include "embedding/index_grow.h"

#include <assert.h>

void
rps_index_home_lines(const struct rps_index *index, size_t n,
        const uint64_t *hashes, struct rps_index_line **lines)
{
    /* acquire: who sees the doors sees what stands in them */
    const struct rps_index_doors *doors =
            atomic_load_explicit(&index->doors, memory_order_acquire);
    const uint32_t skip = index->skip;
    const uint32_t shift = 63 - doors->depth;

#pragma GCC unroll 4
    for (size_t i = 0; i < n; i++) {
        /* relaxed: acted on under the lock, after the version was seen */
        const uint64_t door = atomic_load_explicit(
                &doors->door[(hashes[i] << skip) >> 1 >> shift],
                memory_order_relaxed);
        const uint64_t line = (door >> 16) +
                              rps_index_home_line(hashes[i], door & UINT16_MAX);
        /* made of numbers, since nobody may own it any more */
        lines[i] = (struct rps_index_line *)(uintptr_t)(line * sizeof(**lines));
    }
}

void
rps_index_homes(const struct rps_index *index, size_t n, const uint64_t *hashes,
        struct rps_index_line **lines)
{
    rps_index_home_lines(index, n, hashes, lines);
    rps_index_ask_lines(lines, n);
}

static uint32_t
line_number(const struct rps_segment *segment, uint64_t hash)
{
    return (uint32_t)rps_index_home_line(hash, segment->line_count);
}

/* The walk of a key from its home: the line, the other of its pair, then
 * those of the next pair, around the end of the segment's lines[count]. The
 * line after `line`, which is the `walked`th. */
static struct rps_index_line *
next_line(struct rps_index_line *lines, uint32_t count,
        struct rps_index_line *line, uint32_t walked)
{
    const uint32_t other = (uint32_t)(line - lines) ^ 1;
    const uint32_t next = other + walked % 2 * 2;

    return &lines[next < count ? next : next - count];
}

/* How far the walk from `home` has come when it reaches `line`. */
static uint32_t
walked_to(const struct rps_segment *segment, uint32_t home, uint32_t line)
{
    const uint32_t pairs = segment->line_count / 2;

    return (line / 2 + pairs - home / 2) % pairs * 2 + ((home ^ line) & 1);
}

/* The lane with the key, or RPS_LANE_ABSENT, or RPS_LANE_BEYOND, which has the
 * shortest way: where the search is long, it is the rule. */
static unsigned
lane_of(const struct rps_index_line *line, uint64_t key)
{
    for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
        if (line->keys[lane] == key && line->rows[lane] != 0) {
            return lane;
        }
    }
    return rps_index_line_is_full(line) ? RPS_LANE_BEYOND : RPS_LANE_ABSENT;
}

static uint64_t
door_to(const struct rps_index *index, uint64_t hash)
{
    const struct rps_index_doors *doors =
            atomic_load_explicit(&index->doors, memory_order_relaxed);

    /* relaxed: the lock orders it */
    return atomic_load_explicit(
            &doors->door[(hash << index->skip) >> 1 >> (63 - doors->depth)],
            memory_order_relaxed);
}

static struct rps_index_line *
lines_behind(uint64_t door)
{
    return (struct rps_index_line *)(uintptr_t)((door >> 16) *
                                                sizeof(struct rps_index_line));
}

void
rps_index_next_lines(const struct rps_index *index, uint64_t hash,
        struct rps_index_line *home, struct rps_index_line **next)
{
    const uint64_t door = door_to(index, hash);
    struct rps_index_line *lines = lines_behind(door);
    const uint32_t count = door & UINT16_MAX;
    const uint32_t at = (uint32_t)(home - lines);
    const uint32_t pair = at + 2 < count ? at + 2 : at + 2 - count;

    /* as next_line() goes, in one step */
    next[0] = &lines[at ^ 1];
    next[1] = &lines[pair];
    next[2] = &lines[pair ^ 1];
}

/* By the door alone: the segment itself is another cache miss. */
static struct rps_index_place
find_from(uint64_t door, uint64_t key, struct rps_index_line *line,
        uint32_t walked)
{
    struct rps_index_line *lines = lines_behind(door);
    const uint32_t count = door & UINT16_MAX;

    for (;; walked++) {
        const unsigned lane = lane_of(line, key);
        if (lane == RPS_LANE_ABSENT) {
            return (struct rps_index_place){.line = NULL};
        }
        if (lane != RPS_LANE_BEYOND) {
            return (struct rps_index_place){
                    .line = line, .lane = lane, .row = line->rows[lane]};
        }
        line = next_line(lines, count, line, walked);
    }
}

struct rps_index_place
rps_index_find(const struct rps_index *index, uint64_t hash, uint64_t key)
{
    const uint64_t door = door_to(index, hash);
    const uint32_t count = door & UINT16_MAX;

    return find_from(door, key,
            lines_behind(door) + rps_index_home_line(hash, count), 0);
}

struct rps_index_place
rps_index_find_beyond(const struct rps_index *index, uint64_t hash,
        uint64_t key, struct rps_index_line *home)
{
    const uint64_t door = door_to(index, hash);

    return find_from(door, key,
            next_line(lines_behind(door), door & UINT16_MAX, home, 0), 1);
}

struct rps_index_place
rps_index_find_far(const struct rps_index *index, uint64_t hash, uint64_t key,
        struct rps_index_line *last)
{
    const uint64_t door = door_to(index, hash);
    const uint32_t walked = RPS_LINES_NEXT;

    if (!rps_index_line_is_full(last)) {
        return (struct rps_index_place){.line = NULL};
    }
    return find_from(door, key,
            next_line(lines_behind(door), door & UINT16_MAX, last, walked),
            walked + 1);
}

struct rps_index_place
rps_segment_insert(struct rps_segment *segment, uint64_t hash, uint64_t key,
        uint32_t row, uint32_t meta)
{
    struct rps_index_line *line = &segment->lines[line_number(segment, hash)];
    uint32_t walked = 0;
    unsigned lane = 0;

    assert(row != 0);
    assert(rps_segment_free(segment) > 0);

    while (line->rows[lane] != 0) {
        lane++;
        if (lane == RPS_LINE_KEYS) {
            line = next_line(segment->lines, segment->line_count, line, walked);
            walked++;
            lane = 0;
        }
    }
    line->keys[lane] = key;
    line->rows[lane] = row;
    line->meta[lane] = meta;
    segment->count++;
    return (struct rps_index_place){.line = line, .lane = lane, .row = row};
}

bool
rps_segment_fill(struct rps_segment *segment, uint8_t *filled, uint64_t hash,
        const struct rps_index_line *from, unsigned from_lane, bool at_home)
{
    const uint32_t home = line_number(segment, hash);
    struct rps_index_line *line = &segment->lines[home];
    unsigned lane = filled[home];

    if (at_home && lane == RPS_LINE_KEYS) {
        return false;
    }
    for (uint32_t walked = 0; lane == RPS_LINE_KEYS; walked++) {
        line = next_line(segment->lines, segment->line_count, line, walked);
        lane = filled[line - segment->lines];
    }
    line->keys[lane] = from->keys[from_lane];
    line->rows[lane] = from->rows[from_lane];
    line->meta[lane] = from->meta[from_lane];
    filled[line - segment->lines]++;
    segment->count++;
    return true;
}

rps_status
rps_index_insert(struct rps_index *index, uint64_t hash, uint64_t key,
        uint32_t row, uint64_t kept, struct rps_index_place *place_out)
{
    struct rps_segment *segment = rps_index_segment(index, hash);

    if (segment->count >= rps_segment_full(segment) ||
            rps_segment_free(segment) <= kept) {
        const rps_status status = rps_index_grow(index, hash, kept);
        segment = rps_index_segment(index, hash);
        if (status != RPS_OK && rps_segment_free(segment) <= kept) {
            return status;
        }
    }
    *place_out = rps_segment_insert(segment, hash, key, row, 0);
    index->count++;
    rps_index_note_free(index, segment);
    return RPS_OK;
}

/* A key in `line` whose walk came by the line numbered `hole` before. */
static struct rps_index_place
passed_in_line(const struct rps_index *index, const struct rps_segment *segment,
        struct rps_index_line *line, uint32_t hole)
{
    const uint32_t here = (uint32_t)(line - segment->lines);

    for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
        uint32_t home = 0;
        if (line->rows[lane] == 0) {
            continue;
        }
        home = line_number(
                segment, rps_key_hash(line->keys[lane], index->job_seed));
        if (walked_to(segment, home, hole) < walked_to(segment, home, here)) {
            return (struct rps_index_place){
                    .line = line, .lane = lane, .row = line->rows[lane]};
        }
    }
    return (struct rps_index_place){.line = NULL};
}

/*
 * A key lies in its home line, or all lines of its walk before its own are
 * full. So a place that gets free in a full line is filled with a key that
 * walked by; that frees another place, until none did. No key walked by
 * beyond a pair that is not full.
 */
static struct rps_index_place
key_that_passed(const struct rps_index *index,
        const struct rps_segment *segment, struct rps_index_line *line)
{
    const uint32_t hole = (uint32_t)(line - segment->lines);
    struct rps_index_line *at = line;
    bool full = true;

    for (uint32_t walked = 1; full && walked < segment->line_count; walked++) {
        const struct rps_index_line *before = at;
        struct rps_index_place place;
        /* the first of a pair does not end the search: a key may have
         * walked the other one only */
        bool ends = false;
        at = next_line(segment->lines, segment->line_count, at, walked - 1);
        ends = walked % 2 == 1 &&
               !(rps_index_line_is_full(at) &&
                       (walked == 1 || rps_index_line_is_full(before)));
        place = passed_in_line(index, segment, at, hole);
        if (place.row != 0) {
            return place;
        }
        full = !ends;
    }
    return (struct rps_index_place){.line = NULL};
}

void
rps_index_remove(struct rps_index *index, struct rps_index_place place)
{
    struct rps_segment *segment = rps_index_segment(
            index, rps_key_hash(place.line->keys[place.lane], index->job_seed));
    bool was_full = rps_index_line_is_full(place.line);

    assert(place.row != 0 && place.line->rows[place.lane] == place.row);

    place.line->rows[place.lane] = 0;
    if (was_full) {
        rps_index_new_version(index);
    }
    while (was_full) {
        const struct rps_index_place from =
                key_that_passed(index, segment, place.line);
        if (from.row == 0) {
            break;
        }
        place.line->keys[place.lane] = from.line->keys[from.lane];
        place.line->rows[place.lane] = from.row;
        place.line->meta[place.lane] = from.line->meta[from.lane];
        was_full = rps_index_line_is_full(from.line);
        from.line->rows[from.lane] = 0;
        place = from;
    }
    segment->count--;
    index->count--;
}

struct rps_segment *
rps_index_segment(const struct rps_index *index, uint64_t hash)
{
    const struct rps_index_doors *doors =
            atomic_load_explicit(&index->doors, memory_order_relaxed);

    return &index->segments[doors->segments[(hash << index->skip) >> 1 >>
                                            (63 - doors->depth)]];
}

uint64_t
rps_index_segment_end(
        const struct rps_index *index, const struct rps_segment *segment)
{
    const uint32_t shift = 64 - index->skip - segment->depth;
    const uint64_t mask = UINT64_MAX >> index->skip;

    return ((uint64_t)segment->first + 1) << shift & mask;
}

/* Of a part's segments. */
static uint32_t
least_free(const struct rps_index *index, uint32_t part)
{
    const struct rps_index_doors *doors =
            atomic_load_explicit(&index->doors, memory_order_relaxed);
    const uint64_t count = (uint64_t)1 << doors->depth;
    const uint64_t end = (part + 1) * count / RPS_INDEX_PARTS;
    uint64_t door = part * count / RPS_INDEX_PARTS;
    uint32_t least = UINT32_MAX;

    do { /* one door at least: it may be that of several parts */
        const struct rps_segment *segment =
                &index->segments[doors->segments[door]];
        const uint32_t free_places = rps_segment_free(segment);
        least = free_places < least ? free_places : least;
        door += (uint64_t)1 << (doors->depth - segment->depth);
    } while (door < end);
    return least;
}

bool
rps_index_has_free(struct rps_index *index, uint32_t part, uint64_t count)
{
    if (index->free_min[part] < count) {
        index->free_min[part] = least_free(index, part);
    }
    return index->free_min[part] >= count;
}

size_t
rps_index_line_bytes(const struct rps_index *index)
{
    return index->line_count * sizeof(struct rps_index_line);
}
