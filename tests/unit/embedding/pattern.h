/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables whose rows carry a pattern derived from their key, so that a row
 * that is torn, stale or another's is seen at each read:
 *
 *   counting   sgd at rate 1 from zeros, gradients of -p: a row is k p after
 *              k pushes, a slot has none
 *   summing    adagrad at rate 0, gradients of p: a row is the key's first
 *              value for ever, the accumulator 1 + k p^2
 *
 * p(key, j) is in 1..13; all of it is exact in float32 up to k = 80,000.
 */
#ifndef RPS_TESTS_UNIT_EMBEDDING_PATTERN_H
#define RPS_TESTS_UNIT_EMBEDDING_PATTERN_H

#include "tests/unit/embedding/fixture.h"

#define PATTERN_DIM   8u
#define PATTERN_KINDS 2u
#define ABSENT        (-7.0f) /* default_value: what read_only answers */

static inline float
pattern(uint64_t key, size_t j)
{
    uint64_t state = key * UINT64_C(0x9e3779b97f4a7c15) + j + 1;

    state = (state ^ (state >> 31)) * UINT64_C(0xd6e8feb86659fd93);
    return (float)(1 + (state >> 40) % 13);
}

static inline bool
pattern_counts(const struct rps_table *table)
{
    return rps_table_spec_of(table)->optimizer == RPS_OPTIMIZER_SGD;
}

static inline rps_table_spec
pattern_spec(int kind)
{
    rps_table_spec spec = spec_of(
            PATTERN_DIM, kind == 0 ? RPS_OPTIMIZER_SGD : RPS_OPTIMIZER_ADAGRAD);

    spec.default_value = ABSENT;
    if (kind == 0) {
        spec.initializer = RPS_INITIALIZER_ZEROS;
        spec.learning_rate = 1.0f;
    } else {
        spec.learning_rate = 0.0f;
        spec.initial_accumulator = 1.0f;
    }
    return spec;
}

/* gradients[n][PATTERN_DIM] of these keys. */
static inline void
pattern_gradients(const struct rps_table *table, size_t n, const uint64_t *keys,
        float *gradients)
{
    const float sign = pattern_counts(table) ? -1.0f : 1.0f;

    for (size_t i = 0; i < n * PATTERN_DIM; i++) {
        gradients[i] = sign * pattern(keys[i / PATTERN_DIM], i % PATTERN_DIM);
    }
}

static inline void
pattern_push(
        struct rps_table *table, uint64_t step, size_t n, const uint64_t *keys)
{
    float *gradients = malloc(n * PATTERN_DIM * sizeof(*gradients));

    ck_assert_ptr_nonnull(gradients);
    pattern_gradients(table, n, keys, gradients);
    push(table, step, n, keys, gradients);
    free(gradients);
}

/* k of k p, k >= 0; -1: the row is none of this key's. */
static inline int64_t
pattern_count(uint64_t key, const float *row)
{
    const float k = row[0] / pattern(key, 0);

    for (size_t j = 0; j < PATTERN_DIM; j++) {
        if (row[j] != k * pattern(key, j)) {
            return -1;
        }
    }
    return k >= 0.0f && k == floorf(k) ? (int64_t)k : -1;
}

/* k of the accumulators 1 + k p^2; -1: they are none of this key's. */
static inline int64_t
pattern_slot_count(uint64_t key, const float *slots)
{
    const float k = (slots[0] - 1.0f) / (pattern(key, 0) * pattern(key, 0));

    for (size_t j = 0; j < PATTERN_DIM; j++) {
        if (slots[j] != 1.0f + k * pattern(key, j) * pattern(key, j)) {
            return -1;
        }
    }
    return k >= 0.0f && k == floorf(k) ? (int64_t)k : -1;
}

/* The value of a row that is there or answers its first value. */
static inline bool
pattern_row_is_right(
        const struct rps_table *table, uint64_t key, const float *row)
{
    float first[PATTERN_DIM];

    if (pattern_counts(table)) {
        return pattern_count(key, row) >= 0;
    }
    rps_table_first_value(table, key, first);
    return memcmp(row, first, sizeof(first)) == 0;
}

static inline bool
pattern_is_absent(const float *row)
{
    for (size_t j = 0; j < PATTERN_DIM; j++) {
        if (row[j] != ABSENT) {
            return false;
        }
    }
    return true;
}

/*
 * Value, slots and meta of a row that pushes alone made. One that was made
 * and waits for its first step (embedding/room.h) has no uses, its first
 * value and fresh slots.
 */
static inline bool
pattern_view_is_right(
        const struct rps_table *table, const struct rps_row_view *row)
{
    int64_t count = -1;

    if (!pattern_row_is_right(table, row->key, row->value)) {
        return false;
    }
    count = pattern_counts(table) ? pattern_count(row->key, row->value)
                                  : pattern_slot_count(row->key, row->slots);
    return row->meta == 0 ? count == 0
                          : count >= 1 && RPS_META_USES(row->meta) > 0;
}

#endif /* RPS_TESTS_UNIT_EMBEDDING_PATTERN_H */
