/* SPDX-License-Identifier: Apache-2.0 */
/* Changing the policy of a table, and what its policy may be. */
#include "embedding/alter.h"

#include "base/spec.h"
#include "embedding/admit.h"
#include "embedding/compact.h"
#include "embedding/tick.h"
#include "embedding/track.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#define CHUNKS_EACH 4u /* first chunks that a shard has to have room for */

_Static_assert(RPS_MEMORY_LIMIT_MIN == 4 * (uint64_t)RPS_REGION_BYTES,
        "the least of rps_table_least_limit()");

/* A region of each arena, one more for what is smaller than a page, and the
 * first rows of every shard. */
uint64_t
rps_table_least_limit(const struct rps_table *table, const rps_table_spec *spec)
{
    const size_t stride = table->shards[0].rows.stride;
    const uint64_t rows =
            (uint64_t)table->shard_count * CHUNKS_EACH * RPS_ROWS_FIRST;
    const bool sketch =
            spec->admission == RPS_ADMISSION_SKETCH && spec->min_used_times > 1;

    return (rows * stride + RPS_REGION_BYTES - 1) / RPS_REGION_BYTES *
                   RPS_REGION_BYTES +
           3 * RPS_REGION_BYTES + (sketch ? RPS_SKETCH_BUDGET_BYTES : 0);
}

rps_status
rps_table_check_limit(const struct rps_table *table, const rps_table_spec *spec,
        struct rps_error *error)
{
    const uint64_t least = rps_table_least_limit(table, spec);

    if (spec->memory_limit == 0 || spec->memory_limit >= least) {
        return RPS_OK;
    }
    return rps_fail(error, RPS_E_INVAL,
            "table %s: memory_limit is %" PRIu64
            " bytes: a table like this needs %" PRIu64
            " at least (0: no limit)",
            spec->name, spec->memory_limit, least);
}

rps_status
rps_table_enter_budget(struct rps_table *table, struct rps_budget *server,
        struct rps_error *error)
{
    const uint64_t least = rps_table_least_limit(table, &table->spec);
    const uint64_t limit =
            atomic_load_explicit(&server->limit, memory_order_relaxed);
    const uint64_t used =
            atomic_load_explicit(&server->used, memory_order_relaxed);

    if ((limit == 0 || limit >= least) &&
            rps_budget_join(&table->budget, server)) {
        return RPS_OK;
    }
    return rps_fail(error, RPS_E_LIMIT,
            "table %s: a table like this needs %" PRIu64
            " bytes at least; of the server's memory limit of %" PRIu64
            " bytes %" PRIu64 " are taken: raise --memory-limit to %" PRIu64
            " at least, or drop other tables",
            table->spec.name, least, limit, used, used + least);
}

/* Why no row gave way, and what to do beside raising the limit. */
static void
add_reason(const struct rps_table *table, char *why, size_t bytes)
{
    const rps_table_spec *spec = &table->spec;
    const uint64_t rows = rps_counted(&table->rows);

    if (spec->dense_elements > 0) {
        snprintf(why, bytes, "a dense table keeps all its rows: raise it");
    } else if (spec->on_full == RPS_ON_FULL_REFUSE) {
        snprintf(why, bytes,
                "on_full is refuse, so no row gives way: raise it, set "
                "on_full to evict-lru or evict-lfu (ALTER_TABLE), or erase "
                "rows");
    } else if (spec->keep_min_rows > 0 && rows <= spec->keep_min_rows) {
        snprintf(why, bytes,
                "keep_min_rows is %" PRIu64
                ", so none of them gives way: raise it or lower "
                "keep_min_rows (ALTER_TABLE)",
                spec->keep_min_rows);
    } else {
        snprintf(why, bytes,
                "one request has more new keys than rows of others can give "
                "way to: raise it or push fewer new keys at once");
    }
}

rps_status
rps_table_fail_full(const struct rps_table *table, struct rps_error *error)
{
    const struct rps_budget *full = rps_budget_tightest(&table->budget);
    char why[256];

    if (rps_budget_left(full) == UINT64_MAX) {
        return rps_fail(error, RPS_E_LIMIT,
                "table %s: more rows or gradients than it can count "
                "(docs/TABLE.md, Limits)",
                table->spec.name);
    }
    add_reason(table, why, sizeof(why));
    return rps_fail(error, RPS_E_LIMIT,
            "table %s has no room for new rows beside its %" PRIu64
            ": %s of %" PRIu64 " bytes is reached, and %s",
            table->spec.name, rps_counted(&table->rows),
            full == &table->budget ? "its memory_limit"
                                   : "the server's memory limit "
                                     "(--memory-limit)",
            atomic_load_explicit(&full->limit, memory_order_relaxed), why);
}

/* Every row is as old as `tick`, and ticks go on from there. */
static void
restamp(struct rps_table *table, uint64_t tick)
{
    for (size_t s = 0; s < table->shard_count; s++) {
        struct rps_shard *shard = &table->shards[s];
        const struct rps_index *index = &shard->index;
        pthread_mutex_lock(&shard->lock);
        rps_track_change_all_locked(shard);
        for (uint32_t i = 0; i < index->segment_count; i++) {
            struct rps_segment *segment = &index->segments[i];
            for (uint32_t line = 0; line < segment->line_count; line++) {
                uint32_t *meta = segment->lines[line].meta;
                for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
                    meta[lane] = rps_meta_make(tick, RPS_META_USES(meta[lane]));
                }
            }
        }
        pthread_mutex_unlock(&shard->lock);
    }
    atomic_store_explicit(&table->newest, tick, memory_order_relaxed);
    if (rps_counted(&table->erased_at) != 0) {
        atomic_store_explicit(
                &table->erased_at, tick + 1, memory_order_relaxed);
    }
}

void
rps_table_restamp_due(struct rps_table *table, uint64_t tick)
{
    pthread_mutex_lock(&table->marks.lock);
    if (atomic_load_explicit(&table->restamp, memory_order_relaxed)) {
        restamp(table, tick);
        table->marks.count = 0;
        atomic_store_explicit(&table->restamp, false, memory_order_release);
    }
    pthread_mutex_unlock(&table->marks.lock);
}

/* The looser of the two: rows beyond a lower limit go later, so it must not
 * keep a sketch away, nor must the old one. */
static void
loosen_limit(struct rps_table *table, uint64_t before, uint64_t after)
{
    const uint64_t limit = before == 0 || after == 0 ? 0
                           : before > after          ? before
                                                     : after;

    atomic_store_explicit(&table->budget.limit, limit, memory_order_relaxed);
}

/* Room for counts first: it is what can fail. */
static rps_status
set_policy(struct rps_table *table, const rps_table_spec *spec)
{
    const rps_table_spec before = table->spec;
    const uint64_t secs = rps_tick_secs(&before);
    rps_status status = RPS_OK;

    pthread_mutex_lock(&table->making);
    rps_upkeep_stop(table);
    table->upkeep.aged = 0;
    table->spec = *spec;
    loosen_limit(table, before.memory_limit, spec->memory_limit);
    status = rps_admit_prepare(table);
    if (status != RPS_OK) {
        table->spec = before;
    } else if (rps_tick_secs(spec) != secs) {
        atomic_store_explicit(&table->restamp, true, memory_order_relaxed);
    }
    atomic_store_explicit(&table->budget.limit, table->spec.memory_limit,
            memory_order_relaxed);
    pthread_mutex_unlock(&table->making);
    return status;
}

static rps_status
check(const struct rps_table *table, const rps_table_spec *spec,
        struct rps_error *error)
{
    char why[RPS_ERROR_BYTES] = "";
    rps_status status = rps_table_spec_check(spec, why, sizeof(why));
    const char *field = NULL;

    if (status != RPS_OK) {
        return rps_fail(error, status, "%s", why);
    }
    if (atomic_load_explicit(&table->cut, memory_order_relaxed)) {
        return rps_fail(error, RPS_E_RETRY_LATER,
                "table %s: a checkpoint of it is being written: alter it when "
                "that is done",
                spec->name);
    }
    field = rps_spec_identity_differs(&table->spec, spec);
    if (field != NULL) {
        return rps_fail(error, RPS_E_MISMATCH,
                "table %s: %s is part of what the table is and cannot be "
                "altered: use another name",
                table->spec.name, field);
    }
    return rps_table_check_limit(table, spec, error);
}

/* Of set_policy(); nothing was changed. */
static rps_status
fail_counts(const struct rps_table *table, const rps_table_spec *spec,
        rps_status status, struct rps_error *error)
{
    const struct rps_budget *full = rps_budget_tightest(&table->budget);
    const bool own = full == &table->budget;
    const uint64_t used =
            atomic_load_explicit(&full->used, memory_order_relaxed);

    if (status != RPS_E_LIMIT) {
        return rps_fail(error, status,
                "table %s: no memory to count keys: nothing was changed",
                spec->name);
    }
    return rps_fail(error, status,
            "table %s: admission sketch takes %" PRIu64
            " bytes, and %s has %" PRIu64 " left: nothing was changed; "
            "raise it to %" PRIu64 " at least, or use admission exact",
            spec->name, RPS_SKETCH_BUDGET_BYTES,
            own ? "the table's memory_limit"
                : "the server's memory limit (--memory-limit)",
            rps_budget_left(full), used + RPS_SKETCH_BUDGET_BYTES);
}

rps_status
rps_table_alter(struct rps_table *table, const rps_table_spec *spec,
        struct rps_now now, struct rps_error *error)
{
    rps_status status = check(table, spec, error);

    if (status != RPS_OK) {
        return status;
    }
    status = set_policy(table, spec);
    if (status != RPS_OK) {
        return fail_counts(table, spec, status, error);
    }
    rps_table_restamp_due(table, rps_tick_of(spec, now));
    return RPS_OK;
}

rps_status
rps_table_set_policy(struct rps_table *table, const rps_table_spec *spec,
        struct rps_error *error)
{
    rps_status status = check(table, spec, error);

    if (status == RPS_OK) {
        status = set_policy(table, spec);
        if (status != RPS_OK) {
            return fail_counts(table, spec, status, error);
        }
    }
    return status;
}
