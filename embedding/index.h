/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From key to row number, for one shard: extendible hashing over segments,
 * open addressing over lines inside one.
 *
 *   hash  63..52 PS | shard | door: the next `depth` bits | ... 31..0 line
 *
 *   doors [2^depth]  --> segments, each of 1 .. 1024 lines (64 KiB; larger
 *                        only when depth has reached its end)
 *   line of a key  = segment lines * (hash mod 2^32) / 2^32; if it is full,
 *                    the other one of its pair (128 bytes), then the lines of
 *                    the next pair, around the segment's end
 *
 * A segment that is 59/64 full grows by an eighth to a quarter; one that
 * would grow beyond its largest size (32 to 64 KiB) splits in two. So one
 * insert moves a few thousand keys at most, and the memory beside it is that
 * of one segment. How much, and which size, is drawn from the segment's
 * prefix: they do not all grow at once, and the memory a key takes is the
 * same at every size of the table.
 *
 * Where no memory is left, a segment is filled beyond 59/64: a place is always
 * free in it. Places are promised by the part, one of 64 that the next bits of
 * the hash make: in a large index a part has several segments, and a segment
 * one part. `free_min` is a lower bound of how many places are free in each
 * segment of a part.
 *
 * Threads: the owner's lock (shard->lock), but for rps_index_homes().
 */
#ifndef RPS_EMBEDDING_INDEX_H
#define RPS_EMBEDDING_INDEX_H

#include "embedding/arena.h"
#include "embedding/kernels/line.h"

#include <stdatomic.h>

#define RPS_INDEX_PARTS_LOG2 6u
#define RPS_INDEX_PARTS      (1u << RPS_INDEX_PARTS_LOG2)

/*
 * All doors of a depth. A door is what a probe reads of its segment, in one
 * word, since a batch reads as many of them as it has keys:
 *
 *   door = address of the lines / 64 << 16 | how many
 *
 * Replaced doors stay until the end of the index: rps_index_homes() may still
 * read them. Together they are smaller than these.
 */
struct rps_index_doors {
    struct rps_index_doors *replaced;
    uint32_t *segments; /* [2^depth], behind the doors */
    uint32_t depth;
    _Atomic uint64_t door[]; /* [2^depth] */
};

struct rps_segment {
    struct rps_run run;
    struct rps_index_line *lines;
    uint32_t line_count;
    uint32_t count; /* keys */
    uint32_t depth; /* 2^(index depth - this) doors lead here, in a row */
    uint32_t first; /* the first of them at this depth: its hash prefix */
};

struct rps_index {
    struct rps_arena *arena;
    uint64_t job_seed;
    uint32_t skip; /* leading bits of the hash that all keys here share */
    _Atomic(struct rps_index_doors *) doors;
    _Atomic uint64_t version;     /* rises when a key may lie elsewhere than
                                   * before: new lines, or pulled back */
    struct rps_segment *segments; /* [segment_count] */
    uint32_t segment_count;
    uint32_t segment_room;
    uint32_t shallow;    /* segments of several parts */
    uint64_t count;      /* keys */
    uint64_t line_count; /* of all segments */
    /* of a part: <= free places of each segment, less the one kept */
    uint32_t free_min[RPS_INDEX_PARTS];
};

/** Parts first .. first + count - 1. */
struct rps_index_parts {
    uint32_t first;
    uint32_t count;
};

/** Whether a search that has come to a line goes on behind it. */
static inline bool
rps_index_line_is_full(const struct rps_index_line *line)
{
    return line->rows[0] != 0 && line->rows[1] != 0 && line->rows[2] != 0 &&
           line->rows[3] != 0;
}

/** Where a key lies. row == 0: nowhere. Valid until the next change. */
struct rps_index_place {
    struct rps_index_line *line;
    unsigned lane;
    uint32_t row;
};

/** Errors: NOMEM, LIMIT. Finish it also then. */
RPS_NODISCARD rps_status rps_index_init(struct rps_index *index,
        struct rps_arena *arena, uint64_t job_seed, uint32_t skip);
void rps_index_finish(struct rps_index *index);

/** The part of a key. */
static inline uint32_t
rps_index_part(const struct rps_index *index, uint64_t hash)
{
    return (uint32_t)(hash << index->skip >> (64 - RPS_INDEX_PARTS_LOG2));
}

/** Those that have keys in a segment: one, or all keys of theirs. */
static inline struct rps_index_parts
rps_segment_parts(const struct rps_segment *segment)
{
    const uint32_t depth = segment->depth;
    struct rps_index_parts parts = {.count = 1};

    if (depth < RPS_INDEX_PARTS_LOG2) {
        parts.count = 1u << (RPS_INDEX_PARTS_LOG2 - depth);
        parts.first = segment->first * parts.count;
    } else {
        parts.first = segment->first >> (depth - RPS_INDEX_PARTS_LOG2);
    }
    return parts;
}

/** Which of so many lines the search for a key begins with. */
static inline uint64_t
rps_index_home_line(uint64_t hash, uint64_t line_count)
{
    return (hash & UINT32_MAX) * line_count >> 32;
}

/**
 * Tells whether what was read of the index still holds: where the search for
 * a key begins, and that a key is in no line where it was not found.
 */
static inline uint64_t
rps_index_version(const struct rps_index *index)
{
    /* acquire: who sees a version sees the doors it stands for */
    return atomic_load_explicit(&index->version, memory_order_acquire);
}

/**
 * lines[n]: where the search for the key of each of hashes[n] begins. Asks
 * for each of them.
 *
 * Threads: any, without the lock: then they may be read only under it, and
 *          only if the version is still what it was before this call.
 */
void rps_index_homes(const struct rps_index *index, size_t n,
        const uint64_t *hashes, struct rps_index_line **lines);

/** The same without asking for them. */
void rps_index_home_lines(const struct rps_index *index, size_t n,
        const uint64_t *hashes, struct rps_index_line **lines);

/**
 * Ask for them. First all addresses, then all prefetches: a CPU looks no
 * further than some 300 instructions ahead of the oldest page walk, and the
 * fewer lie between two prefetches the more walks are under way at once.
 * Always inlined: see prefetch.h.
 */
static inline __attribute__((always_inline)) void
rps_index_ask_lines(struct rps_index_line *const *lines, size_t n)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < n; i++) {
        __builtin_prefetch(lines[i]);
    }
}

/**
 * Ask for the lines that rps_index_next_lines() will name, nearly: behind a
 * segment's last pair comes its first one, and what is asked for here then is
 * no harm. Always inlined: see prefetch.h.
 */
static inline __attribute__((always_inline)) void
rps_index_ask_next(const struct rps_index_line *home)
{
    const uintptr_t line = (uintptr_t)home;
    const uintptr_t next = (line | sizeof(*home)) + sizeof(*home);

    __builtin_prefetch((const void *)(line ^ sizeof(*home)));
    __builtin_prefetch((const void *)next);
    __builtin_prefetch((const void *)(next + sizeof(*home)));
}

/** The same of two pairs more, for a key that is in none of those. */
static inline __attribute__((always_inline)) void
rps_index_ask_far(const struct rps_index_line *last)
{
    const uintptr_t next = ((uintptr_t)last | sizeof(*last)) + sizeof(*last);

    for (uintptr_t i = 0; i < 4; i++) {
        __builtin_prefetch((const void *)(next + i * sizeof(*last)));
    }
}

/** Where the search for a key goes on that is not in its home line, which is
 * full: next[RPS_LINES_NEXT]. */
void rps_index_next_lines(const struct rps_index *index, uint64_t hash,
        struct rps_index_line *home, struct rps_index_line **next);

struct rps_index_place rps_index_find(
        const struct rps_index *index, uint64_t hash, uint64_t key);

/** The same of a key that is not in its home line, which is full. */
struct rps_index_place rps_index_find_beyond(const struct rps_index *index,
        uint64_t hash, uint64_t key, struct rps_index_line *home);

/** The same of a key that is in none of its next lines either: the last. */
struct rps_index_place rps_index_find_far(const struct rps_index *index,
        uint64_t hash, uint64_t key, struct rps_index_line *last);

/**
 * Store an absent key. `kept`: places of the segment that must stay free
 * (promised to others). Errors: NOMEM, LIMIT; nothing changed.
 */
RPS_NODISCARD rps_status rps_index_insert(struct rps_index *index,
        uint64_t hash, uint64_t key, uint32_t row, uint64_t kept,
        struct rps_index_place *place_out);

/** Forget the key at a place. Other places move. */
void rps_index_remove(struct rps_index *index, struct rps_index_place place);

/** Whether each segment of a part has `count` free places; may raise free_min.
 */
bool rps_index_has_free(struct rps_index *index, uint32_t part, uint64_t count);

/**
 * So many keys are going to be there, nothing is promised: segments become
 * what they would grow to step by step. In the order of their hashes, as a
 * checkpoint has them, keys would fill the front of each of those steps.
 * False: there was no memory for all of it, which does no harm.
 */
bool rps_index_expect(struct rps_index *index, uint64_t keys);

/** The segment of all keys whose hashes begin as this one's. */
struct rps_segment *rps_index_segment(
        const struct rps_index *index, uint64_t hash);

/** The least hash that is beyond the segment's; 0: it is the last. */
uint64_t rps_index_segment_end(
        const struct rps_index *index, const struct rps_segment *segment);

/**
 * A segment that is less than 3/8 full gets smaller, if there is memory, and
 * keeps room for more than `kept` keys.
 */
void rps_index_shrink(
        struct rps_index *index, struct rps_segment *segment, uint64_t kept);

/** Move a segment's lines to a lower region. False: there was none. */
bool rps_index_move(struct rps_index *index, struct rps_segment *segment);

size_t rps_index_line_bytes(const struct rps_index *index);

/** Bytes of the lists; the lines are counted by the arena. */
size_t rps_index_list_bytes(const struct rps_index *index);

#endif /* RPS_EMBEDDING_INDEX_H */
