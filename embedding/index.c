/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the lines of one shard's index. Growing doubles the lines and moves
 * every key; what rows are is not its business.
 */
#include "embedding/index.h"

#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES     64u
#define LINE_COUNT_MIN 16u

_Static_assert(
        sizeof(struct rps_index_line) == LINE_BYTES, "a line is a cache line");

void
rps_index_init(struct rps_index *index, uint64_t job_seed)
{
    *index = (struct rps_index){.job_seed = job_seed};
}

void
rps_index_finish(struct rps_index *index)
{
    free(index->lines);
    index->lines = NULL;
}

size_t
rps_index_bytes(const struct rps_index *index)
{
    return index->lines == NULL ? 0 : (index->line_mask + 1) * LINE_BYTES;
}

/* Keys that fit: four fifths of the places. */
static uint64_t
capacity_of(uint64_t line_count)
{
    return line_count * RPS_INDEX_LANES * 4 / 5;
}

/* The first place with this key, or the free place that ends its probe. */
static struct rps_index_place
probe(const struct rps_index *index, uint64_t hash, uint64_t key)
{
    for (uint64_t at = hash & index->line_mask;;
            at = (at + 1) & index->line_mask) {
        struct rps_index_line *line = &index->lines[at];
        for (unsigned lane = 0; lane < RPS_INDEX_LANES; lane++) {
            if (line->rows[lane] == 0 || line->keys[lane] == key) {
                return (struct rps_index_place){
                        .line = line, .lane = lane, .row = line->rows[lane]};
            }
        }
    }
}

struct rps_index_place
rps_index_find(const struct rps_index *index, uint64_t hash, uint64_t key)
{
    if (index->lines == NULL) {
        return (struct rps_index_place){.line = NULL};
    }
    return probe(index, hash, key);
}

struct rps_index_place
rps_index_insert(struct rps_index *index, uint64_t hash, uint64_t key,
        uint32_t row, uint32_t meta)
{
    struct rps_index_place place;

    assert(index->lines != NULL);
    assert(index->count < capacity_of(index->line_mask + 1));
    assert(row != 0);

    place = probe(index, hash, key);
    assert(place.row == 0);
    place.line->keys[place.lane] = key;
    place.line->rows[place.lane] = row;
    place.line->meta[place.lane] = meta;
    place.row = row;
    index->count++;
    return place;
}

static void
move_line(struct rps_index *to, const struct rps_index_line *line)
{
    for (unsigned lane = 0; lane < RPS_INDEX_LANES; lane++) {
        if (line->rows[lane] != 0) {
            rps_index_insert(to, rps_key_hash(line->keys[lane], to->job_seed),
                    line->keys[lane], line->rows[lane], line->meta[lane]);
        }
    }
}

rps_status
rps_index_reserve(struct rps_index *index, uint64_t count)
{
    uint64_t line_count = index->lines == NULL ? 0 : index->line_mask + 1;
    struct rps_index grown = {.job_seed = index->job_seed};
    void *lines = NULL;

    if (count <= capacity_of(line_count)) {
        return RPS_OK;
    }
    line_count = line_count == 0 ? LINE_COUNT_MIN : line_count;
    while (capacity_of(line_count) < count) {
        line_count *= 2;
    }
    if (posix_memalign(&lines, LINE_BYTES, line_count * LINE_BYTES) != 0) {
        return RPS_E_NOMEM;
    }
    memset(lines, 0, line_count * LINE_BYTES);
    grown.lines = lines;
    grown.line_mask = line_count - 1;
    for (uint64_t i = 0; index->lines != NULL && i <= index->line_mask; i++) {
        move_line(&grown, &index->lines[i]);
    }
    assert(grown.count == index->count);
    rps_index_finish(index);
    *index = grown;
    return RPS_OK;
}
