/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a table, for the files of this folder and their tests. */
#ifndef RPS_EMBEDDING_TABLE_IMPL_H
#define RPS_EMBEDDING_TABLE_IMPL_H

#include "embedding/first_value.h"
#include "embedding/hot.h"
#include "embedding/kernels/kernels.h"
#include "embedding/shard.h"
#include "embedding/sketch.h"
#include "embedding/table.h"

#include <stdatomic.h>
#include <string.h>

#define RPS_SHARD_LOG2     6u /* of a table that rps_table_create makes */
#define RPS_SHARD_LOG2_MAX 12u

#define RPS_MARKS 64u /* tick.h */

struct rps_mark {
    uint64_t step;
    uint64_t tick;
};

struct rps_marks {
    pthread_mutex_t lock;
    struct rps_mark ring[RPS_MARKS]; /* lock; mark i at i mod RPS_MARKS */
    uint64_t count;                  /* lock; ever made */
};

/* Where the slices of upkeep are (upkeep.c). All fields: table->making. */
struct rps_upkeep {
    unsigned phase;
    unsigned step;   /* of compaction */
    unsigned rounds; /* of draining this shard */
    uint32_t shard;
    uint32_t segment;
    uint32_t line;
    double share;        /* of the rows, to be evicted in this pass */
    double carry;        /* of them, to be evicted from the segment at hand */
    uint64_t evicted;    /* by the last turn of the budget; before it 1 */
    uint64_t used;       /* bytes when compaction began */
    uint32_t high_lines; /* regions from here on are to be emptied */
    uint32_t high_cells;
    uint64_t aged; /* tick when counts were last halved */
    bool draining; /* chunks of the shard are drained */
};

#define RPS_COMPACT_ROUNDS 4u /* of draining one shard, in one pass */

/* Counters are independent sums that no one orders anything by: relaxed. */
struct rps_table {
    rps_table_spec spec; /* policy: set while no other call runs */
    uint64_t id;
    uint64_t job_seed;
    uint64_t draws; /* rps_draw_stream(): of the uses counters */
    struct rps_first_value first;
    struct rps_kernels kernels;
    size_t value_bytes; /* of a row: dim values, padded to 4 bytes */
    uint32_t slot_floats;
    uint32_t shard_log2;
    size_t shard_count;
    struct rps_shard *shards; /* [shard_count] */
    struct rps_budget budget;
    struct rps_arena lines; /* memory of all shards' indexes */
    struct rps_arena cells; /* and of their rows */

    /* taken before any shard's lock: by who makes rows in advance (room.h)
     * and by who erases rows */
    pthread_mutex_t making;

    struct rps_sketch *sketch; /* policy; NULL: exact counts, or none */
    struct rps_hot *hot;
    struct rps_marks marks;
    struct rps_upkeep upkeep; /* making */

    /* the disk tier (tier.h): set before use */
    bool tiered;
    struct rps_budget disk_budget;
    struct rps_arena disk_cells;

    /* for a cut (cut.h); NULL: of no store. Both are set while no call is
     * under way */
    struct rps_save_buffer *buffer;
    size_t cut_list;  /* which list of the buffer is the table's */
    _Atomic bool cut; /* a cut holds it; a hint, so relaxed */

    _Atomic bool
            restamp; /* ticks have another unit; cleared under marks.lock */

    _Atomic uint64_t newest;    /* largest tick that was stamped */
    _Atomic uint64_t erased_at; /* newest + 1 when a row last left; 0: never */
    _Atomic uint64_t rows;
    _Atomic uint64_t lookups;
    _Atomic uint64_t missing;
    _Atomic uint64_t pushes;
    _Atomic uint64_t applied;
    _Atomic uint64_t inserted;
    _Atomic uint64_t nonfinite;
    _Atomic uint64_t unadmitted;
    _Atomic uint64_t dropped;
    _Atomic uint64_t erased;
    _Atomic uint64_t evicted_cold;
    _Atomic uint64_t evicted_full;
    _Atomic uint64_t disk_rows;
    _Atomic uint64_t disk_hits;
    _Atomic uint64_t lowered;
    _Atomic uint64_t raised;
};

/** rps_table_create() with another number of shards, 2^shard_log2. */
rps_status rps_table_create_sharded(struct rps_table **table_out,
        const rps_table_spec *spec, uint64_t job_seed, uint32_t shard_log2,
        struct rps_error *error);

/** Bits 51..52-log2 of the hash: those above name the PS. */
static inline size_t
rps_table_shard_of(const struct rps_table *table, uint64_t hash)
{
    return (size_t)((hash & UINT64_MAX >> 12) >> (52 - table->shard_log2));
}

/** Elements of a key's row that are used: dim, less in a dense tail. */
static inline size_t
rps_table_live_floats(const struct rps_table *table, uint64_t key)
{
    const uint64_t elements = table->spec.dense_elements;
    const size_t dim = table->spec.dim;

    if (elements == 0 || key < elements / dim) {
        return dim;
    }
    return key == elements / dim ? (size_t)(elements % dim) : 0;
}

/** default_value in each live column, zeros behind. row[dim]. */
void rps_table_default_value(
        const struct rps_table *table, uint64_t key, float *row);

/** Raise `newest` to at least step; before a lock under which it is stamped. */
void rps_table_note_step(struct rps_table *table, uint64_t step);

/**
 * A row for an absent key: first value and fresh slots; counted. `promised`:
 * uses one promise of the shard and cannot fail. Errors: NOMEM, LIMIT.
 */
RPS_NODISCARD rps_status rps_table_new_row_locked(struct rps_table *table,
        struct rps_shard *shard, uint64_t hash, uint64_t key, bool promised,
        struct rps_index_place *place_out);

/** The same, but what is in it is undefined: the caller writes all of it
 * before it gives the shard's lock back. */
RPS_NODISCARD rps_status rps_table_bare_row_locked(struct rps_table *table,
        struct rps_shard *shard, uint64_t hash, uint64_t key, bool promised,
        struct rps_index_place *place_out);

/** The same on the disk, where the table has a disk tier: without one, LIMIT.
 */
RPS_NODISCARD rps_status rps_table_new_row_on_disk_locked(
        struct rps_table *table, struct rps_shard *shard, uint64_t hash,
        uint64_t key, struct rps_index_place *place_out);

/** A row left: REFRESH has to tell. Under the lock under which it left. */
void rps_table_note_erased(struct rps_table *table);

/** Forget a row; counted. The caller holds `making` too. */
void rps_table_erase_row_locked(struct rps_table *table,
        struct rps_shard *shard, struct rps_index_place place);

/** The values of the row at `row` as floats. out[dim]. */
static inline void
rps_table_read_row(const struct rps_table *table, const char *row, float *out)
{
    if (table->spec.value_dtype == RPS_VALUE_F32) {
        memcpy(out, row, table->spec.dim * sizeof(*out));
    } else {
        table->kernels.widen[table->spec.value_dtype](
                out, row, table->spec.dim);
    }
}

/** Bytes of dim values as they are saved: without padding. */
static inline size_t
rps_table_packed_bytes(const struct rps_table *table)
{
    return table->spec.dim * (table->spec.value_dtype == RPS_VALUE_F32
                                             ? sizeof(float)
                                             : sizeof(uint16_t));
}

/** Value and slots of a row in memory. */
static inline size_t
rps_table_row_bytes(const struct rps_table *table)
{
    return table->value_bytes + table->slot_floats * sizeof(float);
}

/** The slots of a row that lies at `row`. */
static inline float *
rps_table_slots_at(const struct rps_table *table, char *row)
{
    return (float *)(void *)(row + table->value_bytes);
}

static inline void
rps_count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static inline uint64_t
rps_counted(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

#endif /* RPS_EMBEDDING_TABLE_IMPL_H */
