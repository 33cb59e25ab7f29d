/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/device_rows.h"

#include "client/worker/turn.h"

#include <recps/refresh.h>

#include <stdlib.h>
#include <string.h>

/* --- opening, closing ------------------------------------------------------
 */

rps_status
rps_device_rows_create(struct rps_device_rows **rows_out,
        const struct rps_model *model, const struct rps_settings *settings,
        struct rps_error *error)
{
    struct rps_device_rows *rows = calloc(1, sizeof(*rows));
    rps_status status = rows != NULL ? RPS_OK : RPS_E_NOMEM;

    *rows_out = rows;
    for (uint32_t t = 0; status == RPS_OK && t < model->table_count; t++) {
        const rps_table_spec *spec = &settings->model.tables[t].spec;

        rows->counts[t] = spec->min_used_times > 1;
        status = rps_row_cache_init(
                &rows->tables[t], rps_settings_cache_rows(settings, t));
        if (status != RPS_OK) {
            (void)rps_fail(error, status,
                    "table %s: no memory for a device cache of %llu rows, or "
                    "more than %u",
                    model->tables[t].name,
                    (unsigned long long)rps_settings_cache_rows(settings, t),
                    RPS_ROW_CACHE_MAX);
        }
    }
    if (rows == NULL) {
        return rps_fail(error, status, "no memory for the device cache");
    }
    rows->model = model;
    rows->staleness = settings->device.cache_staleness;
    rows->generation = 1;
    if (status != RPS_OK) {
        rps_device_rows_destroy(rows);
        *rows_out = NULL;
    }
    return status;
}

void
rps_device_rows_destroy(struct rps_device_rows *rows)
{
    if (rows == NULL) {
        return;
    }
    for (uint32_t t = 0; t < RPS_MODEL_TABLES_MAX; t++) {
        rps_row_cache_finish(&rows->tables[t]);
    }
    free(rows->keys);
    free(rows->positions);
    free(rows->changed);
    free(rows->rows);
    free(rows);
}

/* --- taking ----------------------------------------------------------------
 */

static struct rps_row_batch
batch_of(const struct rps_device_rows *rows, const struct rps_turn *turn,
        uint32_t t)
{
    return (struct rps_row_batch){
            .keys = turn->bags[t].keys,
            .count = turn->bags[t].key_count,
            .step = turn->step,
            .staleness = rows->staleness,
            .done = turn->step - 1, /* rows are moved in the steps' order */
            .pushes = true,
            .refreshing = !rows->counts[t],
    };
}

/* Late keys and early ones that are fetched stay; `late` holds their number. */
static void
mask_split(struct rps_late *late, const struct rps_held *held, size_t tokens)
{
    size_t kept = 0;

    for (size_t i = 0; i < tokens; i++) {
        if (held->places[i].need != RPS_ROW_FETCH) {
            late->early_keys[i] = late->padding;
        }
    }
    for (size_t i = 0; i < late->count; i++) {
        if (held->places[late->positions[i]].need == RPS_ROW_FETCH) {
            late->positions[kept] = late->positions[i];
            late->keys[kept] = late->keys[i];
            kept++;
        }
    }
    late->count = kept;
}

static void
mask(struct rps_turn *turn, uint32_t t)
{
    const struct rps_bags *bags = &turn->bags[t];
    struct rps_held *held = &turn->held[t];

    held->padding = rps_late_padding(bags, held->padding);
    held->padded = false;
    for (size_t i = 0; i < bags->key_count; i++) {
        const bool fetched = held->places[i].need == RPS_ROW_FETCH;

        held->keys[i] = fetched ? bags->keys[i] : held->padding;
        held->padded = held->padded || !fetched;
    }
    if (turn->split && held->padded) {
        mask_split(&turn->late[t], held, bags->key_count);
    }
}

bool
rps_device_rows_has(
        const struct rps_device_rows *rows, const struct rps_turn *turn)
{
    return turn->held_generation == rows->generation &&
           turn->held_step == turn->step;
}

rps_status
rps_device_rows_take(struct rps_device_rows *rows, struct rps_turn *turn,
        struct rps_error *error)
{
    rps_status status = RPS_OK;

    if (rps_device_rows_has(rows, turn)) {
        return RPS_OK;
    }
    for (uint32_t t = 0; status == RPS_OK && t < rows->model->table_count;
            t++) {
        const struct rps_row_batch batch = batch_of(rows, turn, t);

        status = rps_held_reserve(&turn->held[t], batch.count)
                         ? rps_row_cache_take(&rows->tables[t], &batch,
                                   turn->held[t].places)
                         : RPS_E_NOMEM;
        if (status == RPS_OK) {
            mask(turn, t);
        }
    }
    if (status != RPS_OK) {
        return rps_fail(error, status,
                "step %llu: no memory for the device cache, or more rows than "
                "it can count",
                (unsigned long long)turn->step);
    }
    turn->held_generation = rows->generation;
    turn->held_step = turn->step;
    return RPS_OK;
}

/* --- REFRESH ---------------------------------------------------------------
 */

/* Of a table's rows to be refreshed: their number, and the least c. */
struct wanted {
    size_t keys;
    size_t floats;
    uint64_t since;
};

static void
count_wanted(const struct rps_turn *turn, uint32_t t, struct wanted *wanted)
{
    const struct rps_slots *slots = &turn->slots[t];

    for (size_t s = 0; s < slots->count; s++) {
        const struct rps_row_place *place =
                &turn->held[t].places[slots->first[s]];

        if (place->need == RPS_ROW_REFRESH) {
            wanted->keys++;
            wanted->floats += turn->bags[t].table.dim;
            wanted->since =
                    place->since < wanted->since ? place->since : wanted->since;
        }
    }
}

static bool
reserve(struct rps_device_rows *rows, const struct wanted *wanted)
{
    const size_t keys = wanted->keys + wanted->keys / 2;
    const size_t floats = wanted->floats + wanted->floats / 2;

    if (wanted->keys > rows->capacity) {
        free(rows->keys);
        free(rows->positions);
        free(rows->changed);
        rows->keys = malloc(keys * sizeof(*rows->keys));
        rows->positions = malloc(keys * sizeof(*rows->positions));
        rows->changed = malloc(keys);
        rows->capacity = keys;
    }
    if (wanted->floats > rows->row_capacity) {
        free(rows->rows);
        rows->rows = malloc(floats * sizeof(*rows->rows));
        rows->row_capacity = floats;
    }
    return rows->keys != NULL && rows->positions != NULL &&
           rows->changed != NULL && rows->rows != NULL;
}

/* Behind the `first` keys and `row` of the tables before it. */
static rps_refresh_part
part_of(struct rps_device_rows *rows, const struct rps_tables *tables,
        const struct rps_turn *turn, uint32_t t, size_t first, float *row)
{
    const struct rps_slots *slots = &turn->slots[t];
    size_t count = 0;

    for (size_t s = 0; s < slots->count; s++) {
        const uint32_t token = slots->first[s];

        if (turn->held[t].places[token].need == RPS_ROW_REFRESH) {
            rows->keys[first + count] = turn->bags[t].keys[token];
            rows->positions[first + count] = token;
            count++;
        }
    }
    return (rps_refresh_part){
            .table = tables->sparse[t],
            .keys = rows->keys + first,
            .key_count = count,
            .rows = row,
            .changed = rows->changed + first,
    };
}

/* What changed is as if it had been fetched: its first token has it. */
static void
place_changed(struct rps_device_rows *rows, struct rps_turn *turn, uint32_t t,
        const rps_refresh_part *part)
{
    struct rps_bags *bags = &turn->bags[t];
    const size_t first = (size_t)(part->keys - rows->keys);
    const size_t dim = bags->table.dim;

    for (size_t i = 0; i < part->key_count; i++) {
        const uint32_t token = rows->positions[first + i];

        if (part->changed[i] == 0) {
            rows->unchanged++;
            continue;
        }
        memcpy(bags->rows + token * dim, part->rows + i * dim,
                dim * sizeof(float));
        turn->held[t].places[token].need = RPS_ROW_FETCH;
    }
}

rps_status
rps_device_rows_refresh(struct rps_device_rows *rows,
        const struct rps_tables *tables, struct rps_turn *turn,
        struct rps_error *error)
{
    const uint32_t count = rows->model->table_count;
    rps_refresh_part parts[RPS_MODEL_TABLES_MAX];
    struct wanted wanted = {.since = UINT64_MAX};
    size_t first = 0, changed = 0;
    float *row;
    rps_status status;

    for (uint32_t t = 0; t < count; t++) {
        count_wanted(turn, t, &wanted);
    }
    if (wanted.keys == 0) {
        return RPS_OK;
    }
    if (!reserve(rows, &wanted)) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for a batch's rows");
    }
    row = rows->rows;
    for (uint32_t t = 0; t < count; t++) {
        parts[t] = part_of(rows, tables, turn, t, first, row);
        first += parts[t].key_count;
        row += parts[t].key_count * turn->bags[t].table.dim;
    }
    status = rps_refresh_tables(
            tables->client, wanted.since, parts, count, &changed);
    if (status != RPS_OK) {
        return rps_fail(error, status, "refresh of step %llu: %s",
                (unsigned long long)turn->step,
                rps_client_error(tables->client));
    }
    for (uint32_t t = 0; t < count; t++) {
        place_changed(rows, turn, t, &parts[t]);
    }
    return RPS_OK;
}

/* --- what became of it ------------------------------------------------------
 */

void
rps_device_rows_answered(
        struct rps_device_rows *rows, const struct rps_turn *turn, uint64_t c)
{
    for (uint32_t t = 0; t < rows->model->table_count; t++) {
        const struct rps_row_batch batch = batch_of(rows, turn, t);

        rps_row_cache_answered(
                &rows->tables[t], &batch, turn->held[t].places, c);
    }
}

void
rps_device_rows_unpushed(
        struct rps_device_rows *rows, const struct rps_turn *turn)
{
    for (uint32_t t = 0; t < rows->model->table_count; t++) {
        const struct rps_row_batch batch = batch_of(rows, turn, t);

        rps_row_cache_unpushed(&rows->tables[t], &batch, turn->held[t].places);
    }
}

void
rps_device_rows_clear(struct rps_device_rows *rows)
{
    rows->generation++;
    for (uint32_t t = 0; t < rows->model->table_count; t++) {
        rps_row_cache_clear(&rows->tables[t]);
    }
}

/* --- for the device --------------------------------------------------------
 */

size_t
rps_device_rows_pack(struct rps_device_rows *rows, const struct rps_turn *turn,
        uint32_t t, int32_t *slots, int32_t *places, float *packed)
{
    const struct rps_slots *distinct = &turn->slots[t];
    const struct rps_bags *bags = &turn->bags[t];
    const struct rps_row_place *held = turn->held[t].places;
    const size_t dim = bags->table.dim;
    size_t count = 0;

    for (size_t i = 0; i < bags->key_count; i++) {
        slots[i] = (int32_t)held[i].place;
    }
    for (size_t s = 0; s < distinct->count; s++) {
        const uint32_t token = distinct->first[s];

        if (held[token].need == RPS_ROW_FETCH) {
            places[count] = (int32_t)held[token].place;
            memcpy(packed + count * dim, bags->rows + token * dim,
                    dim * sizeof(float));
            count++;
        }
    }
    rows->moved += count;
    return count;
}

struct rps_report_cache
rps_device_rows_tell(const struct rps_device_rows *rows)
{
    struct rps_report_cache told = {.capacity = 0};

    if (rows == NULL) {
        return told;
    }
    told.staleness = rows->staleness;
    told.unchanged = rows->unchanged;
    told.moved = rows->moved;

    for (uint32_t t = 0; t < rows->model->table_count; t++) {
        const struct rps_row_cache *cache = &rows->tables[t];

        told.capacity += cache->capacity;
        told.asked += cache->figures.asked;
        told.held += cache->figures.held;
        told.fresh += cache->figures.fresh;
        told.extra += cache->figures.extra;
        told.evicted += cache->figures.evicted;
    }
    return told;
}
