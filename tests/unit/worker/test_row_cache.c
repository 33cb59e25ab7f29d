/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of a device's rows against a model that knows no list and no
 * index: for every key the time of its last use and the row's version, in a
 * plain array, searched from end to end.
 *
 * RECPS_TEST_LONG: millions of tokens.
 */
#include "base/hash.h"
#include "client/worker/row_cache.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <string.h>

#define KEYS_MAX   4096u
#define TOKENS_MAX 1024u
#define PLACES_MAX 8192u
#define NOWHERE    UINT32_MAX

/* --- the model ------------------------------------------------------------ */

struct known {
    bool here;
    uint64_t time; /* of the last token that used it */
    uint64_t step; /* of the last batch */
    uint64_t version;
    uint64_t pushed;
    uint32_t place;
};

struct model {
    uint32_t capacity;
    uint32_t count;              /* of keys */
    struct known keys[KEYS_MAX]; /* by number; number_key() names them */
    uint64_t time;
    struct rps_row_figures figures;
};

/* Numbers to keys all over the 2^64: 0 and the last one among them. */
static uint64_t
number_key(uint32_t number)
{
    return number == 0   ? 0
           : number == 1 ? UINT64_MAX
                         : rps_mix64(number) ^ (uint64_t)number << 60;
}

static uint32_t
here_count(const struct model *model)
{
    uint32_t count = 0;

    for (uint32_t n = 0; n < model->count; n++) {
        count += model->keys[n].here;
    }
    return count;
}

/* The one whose last use is longest ago, of those whose batch is done. */
static uint32_t
victim_of(const struct model *model, uint64_t done)
{
    uint32_t victim = NOWHERE;

    for (uint32_t n = 0; n < model->count; n++) {
        if (model->keys[n].here &&
                (victim == NOWHERE ||
                        model->keys[n].time < model->keys[victim].time)) {
            victim = n;
        }
    }
    return victim != NOWHERE && model->keys[victim].step <= done ? victim
                                                                 : NOWHERE;
}

struct expected {
    enum rps_row_need need;
    bool stays;
    bool was_here;
};

static enum rps_row_need
model_need(const struct known *known, const struct rps_row_batch *batch)
{
    if (known->version + batch->staleness >= batch->step - 1) {
        return RPS_ROW_FRESH;
    }
    return known->pushed > known->version || !batch->refreshing
                   ? RPS_ROW_FETCH
                   : RPS_ROW_REFRESH;
}

/* expected[i] of token i, whose key's number is numbers[i]. */
static void
model_take(struct model *model, const struct rps_row_batch *batch,
        const uint32_t *numbers, struct expected *expected)
{
    bool seen[KEYS_MAX] = {false};
    struct expected of[KEYS_MAX];

    for (size_t i = 0; i < batch->count; i++) { /* who is here stays */
        struct known *known = &model->keys[numbers[i]];

        if (known->here) {
            known->step = batch->step;
            known->time = ++model->time;
        }
    }
    for (size_t i = 0; i < batch->count; i++) {
        const uint32_t n = numbers[i];
        struct known *known = &model->keys[n];

        if (!seen[n]) {
            seen[n] = true;
            of[n] = (struct expected){
                    .need = RPS_ROW_FETCH, .was_here = known->here};
            model->figures.asked++;
            if (known->here) {
                of[n].need = model_need(known, batch);
                of[n].stays = true;
            } else {
                const uint32_t victim = here_count(model) < model->capacity
                                                ? n
                                                : victim_of(model, batch->done);

                of[n].stays = victim != NOWHERE;
                if (victim != NOWHERE) {
                    model->figures.evicted += victim != n;
                    model->keys[victim].here = false;
                    *known = (struct known){.here = true,
                            .step = batch->step,
                            .time = ++model->time};
                }
            }
            if (of[n].need != RPS_ROW_FRESH) {
                known->version = batch->step - 1;
            }
            if (batch->pushes && known->pushed <= known->version) {
                known->pushed = batch->step;
            }
        }
        expected[i] = of[n];
    }
    for (size_t i = 0; i < batch->count; i++) { /* the order of the tokens */
        model->keys[numbers[i]].time = ++model->time;
    }
}

/* --- both ----------------------------------------------------------------- */

struct pair {
    struct rps_row_cache cache;
    struct model *model;
    uint64_t step;
    uint64_t depth;            /* batches that are not done, with this one */
    uint64_t used[PLACES_MAX]; /* of each place: the last step that had it */
    uint64_t key[PLACES_MAX];
    struct rps_row_figures told; /* counted here */
};

static struct pair *
make_pair(uint32_t capacity, uint32_t keys, uint64_t depth)
{
    struct pair *pair = calloc(1, sizeof(*pair));

    ck_assert_ptr_nonnull(pair);
    pair->model = calloc(1, sizeof(*pair->model));
    ck_assert_ptr_nonnull(pair->model);
    pair->model->capacity = capacity;
    pair->model->count = keys;
    pair->depth = depth;
    ck_assert_int_eq(rps_row_cache_init(&pair->cache, capacity), RPS_OK);
    return pair;
}

static void
free_pair(struct pair *pair)
{
    rps_row_cache_finish(&pair->cache);
    free(pair->model);
    free(pair);
}

/* Each key of the batch has one place, no two have the same, and what the
 * unfinished batches before it use is not among the places given anew. */
static void
check_places(struct pair *pair, const struct rps_row_batch *batch,
        const struct rps_row_place *places, const struct expected *expected)
{
    for (size_t i = 0; i < batch->count; i++) {
        const uint32_t place = places[i].place;
        const bool again = pair->used[place] == batch->step;

        ck_assert_uint_lt(place, PLACES_MAX);
        ck_assert_int_eq(places[i].need, expected[i].need);
        ck_assert_int_eq(place < pair->cache.capacity, expected[i].stays);
        if (again || expected[i].was_here) {
            ck_assert_uint_eq(pair->key[place], batch->keys[i]);
        } else {
            ck_assert(
                    pair->used[place] == 0 || pair->used[place] <= batch->done);
        }
        if (!again) {
            pair->told.fresh += places[i].need == RPS_ROW_FRESH;
            pair->told.refresh += places[i].need == RPS_ROW_REFRESH;
            pair->told.held += expected[i].was_here;
            pair->told.extra += !expected[i].stays;
        }
        pair->used[place] = batch->step;
        pair->key[place] = batch->keys[i];
    }
}

static void
check_figures(const struct pair *pair)
{
    const struct rps_row_figures *figures = &pair->cache.figures;

    ck_assert_uint_eq(figures->asked, pair->model->figures.asked);
    ck_assert_uint_eq(figures->evicted, pair->model->figures.evicted);
    ck_assert_uint_eq(figures->held, pair->told.held);
    ck_assert_uint_eq(figures->fresh, pair->told.fresh);
    ck_assert_uint_eq(figures->refresh, pair->told.refresh);
    ck_assert_uint_eq(figures->extra, pair->told.extra);
    ck_assert_uint_eq(figures->asked, figures->held + figures->absent);
    ck_assert_uint_eq(figures->held,
            figures->fresh + figures->refresh + figures->changed);
    ck_assert_uint_eq(here_count(pair->model), pair->cache.count);
}

static void
take(struct pair *pair, struct rps_row_batch *batch, const uint32_t *numbers)
{
    static struct expected expected[TOKENS_MAX];
    static struct rps_row_place places[TOKENS_MAX];
    static uint64_t keys[TOKENS_MAX];

    pair->step++;
    for (size_t i = 0; i < batch->count; i++) {
        keys[i] = number_key(numbers[i]);
    }
    batch->keys = keys;
    batch->step = pair->step;
    batch->done = pair->step > pair->depth ? pair->step - pair->depth : 0;
    model_take(pair->model, batch, numbers, expected);
    ck_assert_int_eq(rps_row_cache_take(&pair->cache, batch, places), RPS_OK);
    check_places(pair, batch, places, expected);
    rps_row_cache_answered(&pair->cache, batch, places, pair->step - 1);
    check_figures(pair);
}

/* --- streams of keys ------------------------------------------------------ */

static uint64_t draws;

static double
draw(void)
{
    return rps_unit_double(rps_mix64(++draws));
}

/* A rank of [0, keys), the r-th as often as (r + 1)^-1.05. */
static uint32_t
zipf(uint32_t keys)
{
    static double sums[KEYS_MAX + 1];
    static uint32_t made;
    uint32_t low = 0, high = keys - 1;
    double at;

    if (made != keys) {
        for (uint32_t r = 0; r < keys; r++) {
            sums[r + 1] = sums[r] + pow(r + 1, -1.05);
        }
        made = keys;
    }
    at = draw() * sums[keys];
    while (low < high) {
        const uint32_t middle = (low + high) / 2;

        if (sums[middle + 1] > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

struct stream {
    uint32_t capacity, keys, tokens;
    uint64_t depth, staleness;
    bool zipf, refreshing;
    double pushing; /* share of the steps that push */
};

static void
run_stream(const struct stream *stream, uint32_t batches)
{
    static uint32_t numbers[TOKENS_MAX];
    struct pair *pair =
            make_pair(stream->capacity, stream->keys, stream->depth);

    for (uint32_t b = 0; b < batches; b++) {
        struct rps_row_batch batch = {
                .count = (size_t)(draw() * (stream->tokens + 1)),
                .staleness = stream->staleness,
                .pushes = draw() < stream->pushing,
                .refreshing = stream->refreshing,
        };

        for (size_t i = 0; i < batch.count; i++) {
            numbers[i] = stream->zipf ? zipf(stream->keys)
                                      : (uint32_t)(draw() * stream->keys);
        }
        take(pair, &batch, numbers);
    }
    free_pair(pair);
}

static uint32_t
batches_of(uint32_t batches)
{
    return getenv("RECPS_TEST_LONG") != NULL ? 10 * batches : batches;
}

// clang-format off
static const struct stream streams[] = {
    /* capacity, keys, tokens, depth, staleness, zipf, refreshing, pushing */
    {   1,    5,    8, 1, 0, false, true,  1.0},
    {   1,    2,    3, 3, 2, false, true,  0.5},
    {   7,   40,   30, 1, 1, false, true,  0.5},
    {   7,   40,   30, 4, 3, true,  true,  0.8},
    {  64,  200,   50, 1, 0, true,  true,  0.0},
    {  64,  200,   50, 2, 5, true,  false, 1.0},
    { 100, 1000, 1000, 1, 4, true,  true,  1.0},
    { 100, 4000,  300, 5, 2, false, true,  0.9},
    { 400, 4000,  256, 1, 3, true,  true,  1.0},
    {1000,  900,  256, 1, 2, true,  true,  0.7},
};
// clang-format on

START_TEST(every_row_is_where_a_plain_lru_model_has_it)
{
    const struct stream *stream = &streams[_i];

    draws = (uint64_t)_i << 40;
    run_stream(stream, batches_of(stream->tokens < 100 ? 1500 : 150));
}
END_TEST

/* --- single cases --------------------------------------------------------- */

static struct rps_row_cache cache;

static struct rps_row_place
take_one(uint64_t key, uint64_t step, uint64_t staleness, bool pushes)
{
    const struct rps_row_batch batch = {.keys = &key,
            .count = 1,
            .step = step,
            .staleness = staleness,
            .done = step - 1,
            .pushes = pushes,
            .refreshing = true};
    struct rps_row_place place;

    ck_assert_int_eq(rps_row_cache_take(&cache, &batch, &place), RPS_OK);
    rps_row_cache_answered(&cache, &batch, &place, step + 100);
    return place;
}

START_TEST(a_row_is_used_as_it_is_while_it_is_new_enough)
{
    ck_assert_int_eq(rps_row_cache_init(&cache, 4), RPS_OK);
    ck_assert_int_eq(take_one(9, 1, 2, true).need, RPS_ROW_FETCH);
    ck_assert_int_eq(take_one(9, 2, 2, true).need, RPS_ROW_FRESH);
    ck_assert_int_eq(take_one(9, 3, 2, true).need, RPS_ROW_FRESH);
    ck_assert_int_eq(take_one(9, 4, 2, true).need, RPS_ROW_FETCH);
    ck_assert_int_eq(take_one(9, 6, 2, true).need, RPS_ROW_FRESH);
    rps_row_cache_finish(&cache);
}
END_TEST

START_TEST(a_row_that_was_only_looked_up_is_asked_for_since_its_answer)
{
    struct rps_row_place place;

    ck_assert_int_eq(rps_row_cache_init(&cache, 4), RPS_OK);
    ck_assert_int_eq(take_one(9, 1, 0, false).need, RPS_ROW_FETCH);
    place = take_one(9, 2, 0, false);
    ck_assert_int_eq(place.need, RPS_ROW_REFRESH);
    ck_assert_uint_eq(place.since, 101);
    place = take_one(9, 5, 0, true);
    ck_assert_int_eq(place.need, RPS_ROW_REFRESH);
    ck_assert_uint_eq(place.since, 102);
    ck_assert_int_eq(take_one(9, 6, 0, true).need, RPS_ROW_FETCH);
    rps_row_cache_finish(&cache);
}
END_TEST

START_TEST(a_push_that_did_not_happen_leaves_a_row_to_be_asked_for)
{
    const uint64_t key = 9;
    const struct rps_row_batch batch = {.keys = &key, .count = 1, .step = 1};
    struct rps_row_place place;

    ck_assert_int_eq(rps_row_cache_init(&cache, 4), RPS_OK);
    place = take_one(9, 1, 0, true);
    rps_row_cache_unpushed(&cache, &batch, &place);
    ck_assert_int_eq(take_one(9, 2, 0, true).need, RPS_ROW_REFRESH);
    rps_row_cache_finish(&cache);
}
END_TEST

START_TEST(a_cache_that_is_cleared_knows_nothing)
{
    ck_assert_int_eq(rps_row_cache_init(&cache, 1), RPS_OK);
    (void)take_one(9, 1, 9, true);
    rps_row_cache_clear(&cache);
    ck_assert_int_eq(take_one(9, 2, 9, true).need, RPS_ROW_FETCH);
    ck_assert_int_eq(take_one(9, 3, 9, true).need, RPS_ROW_FRESH);
    ck_assert_uint_eq(cache.figures.held, 1);
    rps_row_cache_finish(&cache);
}
END_TEST

/* A, B, C with two places: C puts A out, then A puts B out. */
START_TEST(the_least_recently_used_row_goes_first)
{
    ck_assert_int_eq(rps_row_cache_init(&cache, 2), RPS_OK);
    (void)take_one('A', 1, 9, true);
    (void)take_one('B', 2, 9, true);
    (void)take_one('A', 3, 9, true);
    (void)take_one('C', 4, 9, true); /* B goes */
    ck_assert_int_eq(take_one('A', 5, 9, true).need, RPS_ROW_FRESH);
    ck_assert_int_eq(take_one('B', 6, 9, true).need, RPS_ROW_FETCH);
    ck_assert_int_eq(take_one('A', 7, 9, true).need, RPS_ROW_FRESH);
    ck_assert_uint_eq(cache.figures.evicted, 2);
    rps_row_cache_finish(&cache);
}
END_TEST

START_TEST(more_places_than_can_be_counted_are_refused)
{
    ck_assert_int_eq(
            rps_row_cache_init(&cache, UINT64_C(1) << 40), RPS_E_LIMIT);
    rps_row_cache_finish(&cache);
}
END_TEST

static Suite *
row_cache_suite(void)
{
    Suite *suite = suite_create("row_cache");
    TCase *tests = tcase_create("row_cache");

    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, every_row_is_where_a_plain_lru_model_has_it, 0,
            (int)(sizeof(streams) / sizeof(streams[0])));
    tcase_add_test(tests, a_row_is_used_as_it_is_while_it_is_new_enough);
    tcase_add_test(
            tests, a_row_that_was_only_looked_up_is_asked_for_since_its_answer);
    tcase_add_test(
            tests, a_push_that_did_not_happen_leaves_a_row_to_be_asked_for);
    tcase_add_test(tests, a_cache_that_is_cleared_knows_nothing);
    tcase_add_test(tests, the_least_recently_used_row_goes_first);
    tcase_add_test(tests, more_places_than_can_be_counted_are_refused);
    suite_add_tcase(suite, tests);
    return suite;
}

int
main(void)
{
    return run_suite(row_cache_suite());
}
