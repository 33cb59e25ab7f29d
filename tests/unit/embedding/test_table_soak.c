/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything at once, from several threads, on rows that carry a pattern
 * (pattern.h). RECPS_TEST_LONG makes it LONGER times as long.
 */
#include "tests/unit/embedding/pattern.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define STEADY  256u  /* keys that are there all the time */
#define CHURN   1024u /* keys that come and go */
#define FRESH   64u   /* new keys of one push */
#define PUSHERS 2u
#define BATCH   512u

struct soak {
    struct rps_table *table;
    uint64_t steps;        /* of each pusher */
    _Atomic uint64_t step; /* the newest that began */
    _Atomic bool over;
    _Atomic uint64_t faults;
    uint64_t crowd; /* further new keys in each push */
    uint64_t steady[STEADY];
};

struct part {
    struct soak *soak;
    uint64_t number;
    uint64_t random;
};

#if defined(__SANITIZE_THREAD__) /* twenty times as slow */
#define SHORTER 200u
#define LONGER  10u
#elif defined(__SANITIZE_ADDRESS__)
#define SHORTER 4u
#define LONGER  20u
#else
#define SHORTER 1u
#define LONGER  20u
#endif

static uint64_t
times(uint64_t steps)
{
    steps /= SHORTER;
    return suite_is_long() ? LONGER * steps : steps;
}

/* A thread must not end the test by an assertion of its own: it is told. */
static void
fault(struct soak *soak, const char *what, uint64_t key, const float *row)
{
    if (atomic_fetch_add(&soak->faults, 1) < 8) {
        fprintf(stderr, "%s: key %llu, row %.9g %.9g %.9g ...\n", what,
                (unsigned long long)key, (double)row[0], (double)row[1],
                (double)row[2]);
    }
}

static uint64_t
churn_key(uint64_t *random)
{
    return UINT64_C(0xc000000000000000) + random_next(random) % CHURN * 3;
}

/* Counted, so that each pusher's are new in every step. */
static uint64_t
fresh_key(const struct part *part, uint64_t step, size_t i)
{
    return (part->number + 1) * UINT64_C(1000000007) + step * FRESH + i;
}

static void
push_crowd(const struct part *part, uint64_t step, uint64_t now)
{
    const uint64_t count = part->soak->crowd;
    uint64_t *keys = malloc((count + 1) * sizeof(*keys));

    ck_assert_ptr_nonnull(keys);
    for (uint64_t i = 0; i < count; i++) {
        keys[i] = (part->number + 5) << 40 | (step * count + i);
    }
    if (count > 0) {
        pattern_push(part->soak->table, now, count, keys);
    }
    free(keys);
}

static void *
push_part(void *context)
{
    struct part *part = context;
    struct soak *soak = part->soak;
    uint64_t keys[STEADY + FRESH + STEADY];

    for (uint64_t step = 1; step <= soak->steps; step++) {
        const uint64_t now = atomic_fetch_add(&soak->step, 1) + 1;
        memcpy(keys, soak->steady, sizeof(soak->steady));
        for (size_t i = 0; i < FRESH; i++) {
            keys[STEADY + i] = fresh_key(part, step, i);
        }
        for (size_t i = 0; i < STEADY; i++) {
            keys[STEADY + FRESH + i] = churn_key(&part->random);
        }
        pattern_push(soak->table, now, STEADY + FRESH + STEADY, keys);
        push_crowd(part, step, now);
    }
    return NULL;
}

static uint64_t
any_key(struct part *part)
{
    const uint64_t random = random_next(&part->random);
    const struct part other = {.number = random / 8 % PUSHERS};

    switch (random % 4) {
    case 0:
        return part->soak->steady[random / 64 % STEADY];
    case 1:
        return fresh_key(
                &other, random / 64 % (part->soak->steps + 1), random % FRESH);
    case 2:
        return random; /* absent, as good as always */
    default:
        return churn_key(&part->random);
    }
}

/* Rows of any keys: right, or (read_only) absent. */
static void
read_any(struct part *part)
{
    struct soak *soak = part->soak;
    const bool read_only = (random_next(&part->random) & 64) != 0;
    uint64_t keys[BATCH];
    float rows[BATCH * PATTERN_DIM];

    for (size_t i = 0; i < BATCH; i++) {
        keys[i] = any_key(part);
    }
    look_up(soak->table, BATCH, keys, read_only, rows,
            PATTERN_DIM * sizeof(*rows));
    for (size_t i = 0; i < BATCH; i++) {
        const float *row = rows + i * PATTERN_DIM;
        if (!pattern_row_is_right(soak->table, keys[i], row) &&
                !(read_only && pattern_is_absent(row))) {
            fault(soak, "lookup", keys[i], row);
        }
    }
}

/* They are never missing, and no step of theirs is ever taken back. */
static void
read_steady(struct part *part, int64_t seen[STEADY])
{
    struct soak *soak = part->soak;
    float rows[STEADY * PATTERN_DIM];
    uint32_t positions[STEADY];

    look_up(soak->table, STEADY, soak->steady, true, rows,
            PATTERN_DIM * sizeof(*rows));
    for (size_t i = 0; i < STEADY; i++) {
        const float *row = rows + i * PATTERN_DIM;
        if (!pattern_row_is_right(soak->table, soak->steady[i], row)) {
            fault(soak, "steady", soak->steady[i], row);
        } else if (pattern_counts(soak->table)) {
            const int64_t count = pattern_count(soak->steady[i], row);
            if (count < seen[i]) {
                fault(soak, "a step was lost", soak->steady[i], row);
            }
            seen[i] = count;
        }
    }
    if (rps_table_changed(soak->table, STEADY, soak->steady, 0, positions,
                rows) != STEADY) {
        fault(soak, "changed since 0", 0, rows);
    }
}

static void *
read_part(void *context)
{
    struct part *part = context;
    int64_t seen[STEADY] = {0};

    while (!part->soak->over) {
        read_any(part);
        read_steady(part, seen);
    }
    return NULL;
}

static void *
read_any_part(void *context)
{
    struct part *part = context;

    while (!part->soak->over) {
        read_any(part);
    }
    return NULL;
}

static rps_status
check_view(void *context, const struct rps_row_view *row)
{
    struct soak *soak = context;

    if (!pattern_view_is_right(soak->table, row)) {
        fault(soak, "visit", row->key, row->value);
    }
    return RPS_OK;
}

static void *
visit_part(void *context)
{
    struct part *part = context;

    while (!part->soak->over) {
        rps_table_visit(part->soak->table, check_view, part->soak);
        rps_table_digest(part->soak->table);
    }
    return NULL;
}

static void
soak_init(struct soak *soak, const rps_table_spec *spec, uint64_t steps)
{
    static const uint64_t extremes[] = {0, 1, UINT64_MAX, UINT64_MAX - 1,
            UINT64_MAX - 2, INT64_MAX, UINT64_C(1) << 63};
    const size_t count = sizeof(extremes) / sizeof(extremes[0]);

    *soak = (struct soak){.table = table_of(spec), .steps = times(steps)};
    for (size_t i = 0; i < STEADY; i++) {
        soak->steady[i] = i < count ? extremes[i] : 0x5000 + i * 17;
    }
    atomic_store(&soak->step, 1);
    pattern_push(soak->table, 1, STEADY, soak->steady);
}

/* Pushers run to their end, the others until then. */
static void
soak_run(struct soak *soak, void *(*const others[])(void *), size_t count)
{
    struct part parts[PUSHERS + 8];
    pthread_t threads[PUSHERS + 8];

    ck_assert_uint_le(count, 8);
    for (size_t i = 0; i < PUSHERS + count; i++) {
        parts[i] = (struct part){.soak = soak, .number = i, .random = i + 99};
        ck_assert_int_eq(pthread_create(&threads[i], NULL,
                                 i < PUSHERS ? push_part : others[i - PUSHERS],
                                 &parts[i]),
                0);
    }
    for (size_t i = 0; i < PUSHERS + count; i++) {
        soak->over = i >= PUSHERS;
        pthread_join(threads[i], NULL);
    }
    ck_assert_uint_eq(soak->faults, 0);
}

/* Each steady key was in one push of the start and in every other one. */
static rps_status
count_view(void *context, const struct rps_row_view *row)
{
    const struct soak *soak = context;
    const int64_t want = (int64_t)(1 + PUSHERS * soak->steps);

    for (size_t i = 0; i < STEADY; i++) {
        if (row->key == soak->steady[i]) {
            ck_assert_int_eq(pattern_counts(soak->table)
                                     ? pattern_count(row->key, row->value)
                                     : pattern_slot_count(row->key, row->slots),
                    want);
        }
    }
    return RPS_OK;
}

static struct rps_now
now_of(const struct soak *soak)
{
    return (struct rps_now){.step = soak->step, .unix_s = 1000000};
}

#define ERASE 64u

/* Slices, whole passes and erases of what comes and goes. */
static void *
clean_part(void *context)
{
    struct part *part = context;
    struct soak *soak = part->soak;
    uint64_t keys[ERASE];

    for (uint64_t turn = 0; !soak->over; turn++) {
        struct rps_evict_report report = {0};
        for (size_t i = 0; i < ERASE; i++) {
            keys[i] = churn_key(&part->random);
        }
        rps_table_erase(soak->table, ERASE, keys);
        rps_table_maintain(soak->table, now_of(soak), 256, &report);
        if (turn % 64 == 63) {
            rps_table_evict(soak->table, now_of(soak), &report);
        }
    }
    return NULL;
}

#define SCAN_MAX ((size_t)1 << 20)

static int
by_value(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a;
    const uint64_t right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

/* No key twice, and each that is always there once. */
static void
check_scan(struct soak *soak, uint64_t *keys, size_t n)
{
    static const float none[3] = {0};

    qsort(keys, n, sizeof(*keys), by_value);
    for (size_t i = 1; i < n; i++) {
        if (keys[i] == keys[i - 1]) {
            fault(soak, "scanned twice", keys[i], none);
        }
    }
    for (size_t i = 0; i < STEADY; i++) {
        if (bsearch(&soak->steady[i], keys, n, sizeof(*keys), by_value) ==
                NULL) {
            fault(soak, "not scanned", soak->steady[i], none);
        }
    }
}

static void *
scan_part(void *context)
{
    struct part *part = context;
    struct soak *soak = part->soak;
    uint64_t *keys = malloc(SCAN_MAX * sizeof(*keys));

    while (keys != NULL && !soak->over) {
        struct rps_scan_cursor cursor = {0};
        size_t n = 0;
        size_t got = 0;
        do {
            const size_t most = 1 + random_next(&part->random) % 500;
            got = rps_table_scan(soak->table, &cursor,
                    most < SCAN_MAX - n ? most : SCAN_MAX - n, keys + n, NULL);
            n += got;
        } while (got > 0 && n < SCAN_MAX && !soak->over);
        if (!soak->over) {
            check_scan(soak, keys, n);
        }
    }
    free(keys);
    return NULL;
}

/* Whatever came and went: when all is cold the table is as small as it was,
 * but for one region of 2 MiB. */
static void
assert_all_memory_goes(struct soak *soak, uint64_t empty)
{
    struct rps_evict_report report;
    struct rps_table_stats stats;

    soak->step += 1000;
    rps_table_evict(soak->table, now_of(soak), &report);
    rps_table_stats_of(soak->table, &stats);
    ck_assert_uint_eq(stats.rows, 0);
    ck_assert_uint_le(stats.bytes, empty + ((uint64_t)3 << 20));
}

START_TEST(nothing_is_lost_or_torn_beside_erases_evictions_and_scans)
{
    static void *(*const others[])(void *) = {
            read_part, visit_part, clean_part, scan_part};
    rps_table_spec spec = pattern_spec(_i);
    struct rps_table_stats stats;
    struct soak soak;
    uint64_t empty = 0;

    spec.max_cold_steps = 64;
    soak_init(&soak, &spec, 400);
    rps_table_stats_of(soak.table, &stats);
    empty = stats.bytes;
    soak_run(&soak, others, 4);
    rps_table_visit(soak.table, count_view, &soak);
    rps_table_stats_of(soak.table, &stats);
    ck_assert_uint_gt(stats.erased, 0);
    /* a shorter run may end before a key was idle for long enough */
    ck_assert(SHORTER > 1 || stats.evicted_cold > 0);
    ck_assert_uint_eq(
            stats.rows, stats.inserted - stats.erased - stats.evicted_cold);
    assert_all_memory_goes(&soak, empty);
    rps_table_destroy(soak.table);
}
END_TEST

/* New keys for ever into a table that may not grow: none is refused, and the
 * least used give way. */
START_TEST(a_full_table_takes_new_keys_and_stays_in_its_budget)
{
    static void *(*const others[])(void *) = {read_any_part, visit_part};
    rps_table_spec spec = pattern_spec(_i % (int)PATTERN_KINDS);
    struct rps_table_stats stats;
    struct soak soak;

    spec.memory_limit = (uint64_t)8 << 20;
    spec.on_full = _i < (int)PATTERN_KINDS ? RPS_ON_FULL_EVICT_LRU
                                           : RPS_ON_FULL_EVICT_LFU;
    soak_init(&soak, &spec, 60 * SHORTER); /* until it is full */
    soak.crowd = 2048;
    soak_run(&soak, others, 2);
    rps_table_stats_of(soak.table, &stats);
    ck_assert_uint_gt(stats.evicted_full, 0);
    /* beside it: the table itself and its hot keys */
    ck_assert_uint_le(stats.bytes, spec.memory_limit + ((uint64_t)256 << 10));
    rps_table_destroy(soak.table);
}
END_TEST

START_TEST(rows_are_whole_beside_pushes_growth_and_visits)
{
    static void *(*const others[])(void *) = {read_part, visit_part};
    const rps_table_spec spec = pattern_spec(_i);
    struct soak soak;

    soak_init(&soak, &spec, 400);
    soak_run(&soak, others, 2);
    rps_table_visit(soak.table, count_view, &soak);
    rps_table_destroy(soak.table);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("table_soak");
    TCase *soak = tcase_create("soak");

    tcase_set_timeout(soak, 900);
    tcase_add_loop_test(soak, rows_are_whole_beside_pushes_growth_and_visits, 0,
            PATTERN_KINDS);
    tcase_add_loop_test(soak,
            nothing_is_lost_or_torn_beside_erases_evictions_and_scans, 0,
            PATTERN_KINDS);
    /* TSan: each kind of rows once, each way of eviction once */
    for (int i = 0; i < 2 * (int)PATTERN_KINDS;
            i += SUITE_TSAN && !suite_is_long() ? 3 : 1) {
        tcase_add_loop_test(soak,
                a_full_table_takes_new_keys_and_stays_in_its_budget, i, i + 1);
    }
    suite_add_tcase(suite, soak);
    return run_suite(suite);
}
