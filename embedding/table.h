/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table inside one PS: rows by 64-bit key, in lock-striped shards. A
 * lookup is a pure read; rows are created, counted and stamped by pushes
 * (rps_table_apply) and assigns only. Every one of the 2^64 keys is legal.
 */
#ifndef RPS_EMBEDDING_TABLE_H
#define RPS_EMBEDDING_TABLE_H

#include "base/digest.h"
#include "base/error.h"

#include <recps/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rps_budget;
struct rps_table;

/** Meta of a row: last:24 (tick of its last push) | uses:8 (Morris). */
#define RPS_META_LAST(meta) ((meta)&0xffffffu)
#define RPS_META_USES(meta) ((meta) >> 24)

struct rps_table_stats {
    uint64_t rows;
    uint64_t bytes;       /* what the table takes, index included */
    uint64_t index_bytes; /* of them the index's lines */
    uint64_t lookups;     /* keys looked up */
    uint64_t missing;     /* of them absent */
    uint64_t pushes;      /* pushes applied to this table (t of async) */
    uint64_t applied;     /* optimizer steps of rows, by all of them */
    uint64_t inserted;
    uint64_t nonfinite;       /* contributions to a row that were refused */
    uint64_t unadmitted;      /* keys of pushes that were only counted */
    uint64_t dropped;         /* new keys without room, see apply */
    uint64_t erased;          /* rows, by rps_table_erase() */
    uint64_t evicted_cold;    /* rows, for being idle too long */
    uint64_t evicted_full;    /* rows, to stay within a budget */
    uint64_t admission_keys;  /* with a count and without a row; exact only */
    uint64_t admission_bytes; /* of `bytes`, their counts */
    uint64_t disk_rows;       /* of `rows`, those on the disk (tier.h) */
    uint64_t disk_bytes;      /* that they take there, beside `bytes` */
    uint64_t disk_hits;       /* keys looked up whose row was there */
    uint64_t lowered;         /* rows, to the disk */
    uint64_t raised;          /* and back */
};

/** The caller's clocks: nothing here reads one. */
struct rps_now {
    uint64_t step;   /* the newest step that was applied */
    uint64_t unix_s; /* seconds since 1970, UTC */
};

/** Errors: INVAL, UNSUPPORTED (rps_table_spec_check), NOMEM. */
rps_status rps_table_create(struct rps_table **table_out,
        const rps_table_spec *spec, uint64_t job_seed, struct rps_error *error);
void rps_table_destroy(struct rps_table *table);

/**
 * Count what the table takes against the server's budget, too, which outlives
 * it. Once, while no other call on the table runs.
 *
 * join: also where that exceeds its limit (a table that was restored).
 * enter: LIMIT, naming the least one, where it does or where no table like
 *        this could work; the table has no part in it then.
 */
void rps_table_join_budget(struct rps_table *table, struct rps_budget *server);
rps_status rps_table_enter_budget(struct rps_table *table,
        struct rps_budget *server, struct rps_error *error);

/**
 * The clocks have come this far: what is written, pushed or erased from here
 * on is no older. Before the step is told to anyone who may ask with it what
 * changed (rps_table_changed): a table that no push reaches would not know.
 *
 * Threads: any.
 */
void rps_table_set_now(struct rps_table *table, struct rps_now now);

const rps_table_spec *rps_table_spec_of(const struct rps_table *table);
uint64_t rps_table_id_of(const struct rps_table *table);

/**
 * Set the policy of a table that was restored and that no one used yet. As
 * rps_table_alter(), but where ticks get another unit the rows are stamped
 * with the first push's or slice's time.
 */
rps_status rps_table_set_policy(struct rps_table *table,
        const rps_table_spec *spec, struct rps_error *error);

/**
 * Replace the policy fields of a living table. spec is a whole spec; its
 * identity must be the table's. Rows and admission counts stay, and the new
 * rules hold from the next call on: a lower memory_limit is met by the next
 * slices of rps_table_maintain().
 *
 * A tick is a step, or a unit of seconds where max_cold_secs is set (docs/
 * TABLE.md, Eviction). Where the new policy has another tick than the old
 * one, every row is stamped `now`: its idle time starts anew, and REFRESH
 * sends it once too often.
 *
 * Threads: no other call on the table may run meanwhile.
 * Errors:  INVAL, UNSUPPORTED (rps_table_spec_check), MISMATCH naming the
 *          identity field that differs, LIMIT (no room for a sketch), NOMEM;
 *          nothing was changed.
 */
rps_status rps_table_alter(struct rps_table *table, const rps_table_spec *spec,
        struct rps_now now, struct rps_error *error);

/** The keys of one lookup. Duplicate keys are allowed. */
struct rps_read {
    size_t count;
    const uint64_t *keys;
    const uint32_t *counts; /* multiplicities, or NULL: 1 each */
    bool read_only;
};

/**
 * Shapes:  rows[count] of dim f32, `stride` bytes apart.
 * An absent key answers its first value; default_value if read_only, or if
 * it is not admitted (min_used_times: what was pushed of it so far and this
 * request's multiplicity are less).
 * Threads: any, also beside writers; a row is whole, a batch no snapshot.
 */
void rps_table_lookup(struct rps_table *table, const struct rps_read *read,
        float *rows, size_t stride);

/** One replica's part of a step. Duplicate keys are allowed. */
struct rps_contribution {
    size_t count;
    const uint64_t *keys;
    const uint32_t *counts; /* multiplicities, or NULL: 1 each */
    const float *gradients; /* [count][dim] */
};

struct rps_update {
    uint64_t step;  /* stamps the rows (tick), seeds draws */
    uint64_t now_s; /* Unix seconds: the tick where max_cold_secs is set */
    uint64_t t;     /* of Adam's bias correction; 0: this PS's push count */
    float learning_rate; /* NaN: the spec's */
    float scale;         /* of the summed gradient: 1, or 1/R for mean */
    bool drop_new;       /* a new key without room is dropped: see below */
};

struct rps_apply_report {
    uint64_t applied;       /* distinct keys stepped */
    uint64_t nonfinite;     /* contributions to a row refused */
    uint64_t nonfinite_key; /* the first of them */
    uint64_t unadmitted;    /* distinct keys that were only counted */
    uint64_t dropped;       /* distinct keys without room (drop_new) */
};

/**
 * The gradient law: contributions in the given order are summed a key
 * (a contribution with a non-finite element leaves its row out of the sum),
 * scaled, clipped, then one optimizer step a distinct key. Creates absent
 * rows from their first value. n may be 0: only the push count rises.
 *
 * A key of which every contribution is refused is not touched; a sum that
 * overflows refuses the contributions it is made of.
 *
 * A key without a row that is not admitted yet (min_used_times) is counted
 * by the multiplicity of its contributions, and its gradient is dropped.
 * Contributions that are not finite are not counted. An admitted key's uses
 * start from what was counted.
 *
 * A key that needs a row for which the budget (memory_limit, of the table or
 * the server) has no room: with on_full evict-lru or evict-lfu another row
 * gives way; where none may (refuse, keep_min_rows) the update is LIMIT and
 * changes no row of its keys; what gave way before stays gone. With drop_new
 * (a sync step, which was acknowledged already) such keys alone are dropped,
 * existing keys are stepped, and the update is OK. `dropped` of the stats
 * counts these keys, and all new keys of an update or assign that is LIMIT.
 *
 * Threads: any; a row's step is atomic. Errors, no row was changed: NOMEM,
 * LIMIT (2^32 - 1 gradients at once; no room: see above). Keys of a dense
 * table were checked (rps_table_check_keys).
 */
rps_status rps_table_apply(struct rps_table *table,
        const struct rps_update *update,
        const struct rps_contribution *contributions, size_t n,
        struct rps_apply_report *report);

/**
 * So many rows are going to be written to a table that nobody else has yet:
 * its index gets their size at once, as far as there is memory. A promise of
 * nothing: fewer may come, or more.
 */
void rps_table_expect(struct rps_table *table, uint64_t rows);

/**
 * Write rows as they are, in the table's value type rounded to nearest, ties
 * to even. slots[n][slot floats] or NULL: fresh slots;
 * meta[n] or NULL: 0, but where rows get cold or give way to others `last` is
 * the newest tick. Errors: NOMEM, NONFINITE (rows or slots; none of them
 * was written), INVAL (dense key out of range).
 */
rps_status rps_table_assign(struct rps_table *table, size_t n,
        const uint64_t *keys, const float *rows, const float *slots,
        const uint32_t *meta, struct rps_error *error);

/**
 * The same with values[n][dim] as they are in memory, of the spec's
 * value_dtype: what rps_table_visit() showed comes back bit for bit. On an
 * error some may be written.
 *
 * Threads: any, beside each other and beside lookups; no push, erase, assign
 *          or upkeep meanwhile.
 */
rps_status rps_table_restore_rows(struct rps_table *table, size_t n,
        const uint64_t *keys, const void *values, const float *slots,
        const uint32_t *meta, struct rps_error *error);

/**
 * Positions (ascending) of keys whose rows changed after step `since`, and
 * those rows packed. positions[n]; rows[n][dim]. Returns their number. Errs
 * to resending.
 */
size_t rps_table_changed(struct rps_table *table, size_t n,
        const uint64_t *keys, uint64_t since, uint32_t *positions, float *rows);

/**
 * The same, changed at step `first` or later: where pushes of a step may come
 * when it has been told already (async).
 */
size_t rps_table_changed_from(struct rps_table *table, size_t n,
        const uint64_t *keys, uint64_t first, uint32_t *positions, float *rows);

/**
 * The rows of these keys as rps_table_assign() takes them; a key without a
 * row is left out. Returns how many there are; keys[0, found) are theirs.
 *
 * Shapes:  keys[n]; rows[n][dim] f32; slots[n][slot floats], NULL where the
 *          optimizer has none; meta[n].
 * Threads: any; each row is whole.
 */
size_t rps_table_read(struct rps_table *table, size_t n, uint64_t *keys,
        float *rows, float *slots, uint32_t *meta);

/** INVAL naming the first key that a dense table does not have. */
rps_status rps_table_check_keys(const struct rps_table *table, size_t n,
        const uint64_t *keys, struct rps_error *error);

void rps_table_stats_of(struct rps_table *table, struct rps_table_stats *out);
struct rps_digest rps_table_digest(struct rps_table *table);

/** t of async after a restore. */
void rps_table_set_pushes(struct rps_table *table, uint64_t pushes);

/** One row as it is visited: pointers valid inside the call only. */
struct rps_row_view {
    uint64_t key;
    const void *value;  /* [dim] of the spec's value_dtype */
    const float *slots; /* [slot floats]: slot 0's floats, then slot 1's */
    uint32_t meta;
};

/**
 * Visit every row, a shard at a time under its lock. Stops at the first
 * status that is not OK and returns it.
 */
rps_status rps_table_visit(struct rps_table *table,
        rps_status (*visit)(void *context, const struct rps_row_view *row),
        void *context);

/**
 * LIMIT, in words: what rps_table_apply() met where the budget has no room:
 * whose limit it is, why no row gives way, and what can be done.
 */
rps_status rps_table_fail_full(
        const struct rps_table *table, struct rps_error *error);

struct rps_evict_report {
    uint64_t examined;     /* rows looked at */
    uint64_t cold;         /* rows erased: idle too long */
    uint64_t full;         /* rows erased: over the budget, least score */
    uint64_t lowered;      /* rows moved to the disk instead */
    uint64_t bytes_before; /* what the table takes from its budget */
    uint64_t bytes_after;
};

/**
 * Erase the rows of these keys, and forget what was counted of them towards
 * admission. Absent keys and duplicates are no error. A key that comes back
 * starts fresh, in value, slots and meta. Returns the rows erased.
 *
 * Threads: any. A key that is pushed meanwhile may have its row again.
 */
uint64_t rps_table_erase(
        struct rps_table *table, size_t n, const uint64_t *keys);

/**
 * One whole pass: rows that are cold, then rows over the budget, then
 * compaction, so that memory is given back before it returns. Locks one
 * shard at a time, for a slice at a time, but may take seconds on a large
 * table: not for a request's thread.
 *
 * Threads: any; passes and slices of one table take turns.
 */
void rps_table_evict(struct rps_table *table, struct rps_now now,
        struct rps_evict_report *report);

/**
 * One slice of the background's work, bounded by `lines` lines of the index
 * (4 rows each) and as many rows moved: cold rows, the budget, the ageing of
 * counts, compaction. True: there is more to do now. Call it until it is
 * false, and again when time has passed: at least once in an eighth of
 * max_cold_*, and in any case every 2^20 ticks, so that no stamp can wrap
 * unseen.
 *
 * Adds to *report (zero it before the first slice), but for the two byte
 * counts: they are of this slice.
 *
 * Threads: any, beside everything else but rps_table_alter and _destroy;
 *          slices of one table take turns.
 */
bool rps_table_maintain(struct rps_table *table, struct rps_now now,
        size_t lines, struct rps_evict_report *report);

/**
 * Where a scan is: start with zeros; the fields are the scan's. May travel
 * as three u64; any value is safe.
 */
struct rps_scan_cursor {
    uint64_t place; /* 2 * shard, +1: behind (hash, key) */
    uint64_t hash;
    uint64_t key;
};

/**
 * The next keys, at most `max` (at least 1), in the order of (shard, hash,
 * key), and their meta; meta may be NULL. Returns their number; 0: the end.
 * A key that has a row during the whole scan is seen exactly once, whatever
 * grows, splits, moves or is evicted meanwhile; one that comes or goes
 * meanwhile is seen once or never.
 *
 * Shapes:  keys[max], meta[max].
 * Threads: any; a cursor belongs to one caller. One shard is locked at a
 *          time, for a segment of its index.
 */
size_t rps_table_scan(struct rps_table *table, struct rps_scan_cursor *cursor,
        size_t max, uint64_t *keys, uint32_t *meta);

struct rps_hot_key {
    uint64_t key;
    uint64_t count; /* pushes, with multiplicity, about: never less than
                       what the sample had of it */
    uint64_t error; /* count may be too large by this */
};

/**
 * The keys that are pushed most, the first most often: at most `max` and at
 * most RPS_HOT_KEYS_MAX. From a sample of one key in 64, counts scaled up
 * by that; older pushes fade (docs/TABLE.md, Hot keys). Returns their
 * number.
 *
 * Threads: any.
 */
#define RPS_HOT_KEYS_MAX 512u
size_t rps_table_hot_keys(
        struct rps_table *table, size_t max, struct rps_hot_key *out);

/**
 * What was pushed of a key without a row (admission). Exact: id is the key.
 * Sketch: id is slot * RPS_SKETCH_CELLS + cell, count is the cell's. A count
 * of 0 never appears.
 */
struct rps_admission_count {
    uint64_t id;
    uint32_t count; /* 1..65535; a sketch's 1..255 */
};

#define RPS_SKETCH_CELLS 8192u /* of one slot: 4 rows of 2048 */

/**
 * Visit every admission count, a shard (or a slot) at a time under its lock;
 * for checkpoints. Stops at the first status that is not OK and returns it.
 *
 * Threads: any. The visitor must not call back into the table.
 */
rps_status rps_table_visit_admission(struct rps_table *table,
        rps_status (*visit)(
                void *context, const struct rps_admission_count *count),
        void *context);

/**
 * Put counts back, of the spec's kind of admission. Replaces what stands
 * there for the same ids; ids whose key has a row are left out. The caller
 * has sorted out what belongs to other servers: rps_admission_slot().
 * Counts above what fits are cut; a table without admission (min_used_times
 * 0 or 1) takes none.
 *
 * Errors: NOMEM (some may stand), INVAL naming the id (a sketch's cell beyond
 * the last slot; a count of 0).
 */
rps_status rps_table_restore_admission(struct rps_table *table, size_t n,
        const struct rps_admission_count *counts, struct rps_error *error);

/** The slot (0..4095) that an admission count belongs to. */
uint32_t rps_admission_slot(
        enum rps_admission kind, uint64_t id, uint64_t job_seed);

/** A first value: what an absent key answers. row[dim]. */
void rps_table_first_value(
        const struct rps_table *table, uint64_t key, float *row);

#endif /* RPS_EMBEDDING_TABLE_H */
