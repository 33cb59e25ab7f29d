/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything at once, from several threads, on rows that carry a pattern
 * (pattern.h). RECPS_TEST_LONG makes it 20 times as long.
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
    uint64_t steady[STEADY];
};

struct part {
    struct soak *soak;
    uint64_t number;
    uint64_t random;
};

static uint64_t
times(uint64_t steps)
{
    return getenv("RECPS_TEST_LONG") != NULL ? 20 * steps : steps;
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
    suite_add_tcase(suite, soak);
    return run_suite(suite);
}
