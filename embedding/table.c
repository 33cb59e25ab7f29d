/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the table: its spec, its shards, its counters. Reading rows is in
 * lookup.c, writing them in apply.c (pushes) and assign.c.
 */
#include "base/hash.h"
#include "base/spec.h"
#include "embedding/admit.h"
#include "embedding/alter.h"
#include "embedding/meta.h"
#include "embedding/optimizer.h"
#include "embedding/table_impl.h"
#include "embedding/tier.h"
#include "embedding/track.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SLOT_BITS 12u /* of a hash, which name the PS */

static rps_status
create_shards(struct rps_table *table)
{
    const size_t count = (size_t)1 << table->shard_log2;
    void *shards = NULL;

    if (posix_memalign(&shards, _Alignof(struct rps_shard),
                count * sizeof(*table->shards)) != 0) {
        return RPS_E_NOMEM;
    }
    table->shards = shards;
    while (table->shard_count < count) {
        const rps_status status = rps_shard_init(
                &table->shards[table->shard_count], &table->lines,
                &table->cells, rps_table_row_bytes(table), table->job_seed,
                SLOT_BITS + table->shard_log2);
        if (status != RPS_OK) {
            return status;
        }
        table->shard_count++;
    }
    return RPS_OK;
}

/* False: no lock could be made, none was. */
static bool
init_memory(struct rps_table *table)
{
    /* the limit is set when it was checked */
    rps_budget_init(&table->budget, NULL, 0);
    if (pthread_mutex_init(&table->making, NULL) != 0) {
        return false;
    }
    if (pthread_mutex_init(&table->marks.lock, NULL) != 0) {
        goto no_marks;
    }
    if (!rps_arena_init(&table->lines, &table->budget, NULL)) {
        goto no_lines;
    }
    if (rps_arena_init(&table->cells, &table->budget, NULL)) {
        return true;
    }
    rps_arena_finish(&table->lines);
no_lines:
    pthread_mutex_destroy(&table->marks.lock);
no_marks:
    pthread_mutex_destroy(&table->making);
    return false;
}

rps_status
rps_table_create_sharded(struct rps_table **table_out,
        const rps_table_spec *spec, uint64_t job_seed, uint32_t shard_log2,
        struct rps_error *error)
{
    char why[RPS_ERROR_BYTES] = "";
    struct rps_table *table = NULL;
    rps_status status = rps_table_spec_check(spec, why, sizeof(why));

    assert(shard_log2 <= RPS_SHARD_LOG2_MAX);

    *table_out = NULL;
    if (status != RPS_OK) {
        return rps_fail(error, status, "%s", why);
    }
    table = calloc(1, sizeof(*table));
    if (table == NULL) {
        goto fail;
    }
    if (!init_memory(table)) {
        free(table);
        table = NULL;
        goto fail;
    }
    table->spec = *spec;
    table->id = rps_table_id(spec->name);
    table->job_seed = job_seed;
    table->draws = rps_draw_stream(spec->seed, spec->name);
    table->value_bytes = rps_spec_value_bytes(spec);
    table->slot_floats = rps_spec_slot_floats(spec);
    table->shard_log2 = shard_log2;
    table->upkeep.evicted = 1; /* see there */
    rps_first_value_init(&table->first, spec);
    rps_uses_prepare();
    rps_kernels_init(&table->kernels, rps_isa_detect());
    table->hot = rps_hot_create();
    status = create_shards(table);
    if (status == RPS_OK) {
        status = rps_table_check_limit(table, spec, error);
    }
    if (status == RPS_E_INVAL) {
        rps_table_destroy(table);
        return status;
    }
    atomic_store_explicit(
            &table->budget.limit, spec->memory_limit, memory_order_relaxed);
    if (table->hot == NULL || status != RPS_OK ||
            rps_admit_prepare(table) != RPS_OK) {
        goto fail;
    }
    *table_out = table;
    return RPS_OK;

fail:
    rps_table_destroy(table);
    return rps_fail(error, RPS_E_NOMEM,
            "table %s: no memory for its index: stop other programs or use "
            "more servers",
            spec->name);
}

rps_status
rps_table_create(struct rps_table **table_out, const rps_table_spec *spec,
        uint64_t job_seed, struct rps_error *error)
{
    return rps_table_create_sharded(
            table_out, spec, job_seed, RPS_SHARD_LOG2, error);
}

void
rps_table_join_budget(struct rps_table *table, struct rps_budget *server)
{
    rps_budget_adopt(&table->budget, server);
}

void
rps_table_destroy(struct rps_table *table)
{
    if (table == NULL) {
        return;
    }
    for (size_t i = 0; i < table->shard_count; i++) {
        rps_track_finish(table, &table->shards[i]);
        rps_shard_finish(&table->shards[i]);
    }
    rps_admit_finish(table);
    rps_hot_destroy(table->hot);
    rps_arena_finish(&table->lines);
    rps_arena_finish(&table->cells);
    rps_tier_finish(table);
    pthread_mutex_destroy(&table->marks.lock);
    pthread_mutex_destroy(&table->making);
    free(table->shards);
    free(table);
}

const rps_table_spec *
rps_table_spec_of(const struct rps_table *table)
{
    return &table->spec;
}

uint64_t
rps_table_id_of(const struct rps_table *table)
{
    return table->id;
}

size_t
rps_table_hot_keys(struct rps_table *table, size_t max, struct rps_hot_key *out)
{
    const size_t n = rps_hot_top(table->hot, max, out);

    for (size_t i = 0; i < n; i++) {
        out[i].count *= RPS_HOT_SAMPLE;
        out[i].error *= RPS_HOT_SAMPLE;
    }
    return n;
}

rps_status
rps_table_check_keys(const struct rps_table *table, size_t n,
        const uint64_t *keys, struct rps_error *error)
{
    const uint64_t elements = table->spec.dense_elements;

    for (size_t i = 0; elements > 0 && i < n; i++) {
        if (rps_table_live_floats(table, keys[i]) == 0) {
            return rps_fail(error, RPS_E_INVAL,
                    "table %s: key %" PRIu64 " is beyond its %" PRIu64
                    " elements: keys are 0..%" PRIu64 ", %u elements a key",
                    table->spec.name, keys[i], elements,
                    (elements - 1) / table->spec.dim, table->spec.dim);
        }
    }
    return RPS_OK;
}

#define ROUNDED_AT_ONCE 256u

/* Each value becomes the nearest that the type has. */
static void
round_to_type(const struct rps_table *table, float *row)
{
    const enum rps_value type = table->spec.value_dtype;

    for (size_t at = 0; at < table->spec.dim; at += ROUNDED_AT_ONCE) {
        const size_t left = table->spec.dim - at;
        const size_t n = left < ROUNDED_AT_ONCE ? left : ROUNDED_AT_ONCE;
        uint16_t narrow[ROUNDED_AT_ONCE];
        (void)table->kernels.narrow[type](narrow, row + at, n);
        table->kernels.widen[type](row + at, narrow, n);
    }
}

void
rps_table_first_value(const struct rps_table *table, uint64_t key, float *row)
{
    const size_t live = rps_table_live_floats(table, key);

    rps_first_value_fill(&table->first, key, row, live);
    memset(row + live, 0, (table->spec.dim - live) * sizeof(*row));
    if (table->spec.value_dtype != RPS_VALUE_F32) {
        round_to_type(table, row);
    }
}

void
rps_table_default_value(const struct rps_table *table, uint64_t key, float *row)
{
    const size_t live = rps_table_live_floats(table, key);

    for (size_t j = 0; j < table->spec.dim; j++) {
        row[j] = j < live ? table->spec.default_value : 0.0f;
    }
}

/* In memory; a short type has exactly what rps_table_first_value() says. */
static void
write_first_value(const struct rps_table *table, uint64_t key, char *row)
{
    float wide[RPS_DIM_MAX];

    if (table->spec.value_dtype == RPS_VALUE_F32) {
        rps_table_first_value(table, key, (float *)(void *)row);
        return;
    }
    rps_table_first_value(table, key, wide);
    (void)table->kernels.narrow[table->spec.value_dtype](
            row, wide, table->spec.dim);
}

static void
count_new_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_index_place place)
{
    rps_track_new_locked(shard, place.row);
    rps_count(&table->rows, 1);
    rps_count(&table->inserted, 1);
}

static void
fill_new_locked(const struct rps_table *table, const struct rps_shard *shard,
        uint64_t key, struct rps_index_place place)
{
    char *row = rps_shard_row_locked(shard, place);

    write_first_value(table, key, row);
    rps_slots_fresh(&table->spec, rps_table_slots_at(table, row));
}

rps_status
rps_table_bare_row_locked(struct rps_table *table, struct rps_shard *shard,
        uint64_t hash, uint64_t key, bool promised,
        struct rps_index_place *place_out)
{
    const rps_status status =
            rps_shard_create_row_locked(shard, hash, key, promised, place_out);

    if (status == RPS_OK) {
        count_new_locked(table, shard, *place_out);
    }
    return status;
}

rps_status
rps_table_new_row_locked(struct rps_table *table, struct rps_shard *shard,
        uint64_t hash, uint64_t key, bool promised,
        struct rps_index_place *place_out)
{
    const rps_status status = rps_table_bare_row_locked(
            table, shard, hash, key, promised, place_out);

    if (status == RPS_OK) {
        fill_new_locked(table, shard, key, *place_out);
    }
    return status;
}

rps_status
rps_table_new_row_on_disk_locked(struct rps_table *table,
        struct rps_shard *shard, uint64_t hash, uint64_t key,
        struct rps_index_place *place_out)
{
    rps_status status = RPS_E_LIMIT;

    if (table->tiered) {
        status = rps_shard_create_on_disk_locked(shard, hash, key, place_out);
    }
    if (status == RPS_OK) {
        count_new_locked(table, shard, *place_out);
        fill_new_locked(table, shard, key, *place_out);
        rps_count(&table->disk_rows, 1);
    }
    return status;
}

void
rps_table_erase_row_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_index_place place)
{
    rps_track_erase_locked(table, shard, place);
    if ((place.row & RPS_ROW_ON_DISK) != 0) {
        atomic_fetch_sub_explicit(&table->disk_rows, 1, memory_order_relaxed);
    }
    rps_shard_erase_row_locked(shard, place);
    atomic_fetch_sub_explicit(&table->rows, 1, memory_order_relaxed);
}

void
rps_table_note_erased(struct rps_table *table)
{
    /* relaxed: the shard's lock orders it for whoever misses the row */
    atomic_store_explicit(&table->erased_at, rps_counted(&table->newest) + 1,
            memory_order_relaxed);
}

void
rps_table_note_step(struct rps_table *table, uint64_t step)
{
    uint64_t newest = rps_counted(&table->newest);

    while (newest < step &&
            !atomic_compare_exchange_weak_explicit(&table->newest, &newest,
                    step, memory_order_relaxed, memory_order_relaxed)) {
    }
}

void
rps_table_set_pushes(struct rps_table *table, uint64_t pushes)
{
    atomic_store_explicit(&table->pushes, pushes, memory_order_relaxed);
}

void
rps_table_expect(struct rps_table *table, uint64_t rows)
{
    bool there = true;

    for (size_t i = 0; there && i < table->shard_count; i++) {
        struct rps_shard *shard = &table->shards[i];
        pthread_mutex_lock(&shard->lock);
        assert(shard->reserved == 0);
        there = rps_index_expect(&shard->index, rows >> table->shard_log2);
        pthread_mutex_unlock(&shard->lock);
    }
}

static void
add_shard(struct rps_shard *shard, struct rps_table_stats *out)
{
    pthread_mutex_lock(&shard->lock);
    out->bytes += sizeof(*shard) + rps_index_list_bytes(&shard->index) +
                  rps_rows_list_bytes(&shard->rows) +
                  rps_rows_list_bytes(&shard->disk);
    out->index_bytes += rps_index_line_bytes(&shard->index);
    pthread_mutex_unlock(&shard->lock);
}

void
rps_table_stats_of(struct rps_table *table, struct rps_table_stats *out)
{
    *out = (struct rps_table_stats){
            .rows = rps_counted(&table->rows),
            .bytes = sizeof(*table) + rps_hot_bytes() +
                     rps_arena_bytes(&table->lines) +
                     rps_arena_bytes(&table->cells),
            .lookups = rps_counted(&table->lookups),
            .missing = rps_counted(&table->missing),
            .pushes = rps_counted(&table->pushes),
            .applied = rps_counted(&table->applied),
            .inserted = rps_counted(&table->inserted),
            .nonfinite = rps_counted(&table->nonfinite),
            .unadmitted = rps_counted(&table->unadmitted),
            .dropped = rps_counted(&table->dropped),
            .erased = rps_counted(&table->erased),
            .evicted_cold = rps_counted(&table->evicted_cold),
            .evicted_full = rps_counted(&table->evicted_full),
            .disk_rows = rps_counted(&table->disk_rows),
            .disk_bytes =
                    table->tiered ? rps_arena_bytes(&table->disk_cells) : 0,
            .disk_hits = rps_counted(&table->disk_hits),
            .lowered = rps_counted(&table->lowered),
            .raised = rps_counted(&table->raised),
    };
    for (size_t i = 0; i < table->shard_count; i++) {
        add_shard(&table->shards[i], out);
    }
    rps_admit_stats(table, out);
}

struct visitor {
    rps_status (*visit)(void *context, const struct rps_row_view *row);
    void *context;
    const struct rps_table *table;
};

static rps_status
visit_line_locked(const struct rps_shard *shard,
        const struct rps_index_line *line, const struct visitor *visitor)
{
    rps_status status = RPS_OK;

    for (unsigned i = 0; status == RPS_OK && i < RPS_LINE_KEYS; i++) {
        if (line->rows[i] != 0) {
            char *row = rps_shard_row_at(shard, line->rows[i]);
            const struct rps_row_view view = {.key = line->keys[i],
                    .value = row,
                    .slots = rps_table_slots_at(visitor->table, row),
                    .meta = line->meta[i]};
            status = visitor->visit(visitor->context, &view);
        }
    }
    return status;
}

static rps_status
visit_shard(struct rps_shard *shard, const struct visitor *visitor)
{
    const struct rps_index *index = &shard->index;
    rps_status status = RPS_OK;

    pthread_mutex_lock(&shard->lock);
    for (uint32_t s = 0; s < index->segment_count; s++) {
        const struct rps_segment *segment = &index->segments[s];
        for (uint32_t i = 0; status == RPS_OK && i < segment->line_count; i++) {
            status = visit_line_locked(shard, &segment->lines[i], visitor);
        }
    }
    pthread_mutex_unlock(&shard->lock);
    return status;
}

rps_status
rps_table_visit(struct rps_table *table,
        rps_status (*visit)(void *context, const struct rps_row_view *row),
        void *context)
{
    const struct visitor visitor = {
            .visit = visit, .context = context, .table = table};
    rps_status status = RPS_OK;

    for (size_t i = 0; status == RPS_OK && i < table->shard_count; i++) {
        status = visit_shard(&table->shards[i], &visitor);
    }
    return status;
}

struct digesting {
    struct rps_digest sum;
    size_t value_bytes;
    size_t slot_bytes;
};

static rps_status
digest_row(void *context, const struct rps_row_view *row)
{
    struct digesting *digesting = context;

    rps_digest_add(&digesting->sum,
            rps_digest_row(row->key, row->value, digesting->value_bytes,
                    row->slots, digesting->slot_bytes,
                    (uint8_t)RPS_META_USES(row->meta),
                    RPS_META_LAST(row->meta)));
    return RPS_OK;
}

struct rps_digest
rps_table_digest(struct rps_table *table)
{
    struct digesting digesting = {
            .value_bytes = rps_table_packed_bytes(table),
            .slot_bytes = table->slot_floats * sizeof(float),
    };
    const rps_status status = rps_table_visit(table, digest_row, &digesting);

    assert(status == RPS_OK);
    (void)status;
    return digesting.sum;
}
