/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of admission, eviction and budgets share. */
#ifndef RPS_TESTS_UNIT_EMBEDDING_POLICY_H
#define RPS_TESTS_UNIT_EMBEDDING_POLICY_H

#include "tests/unit/embedding/fixture.h"

#include <stdio.h>

#define SPECIAL_KEYS 7

static const uint64_t special_keys[SPECIAL_KEYS] = {0, 1, UINT64_MAX,
        UINT64_MAX - 1, (uint64_t)INT64_MAX + 1, (uint64_t)INT64_MAX,
        UINT64_MAX - 2};

/* One contribution with gradients of 1, at a step and a second. */
static inline rps_status
push_at(struct rps_table *table, struct rps_now now, size_t n,
        const uint64_t *keys, const uint32_t *counts,
        struct rps_apply_report *report)
{
    const size_t dim = rps_table_spec_of(table)->dim;
    const struct rps_update update = {.step = now.step,
            .now_s = now.unix_s,
            .t = now.step,
            .learning_rate = NAN,
            .scale = 1.0f};
    struct rps_contribution contribution = {
            .count = n, .keys = keys, .counts = counts};
    float *gradients = malloc((n * dim + 1) * sizeof(*gradients));
    rps_status status = RPS_OK;

    ck_assert_ptr_nonnull(gradients);
    for (size_t i = 0; i < n * dim; i++) {
        gradients[i] = 1.0f;
    }
    contribution.gradients = gradients;
    status = rps_table_apply(table, &update, &contribution, 1, report);
    free(gradients);
    return status;
}

static inline struct rps_apply_report
push_ok(struct rps_table *table, uint64_t step, size_t n, const uint64_t *keys,
        const uint32_t *counts)
{
    struct rps_apply_report report;

    ck_assert_int_eq(push_at(table, (struct rps_now){.step = step}, n, keys,
                             counts, &report),
            RPS_OK);
    return report;
}

/* `n` keys from `first` on, 256 a push, all at one step. */
static inline void
push_range(struct rps_table *table, uint64_t step, uint64_t first, uint64_t n)
{
    uint64_t keys[256];

    for (uint64_t done = 0; done < n;) {
        const uint64_t count = n - done < 256 ? n - done : 256;
        for (uint64_t i = 0; i < count; i++) {
            keys[i] = first + done + i;
        }
        push_ok(table, step, count, keys, NULL);
        done += count;
    }
}

static inline struct rps_evict_report
evict_at(struct rps_table *table, struct rps_now now)
{
    struct rps_evict_report report;

    rps_table_evict(table, now, &report);
    return report;
}

static inline bool
has_row(struct rps_table *table, uint64_t key)
{
    return see(table, key, 0).found;
}

static inline struct rps_table_stats
stats_of(struct rps_table *table)
{
    struct rps_table_stats stats;

    rps_table_stats_of(table, &stats);
    return stats;
}

/* This process's resident bytes. */
static inline uint64_t
resident_bytes(void)
{
    unsigned long long total = 0;
    unsigned long long resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%llu %llu", &total, &resident), 2);
    fclose(file);
    return resident * 4096;
}

#endif /* RPS_TESTS_UNIT_EMBEDDING_POLICY_H */
