/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of one table of two checkpoints. Those of A that fall into a range
 * (of the keys' slots, or of a hash of our own) are kept, then B's of the
 * same range pass by; and so on, range after range.
 */
#include "base/hash.h"
#include "base/spec.h"
#include "client/precision/variables_impl.h"
#include "embedding/checkpoint/rowset.h"
#include "embedding/checkpoint/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Two vectors' products. */
struct sums {
    double ab, aa, bb;
    bool bad_a, bad_b; /* something is not finite, and in no product */
};

struct rows {
    struct rps_variables_pair *pair;
    struct rps_variables_table *table;
    struct sums *sums; /* [vector_count] of all rows */
    struct rps_rowset kept;
    float *values[2]; /* [dim] of a row */
    uint32_t range, ranges;
};

/* --- numbers ---------------------------------------------------------------
 */

static struct sums
multiply(const float *a, const float *b, size_t n)
{
    struct sums sums = {.ab = 0};

    for (size_t i = 0; i < n; i++) {
        sums.ab += (double)a[i] * (double)b[i];
        sums.aa += (double)a[i] * (double)a[i];
        sums.bb += (double)b[i] * (double)b[i];
    }
    /* of floats that are finite every product is, and so are its sums */
    sums.bad_a = !isfinite(sums.aa);
    sums.bad_b = !isfinite(sums.bb);
    return sums;
}

/* sqrt(x^2) is x: equal vectors have 1 and no rounding of it. The squares of
 * floats neither overflow nor vanish in a double, and so their product. */
static double
cosine_of(const struct sums *sums)
{
    double cosine;

    if (sums->bad_a || sums->bad_b) {
        return (double)NAN;
    }
    if (sums->aa == 0.0 || sums->bb == 0.0) {
        return sums->aa == sums->bb ? 1.0 : 0.0;
    }
    cosine = sums->ab / sqrt(sums->aa * sums->bb);
    return cosine > 1.0 ? 1.0 : cosine < -1.0 ? -1.0 : cosine;
}

static void
add_sums(struct sums *all, const struct sums *row)
{
    if (!row->bad_a && !row->bad_b) {
        all->ab += row->ab;
        all->aa += row->aa;
        all->bb += row->bb;
    }
}

/* --- a row of both ---------------------------------------------------------
 */

static double
apart(float a, float b)
{
    const double by = fabs((double)a - (double)b);

    return memcmp(&a, &b, sizeof(a)) == 0 ? 0.0
           : isnan(by)                    ? (double)INFINITY
                                          : by;
}

static void
note_largest(struct rps_variable *variable, const float *a, const float *b,
        uint32_t n, uint64_t key)
{
    for (uint32_t i = 0; i < n; i++) {
        const double by = apart(a[i], b[i]);

        if (by > variable->largest || (by == variable->largest && by > 0 &&
                                              key < variable->largest_key)) {
            variable->largest = by;
            variable->largest_key = key;
            variable->largest_column = i;
        }
    }
}

/* NaN is worse than any number. */
static bool
is_worse(const struct rps_variable *variable, double cosine, uint64_t key)
{
    const double worst = variable->worst_cosine;

    if (variable->changed == 1 || isnan(cosine) != isnan(worst)) {
        return variable->changed == 1 || isnan(cosine);
    }
    return cosine < worst ||
           ((cosine == worst || isnan(cosine)) && key < variable->worst_key);
}

static void
compare_vector(struct rows *rows, size_t at, const float *a, const float *b,
        uint32_t n, uint64_t key)
{
    struct rps_variable *variable = &rows->table->vectors[at];
    const struct sums sums = multiply(a, b, n);

    variable->both++;
    variable->bad_a += sums.bad_a;
    variable->bad_b += sums.bad_b;
    add_sums(&rows->sums[at], &sums);
    if (memcmp(a, b, n * sizeof(*a)) != 0) {
        const double cosine = cosine_of(&sums);

        variable->changed++;
        variable->below += !(cosine >= rows->pair->options->threshold);
        rows->sums[at].bad_a = rows->sums[at].bad_a || isnan(cosine);
        if (is_worse(variable, cosine, key)) {
            variable->worst_cosine = cosine;
            variable->worst_key = key;
        }
        note_largest(variable, a, b, n, key);
    }
}

static void
compare_row(struct rows *rows, size_t at, const struct rps_ckpt_batch *batch,
        size_t row)
{
    struct rps_variables_table *table = rows->table;
    const rps_table_spec *a = table->specs[0], *b = table->specs[1];
    const float *slots_a = rows->kept.slots + at * rows->kept.slot_floats;
    const float *slots_b = batch->slots + row * rps_spec_slot_floats(b);
    uint32_t width = a->dim;

    rps_ckpt_values_floats(a->value_dtype,
            rows->kept.values + at * rows->kept.value_bytes, width,
            rows->values[0]);
    rps_ckpt_values_floats(b->value_dtype,
            batch->values + row * batch->value_bytes, width, rows->values[1]);
    compare_vector(
            rows, 0, rows->values[0], rows->values[1], width, batch->keys[row]);
    for (size_t i = 1; i < table->vector_count; i++) {
        if (table->vectors[i].problem == NULL) {
            width = rps_spec_slot_width(a, (uint32_t)i - 1);
            compare_vector(rows, i, slots_a, slots_b, width, batch->keys[row]);
            slots_a += width;
            slots_b += width;
        }
    }
}

/* --- rows that pass by ------------------------------------------------------
 */

static bool
is_in_range(const struct rows *rows, uint64_t key)
{
    return !rows->pair->by_hash || rows->ranges == 1 ||
           (rps_mix64(key) >> 32) % rows->ranges == rows->range;
}

/* Take out of the batch what another range has. */
static void
keep_range(const struct rows *rows, struct rps_ckpt_batch *batch)
{
    const size_t floats = rps_spec_slot_floats(rows->table->specs[0]);
    size_t kept = 0;

    for (size_t i = 0; i < batch->n; i++) {
        if (is_in_range(rows, batch->keys[i])) {
            batch->keys[kept] = batch->keys[i];
            memmove(batch->values + kept * batch->value_bytes,
                    batch->values + i * batch->value_bytes, batch->value_bytes);
            memmove(batch->slots + kept * floats, batch->slots + i * floats,
                    floats * sizeof(*batch->slots));
            batch->meta[kept++] = batch->meta[i];
        }
    }
    batch->n = kept;
}

static void
count_rows(struct rps_variables_table *table, int side, uint64_t n)
{
    for (size_t i = 0; i < table->vector_count; i++) {
        *(side == 0 ? &table->vectors[i].rows_a : &table->vectors[i].rows_b) +=
                n;
    }
}

static rps_status
keep_a(void *context, struct rps_ckpt_batch *batch, struct rps_error *error)
{
    struct rows *rows = context;

    keep_range(rows, batch);
    count_rows(rows->table, 0, batch->n);
    return rps_rowset_add(&rows->kept, batch)
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOMEM,
                             "no memory for the rows of table %s: give a "
                             "smaller --memory, which makes more passes",
                             rows->table->name);
}

static rps_status
meet_b(void *context, struct rps_ckpt_batch *batch, struct rps_error *error)
{
    struct rows *rows = context;

    (void)error;
    for (size_t i = 0; i < batch->n; i++) {
        if (is_in_range(rows, batch->keys[i])) {
            const size_t at = rps_rowset_find(&rows->kept, batch->keys[i]);

            count_rows(rows->table, 1, 1);
            if (at != SIZE_MAX) {
                compare_row(rows, at, batch, i);
            }
        }
    }
    return RPS_OK;
}

static rps_status
count_keys(void *context, struct rps_ckpt_keys *keys, struct rps_error *error)
{
    uint64_t *count = context;

    (void)error;
    *count += keys->n;
    return RPS_OK;
}

/* --- passes ----------------------------------------------------------------
 */

static void
advance(void *context, uint64_t bytes)
{
    struct rps_variables_pair *pair = context;

    pair->done += bytes;
    if (pair->options->progress != NULL) {
        pair->options->progress(pair->options->context,
                pair->done < pair->total ? pair->done : pair->total,
                pair->total);
    }
}

struct rps_ckpt_replay
rps_variables_replay(
        struct rps_variables_pair *pair, int side, const char *table)
{
    return (struct rps_ckpt_replay){.chain = pair->chains[side],
            .table = table,
            .slot_last = RPS_SLOT_COUNT - 1,
            .memory_bytes = pair->memory_bytes / 2,
            .advance = advance,
            .context = pair};
}

/* Ranges whose rows of A fit into the memory. */
static uint32_t
count_ranges(const struct rows *rows)
{
    const struct rps_ckpt_chain *chain = rows->pair->chains[0];
    const size_t row =
            rps_rowset_bytes(rows->kept.value_bytes, rows->kept.slot_floats);
    const uint64_t fit = rows->pair->memory_bytes / 2 / row + 1;
    uint64_t count = 0;

    for (uint32_t i = 0; i < chain->count; i++) {
        const struct rps_ckpt_manifest *manifest = &chain->links[i].manifest;
        const size_t at = rps_ckpt_table_find(
                manifest->tables, manifest->table_count, rows->table->name);

        count += at < manifest->table_count ? manifest->tables[at].rows : 0;
    }
    return count / fit + 1 < RPS_SLOT_COUNT ? (uint32_t)(count / fit + 1)
                                            : RPS_SLOT_COUNT;
}

static rps_status
compare_range(struct rows *rows, struct rps_error *error)
{
    const char *name = rows->table->name;
    struct rps_ckpt_replay a = rps_variables_replay(rows->pair, 0, name);
    struct rps_ckpt_replay b = rps_variables_replay(rows->pair, 1, name);
    rps_status status;

    if (!rows->pair->by_hash) {
        a.slot_first = b.slot_first =
                RPS_SLOT_COUNT * rows->range / rows->ranges;
        a.slot_last = b.slot_last =
                RPS_SLOT_COUNT * (rows->range + 1) / rows->ranges - 1;
    }
    rps_rowset_clear(&rows->kept);
    status = rps_ckpt_replay_rows(&a, keep_a, rows, error);
    return status == RPS_OK ? rps_ckpt_replay_rows(&b, meet_b, rows, error)
                            : status;
}

static void
conclude(struct rows *rows)
{
    for (size_t i = 0; i < rows->table->vector_count; i++) {
        struct rps_variable *variable = &rows->table->vectors[i];

        variable->only_a = variable->rows_a - variable->both;
        variable->only_b = variable->rows_b - variable->both;
        variable->cosine = cosine_of(&rows->sums[i]);
        variable->norm_a = sqrt(rows->sums[i].aa);
        variable->norm_b = sqrt(rows->sums[i].bb);
    }
}

static rps_status
compare_rows(struct rows *rows, struct rps_error *error)
{
    const rps_table_spec *spec = rows->table->specs[0];
    rps_status status = RPS_OK;

    rows->kept.value_bytes = rps_ckpt_value_bytes(spec);
    rows->kept.slot_floats =
            rows->table->vector_count > 1 ? rps_spec_slot_floats(spec) : 0;
    rows->ranges = count_ranges(rows);
    for (int side = 0; side < 2; side++) {
        rows->values[side] = calloc(spec->dim, sizeof(float));
    }
    rows->sums = calloc(rows->table->vector_count, sizeof(*rows->sums));
    if (rows->sums == NULL || rows->values[0] == NULL ||
            rows->values[1] == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "no memory");
    }
    for (; rows->range < rows->ranges && status == RPS_OK; rows->range++) {
        status = compare_range(rows, error);
    }
    if (status == RPS_OK) {
        conclude(rows);
    }
    rps_rowset_finish(&rows->kept);
    free(rows->values[0]);
    free(rows->values[1]);
    free(rows->sums);
    return status;
}

/* Nothing to compare: how many there are. */
static rps_status
count_sides(struct rps_variables_pair *pair, struct rps_variables_table *table,
        struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (int side = 0; side < 2 && status == RPS_OK; side++) {
        if (table->specs[side] != NULL) {
            const struct rps_ckpt_replay replay =
                    rps_variables_replay(pair, side, table->name);
            uint64_t count = 0;

            status = rps_ckpt_replay_keys(&replay, count_keys, &count, error);
            count_rows(table, side, count);
        }
    }
    return status;
}

static rps_status
pass_by(void *context, struct rps_ckpt_batch *batch, struct rps_error *error)
{
    (void)context;
    (void)batch;
    (void)error;
    return RPS_OK;
}

rps_status
rps_variables_unread(struct rps_variables_pair *pair,
        struct rps_variables_table *table, struct rps_error causes[2],
        struct rps_error *error)
{
    for (int side = 0; side < 2; side++) {
        causes[side].text[0] = '\0';
        if (table->specs[side] != NULL) {
            const struct rps_ckpt_replay replay =
                    rps_variables_replay(pair, side, table->name);
            const rps_status status =
                    rps_ckpt_replay_rows(&replay, pass_by, NULL, &causes[side]);

            if (status == RPS_E_NOMEM) {
                return rps_fail(error, status, "%s", causes[side].text);
            }
            if (status == RPS_OK) {
                causes[side].text[0] = '\0';
            }
        }
    }
    return RPS_OK;
}

rps_status
rps_variables_rows(struct rps_variables_pair *pair,
        struct rps_variables_table *table, struct rps_error *error)
{
    struct rows rows = {.pair = pair, .table = table};

    return table->vectors[0].problem == NULL ? compare_rows(&rows, error)
                                             : count_sides(pair, table, error);
}
