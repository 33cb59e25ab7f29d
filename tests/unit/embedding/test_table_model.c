/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random sequences of calls against a dictionary that does what table.h
 * says. Few keys, so that they come, go and come back. A failure names its
 * seed and call; RECPS_TEST_SEED=seed runs that one alone, RECPS_TEST_CALLS
 * stops it earlier.
 *
 * sgd from a constant, rates that are powers of two and small whole
 * gradients: float32 is exact, and the dictionary needs no arithmetic of
 * its own to be right.
 */
#include "tests/unit/embedding/fixture.h"

#include <stdio.h>

#define DIM   3u
#define KEYS  24u
#define CALLS 400
#define SEEDS 40
#define FIRST 3.0f /* every first value */

struct entry {
    uint64_t key;
    bool present;
    bool pushed; /* has been since it is there: uses are at least 1 */
    float value[DIM];
    uint64_t last;    /* step of the last push */
    uint32_t uses;    /* as the table had it when it was last compared */
    uint64_t more;    /* multiplicity since then */
    uint64_t counted; /* towards admission, without a row */
};

struct world {
    struct rps_table *table;
    rps_table_spec spec;
    uint64_t random;
    uint64_t seed;
    int call;
    uint64_t step;
    uint64_t newest; /* that the table was told by pushes and assigns */
    uint64_t pushes;
    uint64_t nonfinite;
    struct entry entries[KEYS];
};

#define MUST(world, condition, ...)                                   \
    do {                                                              \
        if (!(condition)) {                                           \
            char words_[256];                                         \
            snprintf(words_, sizeof(words_), __VA_ARGS__);            \
            ck_abort_msg("seed %llu, call %d: %s: %s",                \
                    (unsigned long long)(world)->seed, (world)->call, \
                    #condition, words_);                              \
        }                                                             \
    } while (0)

static uint64_t
below(struct world *world, uint64_t bound)
{
    return (random_next(&world->random) >> 16) % bound;
}

static struct entry *
any_entry(struct world *world)
{
    return &world->entries[below(world, KEYS)];
}

static struct rps_now
now_of(const struct world *world)
{
    return (struct rps_now){.step = world->step, .unix_s = 1000000};
}

static bool
admits(const struct world *world, const struct entry *entry, uint64_t times)
{
    return entry->counted + times >= world->spec.min_used_times;
}

static void
forget(struct entry *entry)
{
    *entry = (struct entry){.key = entry->key};
}

/* ---- push ---- */

/* What one update brings to a key. */
struct brought {
    float sum[DIM];
    uint64_t times;
    bool counts;
};

#define PART_MAX 12u

struct part {
    size_t n;
    uint64_t keys[PART_MAX];
    uint32_t counts[PART_MAX];
    float gradients[PART_MAX * DIM];
    bool with_counts;
};

static void
make_part(struct world *world, struct part *part, struct brought *brought)
{
    part->n = below(world, PART_MAX + 1);
    part->with_counts = below(world, 2) == 0;
    for (size_t i = 0; i < part->n; i++) {
        const size_t at = below(world, KEYS);
        const bool poison = below(world, 10) == 0;
        float *g = part->gradients + i * DIM;
        part->keys[i] = world->entries[at].key;
        part->counts[i] = 1 + (uint32_t)below(world, 4);
        for (size_t j = 0; j < DIM; j++) {
            g[j] = (float)((int)below(world, 15) - 7);
        }
        if (poison) {
            g[below(world, DIM)] = below(world, 2) == 0 ? NAN : INFINITY;
            world->nonfinite++;
            continue;
        }
        brought[at].counts = true;
        brought[at].times += part->with_counts ? part->counts[i] : 1;
        for (size_t j = 0; j < DIM; j++) {
            brought[at].sum[j] += g[j];
        }
    }
}

/* The dictionary's push; what the table has to report. */
static struct rps_apply_report
step_entries(struct world *world, const struct brought *brought, float rate)
{
    struct rps_apply_report want = {.applied = 0};

    for (size_t at = 0; at < KEYS; at++) {
        struct entry *entry = &world->entries[at];
        if (!brought[at].counts) {
            continue;
        }
        if (!entry->present && !admits(world, entry, brought[at].times)) {
            entry->counted += brought[at].times;
            want.unadmitted++;
            continue;
        }
        if (!entry->present) {
            const uint64_t counted = entry->counted;
            forget(entry);
            entry->present = true;
            entry->more = counted;
            for (size_t j = 0; j < DIM; j++) {
                entry->value[j] = FIRST;
            }
        }
        for (size_t j = 0; j < DIM; j++) {
            entry->value[j] -= rate * brought[at].sum[j];
        }
        entry->last = world->step;
        entry->more += brought[at].times;
        entry->pushed = true;
        want.applied++;
    }
    return want;
}

static void
do_push(struct world *world)
{
    static const float rates[] = {0.5f, 1.0f, 2.0f};
    struct brought brought[KEYS] = {{.times = 0}};
    struct part parts[3];
    struct rps_contribution contributions[3];
    const size_t n = below(world, 4);
    const uint64_t before = world->nonfinite;
    const bool given = below(world, 2) == 0;
    const float rate =
            given ? rates[below(world, 3)] : world->spec.learning_rate;
    struct rps_apply_report report, want;
    struct rps_update update;

    world->step += below(world, 3);
    update = (struct rps_update){.step = world->step,
            .now_s = 1000000,
            .learning_rate = given ? rate : NAN,
            .scale = 1.0f};
    for (size_t i = 0; i < n; i++) {
        make_part(world, &parts[i], brought);
        contributions[i] = (struct rps_contribution){.count = parts[i].n,
                .keys = parts[i].keys,
                .counts = parts[i].with_counts ? parts[i].counts : NULL,
                .gradients = parts[i].gradients};
    }
    world->newest = world->step;
    want = step_entries(world, brought, rate);
    world->pushes++;
    MUST(world,
            rps_table_apply(world->table, &update, contributions, n, &report) ==
                    RPS_OK,
            "apply");
    MUST(world,
            report.applied == want.applied &&
                    report.unadmitted == want.unadmitted &&
                    report.nonfinite == world->nonfinite - before,
            "applied %llu (%llu), unadmitted %llu (%llu)",
            (unsigned long long)report.applied,
            (unsigned long long)want.applied,
            (unsigned long long)report.unadmitted,
            (unsigned long long)want.unadmitted);
}

/* ---- assign, erase, evict, alter ---- */

static void
do_assign(struct world *world)
{
    const size_t n = below(world, 6);
    const bool with_meta = below(world, 2) == 0;
    uint64_t keys[6];
    uint32_t meta[6];
    float rows[6 * DIM];
    uint64_t told = world->newest;

    for (size_t i = 0; i < n; i++) {
        struct entry *entry = any_entry(world);
        const uint32_t uses = 1 + (uint32_t)below(world, 9);
        const uint64_t last = below(world, world->step + 1);
        forget(entry);
        entry->present = true;
        keys[i] = entry->key;
        meta[i] = (uint32_t)last | uses << 24;
        if (with_meta) {
            entry->last = last;
            entry->uses = uses;
            told = last > told ? last : told;
        } else if (world->spec.max_cold_steps > 0) {
            entry->last = world->newest;
        }
        for (size_t j = 0; j < DIM; j++) {
            entry->value[j] = rows[i * DIM + j] =
                    (float)((int)below(world, 200) - 100);
        }
    }
    MUST(world,
            rps_table_assign(world->table, n, keys, rows, NULL,
                    with_meta ? meta : NULL, NULL) == RPS_OK,
            "assign");
    world->newest = told;
}

static void
do_erase(struct world *world)
{
    const size_t n = below(world, 8);
    uint64_t keys[8];
    uint64_t want = 0;

    for (size_t i = 0; i < n; i++) {
        struct entry *entry = any_entry(world);
        keys[i] = entry->key;
        want += entry->present;
        forget(entry);
    }
    MUST(world, rps_table_erase(world->table, n, keys) == want, "erased");
}

/* Idle longer than max_cold_steps, strictly. */
static void
do_evict(struct world *world)
{
    struct rps_evict_report report;
    uint64_t want = 0;

    world->step += below(world, 6);
    for (size_t at = 0; at < KEYS; at++) {
        struct entry *entry = &world->entries[at];
        if (world->spec.max_cold_steps > 0 && entry->present &&
                world->step - entry->last > world->spec.max_cold_steps) {
            forget(entry);
            want++;
        }
    }
    rps_table_evict(world->table, now_of(world), &report);
    MUST(world, report.cold == want && report.full == 0, "cold %llu, not %llu",
            (unsigned long long)report.cold, (unsigned long long)want);
}

static void
do_alter(struct world *world)
{
    struct rps_error error = {.text = ""};
    rps_table_spec spec = world->spec;

    spec.learning_rate = (float)(1u << below(world, 3));
    spec.default_value = -1.0f - (float)below(world, 5);
    if (spec.min_used_times > 0) { /* never off: counts age with eviction */
        spec.min_used_times = 2 + below(world, 6);
    } else {
        spec.max_cold_steps = 4 + below(world, 12);
    }
    MUST(world,
            rps_table_alter(world->table, &spec, now_of(world), &error) ==
                    RPS_OK,
            "%s", error.text);
    world->spec = spec;
}

/* ---- what can be seen ---- */

static void
do_lookup(struct world *world)
{
    const bool read_only = below(world, 2) == 0;
    uint32_t counts[KEYS];
    uint64_t keys[KEYS];
    float rows[KEYS * DIM];
    const struct rps_read read = {.count = KEYS,
            .keys = keys,
            .counts = below(world, 2) == 0 ? counts : NULL,
            .read_only = read_only};

    for (size_t at = 0; at < KEYS; at++) {
        keys[at] = world->entries[at].key;
        counts[at] = 1 + (uint32_t)below(world, 5);
    }
    rps_table_lookup(world->table, &read, rows, DIM * sizeof(*rows));
    for (size_t i = 0; i < KEYS * DIM; i++) {
        const struct entry *entry = &world->entries[i / DIM];
        const uint64_t times = read.counts == NULL ? 1 : counts[i / DIM];
        const float want = entry->present ? entry->value[i % DIM]
                           : read_only || !admits(world, entry, times)
                                   ? world->spec.default_value
                                   : FIRST;
        MUST(world, rows[i] == want, "key %llu is %g, not %g",
                (unsigned long long)entry->key, (double)rows[i], (double)want);
    }
}

static void
do_changed(struct world *world)
{
    const uint64_t since = below(world, world->step + 2);
    uint32_t positions[KEYS];
    uint64_t keys[KEYS];
    float rows[KEYS * DIM];
    size_t n = 0;
    size_t seen = 0;

    for (size_t at = 0; at < KEYS; at++) {
        keys[at] = world->entries[at].key;
    }
    n = rps_table_changed(world->table, KEYS, keys, since, positions, rows);
    for (size_t at = 0; at < KEYS; at++) {
        const struct entry *entry = &world->entries[at];
        const bool told = seen < n && positions[seen] == at;
        MUST(world, told || !entry->present || entry->last <= since,
                "key %llu changed", (unsigned long long)entry->key);
        if (told) { /* also a key whose row left, as a lookup answers it */
            const float absent =
                    admits(world, entry, 1) ? FIRST : world->spec.default_value;
            for (size_t j = 0; j < DIM; j++) {
                MUST(world,
                        rows[seen * DIM + j] ==
                                (entry->present ? entry->value[j] : absent),
                        "row of key %llu", (unsigned long long)entry->key);
            }
            seen++;
        }
    }
    MUST(world, seen == n, "positions ascend");
}

static rps_status
compare_row(void *context, const struct rps_row_view *row)
{
    struct world *world = context;
    struct entry *entry = world->entries;
    const uint32_t uses = RPS_META_USES(row->meta);

    while (entry < world->entries + KEYS && entry->key != row->key) {
        entry++;
    }
    MUST(world, entry < world->entries + KEYS && entry->present,
            "key %llu should not be there", (unsigned long long)row->key);
    MUST(world, memcmp(row->value, entry->value, sizeof(entry->value)) == 0,
            "key %llu", (unsigned long long)row->key);
    MUST(world, RPS_META_LAST(row->meta) == entry->last,
            "last of %llu: %u, not %llu", (unsigned long long)row->key,
            RPS_META_LAST(row->meta), (unsigned long long)entry->last);
    MUST(world, uses >= entry->uses && uses <= entry->uses + entry->more,
            "uses of %llu: %u after %u and %llu more",
            (unsigned long long)row->key, uses, entry->uses,
            (unsigned long long)entry->more);
    MUST(world, uses > 0 || !entry->pushed, "no uses");
    entry->uses = uses;
    entry->more = 0;
    return RPS_OK;
}

static uint64_t
present(const struct world *world)
{
    uint64_t count = 0;

    for (size_t at = 0; at < KEYS; at++) {
        count += world->entries[at].present;
    }
    return count;
}

/* Every key that is there, once, in pieces of any size. */
static void
do_scan(struct world *world)
{
    struct rps_scan_cursor cursor = {0};
    bool seen[KEYS] = {false};
    uint64_t keys[KEYS];
    uint64_t total = 0;
    size_t n = 0;

    do {
        n = rps_table_scan(
                world->table, &cursor, 1 + below(world, KEYS), keys, NULL);
        for (size_t i = 0; i < n; i++) {
            size_t at = 0;
            while (at < KEYS && world->entries[at].key != keys[i]) {
                at++;
            }
            MUST(world, at < KEYS && world->entries[at].present && !seen[at],
                    "key %llu", (unsigned long long)keys[i]);
            seen[at] = true;
        }
        total += n;
    } while (n > 0);
    MUST(world, total == present(world), "%llu of %llu seen",
            (unsigned long long)total, (unsigned long long)present(world));
}

static void
compare(struct world *world)
{
    struct rps_table_stats stats;

    rps_table_stats_of(world->table, &stats);
    MUST(world, stats.rows == present(world), "%llu rows, not %llu",
            (unsigned long long)stats.rows, (unsigned long long)present(world));
    MUST(world, stats.pushes == world->pushes, "pushes");
    MUST(world, stats.nonfinite == world->nonfinite, "nonfinite");
    rps_table_visit(world->table, compare_row, world);
}

static void
world_init(struct world *world, uint64_t seed)
{
    static const uint64_t extremes[] = {
            0, 1, UINT64_MAX, UINT64_MAX - 1, INT64_MAX, UINT64_C(1) << 63};
    struct rps_error error = {.text = ""};

    *world = (struct world){.seed = seed,
            .step = 1,
            .random = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15)};
    world->spec = spec_of(DIM, RPS_OPTIMIZER_SGD);
    world->spec.initializer = RPS_INITIALIZER_CONSTANT;
    world->spec.initializer_low = FIRST;
    world->spec.learning_rate = 1.0f;
    if (seed % 2 == 0) {
        world->spec.min_used_times = 4;
    } else {
        world->spec.max_cold_steps = 8;
    }
    for (size_t at = 0; at < KEYS; at++) {
        world->entries[at].key =
                at < 6 ? extremes[at] : random_next(&world->random);
    }
    ck_assert_msg(rps_table_create_sharded(&world->table, &world->spec, seed,
                          (uint32_t)(seed % (RPS_SHARD_LOG2_MAX + 1)),
                          &error) == RPS_OK,
            "%s", error.text);
}

static uint64_t
from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static void
play(uint64_t seed)
{
    static void (*const calls[])(struct world *) = {do_push, do_push, do_push,
            do_push, do_lookup, do_lookup, do_assign, do_erase, do_evict,
            do_alter, do_changed, do_scan};
    const int count = (int)from_environment("RECPS_TEST_CALLS", CALLS);
    struct world world;

    world_init(&world, seed);
    for (world.call = 0; world.call < count; world.call++) {
        calls[below(&world, sizeof(calls) / sizeof(calls[0]))](&world);
        compare(&world);
    }
    rps_table_destroy(world.table);
}

START_TEST(a_table_is_a_dictionary_with_the_documented_rules)
{
    if (getenv("RECPS_TEST_SEED") != NULL) {
        play(from_environment("RECPS_TEST_SEED", 0));
        return;
    }
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        play(seed);
    }
}
END_TEST

/* Sixteen times as many, and longer than a debugging run would be. */
START_TEST(a_table_is_a_dictionary_for_many_more_seeds)
{
    if (!suite_is_long()) {
        return;
    }
    for (uint64_t seed = SEEDS; seed < SEEDS + 16 * SEEDS; seed++) {
        play(seed);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("table_model");
    TCase *model = tcase_create("model");

    tcase_set_timeout(model, 900);
    tcase_add_test(model, a_table_is_a_dictionary_with_the_documented_rules);
    tcase_add_test(model, a_table_is_a_dictionary_for_many_more_seeds);
    suite_add_tcase(suite, model);
    return run_suite(suite);
}
