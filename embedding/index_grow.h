/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How segments get their lines: for the files of the index.
 *
 * Threads: the owner's lock (shard->lock).
 */
#ifndef RPS_EMBEDDING_INDEX_GROW_H
#define RPS_EMBEDDING_INDEX_GROW_H

#include "embedding/index.h"

/** Where the search in a segment begins. It has lines. */
static inline struct rps_index_line *
rps_segment_home(const struct rps_segment *segment, uint64_t hash)
{
    return segment->lines +
           ((hash & UINT32_MAX) * (uint64_t)segment->line_count >> 32);
}

/** Keys from which on it grows: 59/64 of the places. */
static inline uint32_t
rps_segment_full(const struct rps_segment *segment)
{
    const uint64_t places = (uint64_t)segment->line_count * RPS_LINE_KEYS;

    return (uint32_t)(places * 59 / 64);
}

/** Keys that can be stored before it grows: one place is kept free. */
static inline uint32_t
rps_segment_free(const struct rps_segment *segment)
{
    return segment->line_count * RPS_LINE_KEYS - 1 - segment->count;
}

/** A segment may have fewer free places than before. */
static inline void
rps_index_note_free(struct rps_index *index, const struct rps_segment *segment)
{
    const struct rps_index_parts parts = rps_segment_parts(segment);
    const uint32_t free_places = rps_segment_free(segment);

    for (uint32_t i = parts.first; i < parts.first + parts.count; i++) {
        if (free_places < index->free_min[i]) {
            index->free_min[i] = free_places;
        }
    }
}

/** Keys may lie elsewhere from now on (the lock). */
static inline void
rps_index_new_version(struct rps_index *index)
{
    /* release: see rps_index_version() */
    atomic_store_explicit(&index->version,
            atomic_load_explicit(&index->version, memory_order_relaxed) + 1,
            memory_order_release);
}

/** Store an absent key in a segment that has a free place (asserted). */
struct rps_index_place rps_segment_insert(struct rps_segment *segment,
        uint64_t hash, uint64_t key, uint32_t row, uint32_t meta);

/**
 * Copy a key from a line into a segment that is being filled: no key has left
 * it, so that filled[line_count] says how many keys each of its lines has.
 * To read that from the lines, right behind the writes, takes twice the time.
 * Returns: false where it may only lie at home, and that is full.
 */
bool rps_segment_fill(struct rps_segment *segment, uint8_t *filled,
        uint64_t hash, const struct rps_index_line *from, unsigned from_lane,
        bool at_home);

/**
 * Make the segment of a key larger, or two of it; it then has room for more
 * than `kept` keys. Errors: NOMEM, LIMIT; nothing changed.
 */
RPS_NODISCARD rps_status rps_index_grow(
        struct rps_index *index, uint64_t hash, uint64_t kept);

#endif /* RPS_EMBEDDING_INDEX_GROW_H */
