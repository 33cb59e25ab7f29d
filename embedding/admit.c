/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the choice between a shard's counts and the table's sketch. */
#include "embedding/admit.h"

#include <assert.h>
#include <inttypes.h>

static bool
uses_sketch(const struct rps_table *table)
{
    return table->spec.admission == RPS_ADMISSION_SKETCH;
}

static uint32_t
count_of_locked(struct rps_table *table, const struct rps_shard *shard,
        uint64_t hash, uint64_t key)
{
    return uses_sketch(table) ? rps_sketch_get(table->sketch, hash)
                              : rps_counts_get(&shard->counts, hash, key);
}

bool
rps_admitted_locked(struct rps_table *table, const struct rps_shard *shard,
        uint64_t hash, uint64_t key, uint64_t multiplicity)
{
    const uint64_t needed = table->spec.min_used_times;

    return needed <= 1 || multiplicity >= needed ||
           count_of_locked(table, shard, hash, key) >= needed - multiplicity;
}

void
rps_admit_count_locked(struct rps_table *table, struct rps_shard *shard,
        uint64_t hash, uint64_t key, uint64_t multiplicity)
{
    if (multiplicity == 0) {
        return;
    }
    if (uses_sketch(table)) {
        (void)rps_sketch_add(table->sketch, hash, multiplicity);
    } else {
        (void)rps_counts_add(&shard->counts, hash, key, multiplicity);
    }
}

uint32_t
rps_admit_take_locked(struct rps_table *table, struct rps_shard *shard,
        uint64_t hash, uint64_t key)
{
    if (rps_admits_all(table)) {
        return 0;
    }
    return uses_sketch(table) ? rps_sketch_get(table->sketch, hash)
                              : rps_counts_take(&shard->counts, hash, key);
}

static void
forget_counts(struct rps_table *table)
{
    for (size_t s = 0; s < table->shard_count; s++) {
        struct rps_shard *shard = &table->shards[s];
        pthread_mutex_lock(&shard->lock);
        rps_counts_finish(&shard->counts);
        pthread_mutex_unlock(&shard->lock);
    }
}

#define LIMIT_SHARE 8u /* of memory_limit: counts take so much at most */

static void
bound_counts(struct rps_table *table)
{
    const uint64_t most = RPS_COUNTS_PLACES_MAX * (uint64_t)10;
    const uint64_t limit = table->spec.memory_limit == 0
                                   ? UINT64_MAX
                                   : table->spec.memory_limit / LIMIT_SHARE;
    const uint64_t each = limit / table->shard_count;

    for (size_t s = 0; s < table->shard_count; s++) {
        struct rps_shard *shard = &table->shards[s];
        pthread_mutex_lock(&shard->lock);
        shard->counts.bytes_max = each < most ? each : most;
        pthread_mutex_unlock(&shard->lock);
    }
}

rps_status
rps_admit_prepare(struct rps_table *table)
{
    const bool sketch = !rps_admits_all(table) && uses_sketch(table);

    if (sketch && table->sketch == NULL) {
        const rps_status status =
                rps_sketch_create(&table->sketch, &table->budget);
        if (status != RPS_OK) {
            return status;
        }
    }
    if (!sketch) {
        rps_sketch_destroy(table->sketch);
        table->sketch = NULL;
    }
    if (sketch || rps_admits_all(table)) {
        forget_counts(table);
    }
    bound_counts(table);
    return RPS_OK;
}

void
rps_admit_finish(struct rps_table *table)
{
    rps_sketch_destroy(table->sketch);
    table->sketch = NULL;
}

void
rps_admit_stats(struct rps_table *table, struct rps_table_stats *out)
{
    for (size_t s = 0; s < table->shard_count; s++) {
        struct rps_shard *shard = &table->shards[s];
        pthread_mutex_lock(&shard->lock);
        out->admission_keys += shard->counts.used;
        out->admission_bytes += rps_counts_bytes(&shard->counts);
        pthread_mutex_unlock(&shard->lock);
    }
    if (table->sketch != NULL) {
        out->admission_bytes += rps_sketch_bytes(table->sketch);
    }
    out->bytes += out->admission_bytes;
}

typedef rps_status visit_fn(
        void *context, const struct rps_admission_count *count);

struct visitor {
    visit_fn *visit;
    void *context;
};

static rps_status
visit_counts(struct rps_shard *shard, const struct visitor *visitor)
{
    const struct rps_counts *counts = &shard->counts;
    rps_status status = RPS_OK;

    pthread_mutex_lock(&shard->lock);
    for (size_t i = 0; status == RPS_OK && i < counts->places; i++) {
        if (counts->counts[i] != 0) {
            const struct rps_admission_count count = {
                    .id = counts->keys[i], .count = counts->counts[i]};
            status = visitor->visit(visitor->context, &count);
        }
    }
    pthread_mutex_unlock(&shard->lock);
    return status;
}

static rps_status
visit_cell(void *context, uint64_t id, uint8_t cell)
{
    const struct visitor *visitor = context;
    const struct rps_admission_count count = {.id = id, .count = cell};

    return visitor->visit(visitor->context, &count);
}

rps_status
rps_table_visit_admission(
        struct rps_table *table, visit_fn *visit, void *context)
{
    struct visitor visitor = {.visit = visit, .context = context};
    rps_status status = RPS_OK;

    for (uint32_t slot = 0;
            status == RPS_OK && table->sketch != NULL && slot < RPS_SLOT_COUNT;
            slot++) {
        status = rps_sketch_visit(table->sketch, slot, visit_cell, &visitor);
    }
    for (size_t s = 0; status == RPS_OK && s < table->shard_count; s++) {
        status = visit_counts(&table->shards[s], &visitor);
    }
    return status;
}

uint32_t
rps_admission_slot(enum rps_admission kind, uint64_t id, uint64_t job_seed)
{
    if (kind == RPS_ADMISSION_SKETCH) {
        const uint64_t slot = id / RPS_SKETCH_CELLS;
        return slot < RPS_SLOT_COUNT ? (uint32_t)slot : RPS_SLOT_COUNT - 1;
    }
    return rps_hash_slot(rps_key_hash(id, job_seed));
}

static rps_status
check_count(const struct rps_table *table,
        const struct rps_admission_count *count, struct rps_error *error)
{
    const bool beyond = uses_sketch(table) &&
                        count->id / RPS_SKETCH_CELLS >= RPS_SLOT_COUNT;

    if (count->count != 0 && !beyond) {
        return RPS_OK;
    }
    return rps_fail(error, RPS_E_INVAL,
            "table %s: admission count of id %" PRIu64 ": %s", table->spec.name,
            count->id,
            beyond ? "a sketch has 4096 slots of 8192 cells" : "it is 0");
}

static bool
restore_exact(struct rps_table *table, const struct rps_admission_count *count)
{
    const uint64_t hash = rps_key_hash(count->id, table->job_seed);
    struct rps_shard *shard = &table->shards[rps_table_shard_of(table, hash)];
    bool done = true;

    pthread_mutex_lock(&shard->lock);
    if (rps_index_find(&shard->index, hash, count->id).row == 0) {
        done = rps_counts_set(&shard->counts, hash, count->id, count->count);
    }
    pthread_mutex_unlock(&shard->lock);
    return done;
}

static bool
restore_one(struct rps_table *table, const struct rps_admission_count *count)
{
    const uint32_t most = RPS_SKETCH_COUNT_MAX;

    return uses_sketch(table)
                   ? rps_sketch_set_cell(table->sketch, count->id,
                             (uint8_t)(count->count < most ? count->count
                                                           : most))
                   : restore_exact(table, count);
}

rps_status
rps_table_restore_admission(struct rps_table *table, size_t n,
        const struct rps_admission_count *counts, struct rps_error *error)
{
    for (size_t i = 0; i < n; i++) {
        const rps_status status = check_count(table, &counts[i], error);
        if (status != RPS_OK) {
            return status;
        }
    }
    for (size_t i = 0; i < n && !rps_admits_all(table); i++) {
        if (!restore_one(table, &counts[i])) {
            return rps_fail(error, RPS_E_NOMEM,
                    "table %s: no memory for %zu admission counts",
                    table->spec.name, n);
        }
    }
    return RPS_OK;
}
