/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of tables share: make one, push to it, read one row. */
#ifndef RPS_TESTS_UNIT_EMBEDDING_FIXTURE_H
#define RPS_TESTS_UNIT_EMBEDDING_FIXTURE_H

#include "embedding/table.h"
#include "embedding/table_impl.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static inline void
look_up(struct rps_table *table, size_t n, const uint64_t *keys, bool read_only,
        float *rows, size_t stride)
{
    const struct rps_read read = {
            .count = n, .keys = keys, .read_only = read_only};

    rps_table_lookup(table, &read, rows, stride);
}

static inline rps_table_spec
spec_of(uint32_t dim, enum rps_optimizer optimizer)
{
    rps_table_spec spec;

    rps_table_spec_init(&spec, "emb", dim, optimizer);
    return spec;
}

static inline struct rps_table *
table_of(const rps_table_spec *spec)
{
    struct rps_error error = {.text = ""};
    struct rps_table *table = NULL;

    ck_assert_msg(rps_table_create(&table, spec, 0, &error) == RPS_OK, "%s",
            error.text);
    return table;
}

static inline struct rps_table *
table_new(uint32_t dim, enum rps_optimizer optimizer)
{
    const rps_table_spec spec = spec_of(dim, optimizer);

    return table_of(&spec);
}

/* One contribution at the spec's rate. */
static inline struct rps_apply_report
push(struct rps_table *table, uint64_t step, size_t n, const uint64_t *keys,
        const float *gradients)
{
    const struct rps_update update = {
            .step = step, .t = step, .learning_rate = NAN, .scale = 1.0f};
    const struct rps_contribution contribution = {
            .count = n, .keys = keys, .gradients = gradients};
    struct rps_apply_report report;

    ck_assert_int_eq(
            rps_table_apply(table, &update, &contribution, 1, &report), RPS_OK);
    return report;
}

static inline void
read_row(struct rps_table *table, uint64_t key, float *row)
{
    look_up(table, 1, &key, false, row,
            rps_table_spec_of(table)->dim * sizeof(*row));
}

static inline uint64_t
rows_of(struct rps_table *table)
{
    struct rps_table_stats stats;

    rps_table_stats_of(table, &stats);
    return stats.rows;
}

/* A copy of one row as it is visited; found stays false if it is absent. */
struct seen_row {
    uint64_t key;
    size_t floats; /* of value and slots */
    bool found;
    uint32_t meta;
    float content[64];
};

static inline rps_status
see_row(void *context, const struct rps_row_view *row)
{
    struct seen_row *seen = context;

    if (row->key == seen->key) {
        ck_assert(!seen->found);
        seen->found = true;
        seen->meta = row->meta;
        memcpy(seen->content, row->value, seen->floats * sizeof(float));
    }
    return RPS_OK;
}

/* Value and slots stand side by side: `slots` floats follow dim. */
static inline struct seen_row
see(struct rps_table *table, uint64_t key, size_t slots)
{
    struct seen_row seen = {
            .key = key, .floats = rps_table_spec_of(table)->dim + slots};

    ck_assert_uint_le(seen.floats, 64);
    ck_assert_int_eq(rps_table_visit(table, see_row, &seen), RPS_OK);
    return seen;
}

/* A small generator of its own: the tests' inputs owe the code nothing. */
static inline uint64_t
random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* In (-1, 1). */
static inline float
random_float(uint64_t *state)
{
    return (float)(int32_t)(random_next(state) >> 32) / 2147483648.0f;
}

#endif /* RPS_TESTS_UNIT_EMBEDDING_FIXTURE_H */
