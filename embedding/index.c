/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding, storing and forgetting keys. How segments grow is in
 * index_grow.c.
 */
#include "embedding/index.h"

#include "base/hash.h"
#include "embedding/index_grow.h"

#include <assert.h>

static struct rps_index_line *
next_line(const struct rps_segment *segment, struct rps_index_line *line)
{
    line++;
    return line == segment->lines + segment->line_count ? segment->lines : line;
}

/* The lane with the key, or RPS_LANE_ABSENT, or RPS_LANE_BEYOND. */
static unsigned
lane_of(const struct rps_index_line *line, uint64_t key)
{
    unsigned free_places = 0;

    for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
        if (line->rows[lane] == 0) {
            free_places++;
        } else if (line->keys[lane] == key) {
            return lane;
        }
    }
    return free_places > 0 ? RPS_LANE_ABSENT : RPS_LANE_BEYOND;
}

static struct rps_index_place
find_from(const struct rps_segment *segment, struct rps_index_line *line,
        uint64_t key)
{
    unsigned lane = lane_of(line, key);

    while (lane == RPS_LANE_BEYOND) {
        line = next_line(segment, line);
        lane = lane_of(line, key);
    }
    if (lane == RPS_LANE_ABSENT) {
        return (struct rps_index_place){.line = NULL};
    }
    return (struct rps_index_place){
            .line = line, .lane = lane, .row = line->rows[lane]};
}

struct rps_index_place
rps_index_find(const struct rps_index *index, uint64_t hash, uint64_t key)
{
    const struct rps_segment *segment = rps_index_segment(index, hash);

    return find_from(segment, rps_segment_home(segment, hash), key);
}

struct rps_index_place
rps_index_find_beyond(
        const struct rps_index *index, uint64_t hash, uint64_t key)
{
    const struct rps_segment *segment = rps_index_segment(index, hash);

    return find_from(
            segment, next_line(segment, rps_segment_home(segment, hash)), key);
}

struct rps_index_place
rps_segment_insert(struct rps_segment *segment, uint64_t hash, uint64_t key,
        uint32_t row, uint32_t meta)
{
    struct rps_index_line *line = rps_segment_home(segment, hash);
    unsigned lane = 0;

    assert(row != 0);
    assert(rps_segment_free(segment) > 0);

    while (line->rows[lane] != 0) {
        lane++;
        if (lane == RPS_LINE_KEYS) {
            line = next_line(segment, line);
            lane = 0;
        }
    }
    line->keys[lane] = key;
    line->rows[lane] = row;
    line->meta[lane] = meta;
    segment->count++;
    return (struct rps_index_place){.line = line, .lane = lane, .row = row};
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
    if (rps_segment_free(segment) < index->free_min) {
        index->free_min = rps_segment_free(segment);
    }
    return RPS_OK;
}

/*
 * A key lies in its home line, or all lines from there to its own are full.
 * So a place that gets free in a full line is filled with a later key that
 * passed this line; that frees another place, until none passed.
 */
static struct rps_index_place
key_that_passed(const struct rps_index *index,
        const struct rps_segment *segment, struct rps_index_line *line)
{
    struct rps_index_line *at = next_line(segment, line);

    for (uint32_t walked = 1; walked < segment->line_count; walked++) {
        bool full = true;
        for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
            if (at->rows[lane] == 0) {
                full = false;
                continue;
            }
            const uint64_t hash = rps_key_hash(at->keys[lane], index->job_seed);
            const uint32_t home = (uint32_t)(rps_segment_home(segment, hash) -
                                             segment->lines);
            const uint32_t here = (uint32_t)(at - segment->lines);
            const uint32_t came =
                    (here + segment->line_count - home) % segment->line_count;
            if (came >= walked) {
                return (struct rps_index_place){
                        .line = at, .lane = lane, .row = at->rows[lane]};
            }
        }
        if (!full) {
            break;
        }
        at = next_line(segment, at);
    }
    return (struct rps_index_place){.line = NULL};
}

static bool
is_full(const struct rps_index_line *line)
{
    for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
        if (line->rows[lane] == 0) {
            return false;
        }
    }
    return true;
}

void
rps_index_remove(struct rps_index *index, struct rps_index_place place)
{
    struct rps_segment *segment = rps_index_segment(
            index, rps_key_hash(place.line->keys[place.lane], index->job_seed));
    bool was_full = is_full(place.line);

    assert(place.row != 0 && place.line->rows[place.lane] == place.row);

    place.line->rows[place.lane] = 0;
    while (was_full) {
        const struct rps_index_place from =
                key_that_passed(index, segment, place.line);
        if (from.row == 0) {
            break;
        }
        place.line->keys[place.lane] = from.line->keys[from.lane];
        place.line->rows[place.lane] = from.row;
        place.line->meta[place.lane] = from.line->meta[from.lane];
        was_full = is_full(from.line);
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

    return &index->segments[doors->door[(hash << index->skip) >> 1 >>
                                         (63 - doors->depth)]
                                    .segment];
}

uint64_t
rps_index_segment_end(
        const struct rps_index *index, const struct rps_segment *segment)
{
    const uint32_t shift = 64 - index->skip - segment->depth;
    const uint64_t mask = UINT64_MAX >> index->skip;

    return ((uint64_t)segment->first + 1) << shift & mask;
}

bool
rps_index_has_free(struct rps_index *index, uint64_t count)
{
    if (index->free_min >= count) {
        return true;
    }
    index->free_min = UINT64_MAX;
    for (uint32_t i = 0; i < index->segment_count; i++) {
        const uint64_t free_places = rps_segment_free(&index->segments[i]);
        if (free_places < index->free_min) {
            index->free_min = free_places;
        }
    }
    return index->free_min >= count;
}

size_t
rps_index_line_bytes(const struct rps_index *index)
{
    return index->line_count * sizeof(struct rps_index_line);
}
