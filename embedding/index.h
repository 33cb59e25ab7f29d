/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From key to row number, for one shard: open addressing over lines of four
 * places. A line is one cache line, so that a probe that ends in its first
 * line (most do) costs one miss:
 *
 *   0  u64 keys[4]     32  u32 rows[4]     48  u32 meta[4]
 *
 * Rows count from 1; a place with row 0 is free, whatever its key says, so
 * every one of the 2^64 keys can be stored. Places of a line are filled in
 * order and never freed: a probe ends at the first free place.
 *
 * count <= 4 * line_count * 4 / 5, so a free place always exists.
 *
 * Threads: the owner's lock (shard->lock).
 */
#ifndef RPS_EMBEDDING_INDEX_H
#define RPS_EMBEDDING_INDEX_H

#include <recps/status.h>

#include <stddef.h>
#include <stdint.h>

#define RPS_INDEX_LANES 4u

struct rps_index_line {
    uint64_t keys[RPS_INDEX_LANES];
    uint32_t rows[RPS_INDEX_LANES];
    uint32_t meta[RPS_INDEX_LANES]; /* RPS_META_* */
};

struct rps_index {
    struct rps_index_line *lines; /* [line_mask + 1], or NULL: empty */
    uint64_t line_mask;
    uint64_t count; /* keys stored */
    uint64_t job_seed;
};

/** Where a key lies. row == 0: nowhere. Valid until the next reserve. */
struct rps_index_place {
    struct rps_index_line *line;
    unsigned lane;
    uint32_t row;
};

void rps_index_init(struct rps_index *index, uint64_t job_seed);
void rps_index_finish(struct rps_index *index);

/** Make room for `count` keys in all. Errors: NOMEM, nothing changed. */
RPS_NODISCARD rps_status rps_index_reserve(
        struct rps_index *index, uint64_t count);

struct rps_index_place rps_index_find(
        const struct rps_index *index, uint64_t hash, uint64_t key);

/** The key is absent and room was reserved (asserted). */
struct rps_index_place rps_index_insert(struct rps_index *index, uint64_t hash,
        uint64_t key, uint32_t row, uint32_t meta);

size_t rps_index_bytes(const struct rps_index *index);

static inline void
rps_index_prefetch(const struct rps_index *index, uint64_t hash)
{
    if (index->lines != NULL) {
        __builtin_prefetch(&index->lines[hash & index->line_mask]);
    }
}

#endif /* RPS_EMBEDDING_INDEX_H */
