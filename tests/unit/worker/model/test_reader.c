/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns: what is read ahead is what is read one by one, and no early key is
 * one of a step that is not over when it is looked up.
 */
#include "client/worker/reader.h"
#include "tests/unit/suite.h"
#include "tests/unit/worker/files.h"

#include <string.h>

#define ROWS       600u
#define BATCH      8u
#define FIELDS_MAX 26u

static const char made_up[] =
        "synthetic:rows=600,dense=2,fields=3,keys=900,zipf=1.01,seed=5";

static struct rps_dataset *
open_data(const char *spec)
{
    struct rps_dataset *dataset = NULL;
    struct rps_error error = {""};

    ck_assert_msg(rps_dataset_open(&dataset, spec, NULL, &error) == RPS_OK,
            "%s", error.text);
    return dataset;
}

/* A table of all fields, each a bag. */
static struct rps_model *
make_model(uint32_t dense, uint32_t fields)
{
    static uint32_t places[FIELDS_MAX + 1];
    struct rps_model_table table = {.name = "emb",
            .dim = 4,
            .pooling = RPS_POOLING_SUM,
            .bags = fields,
            .bag_starts = places,
            .fields = places};
    const struct rps_model_shape shape = {.dense = dense,
            .fields = fields,
            .bottom = {.count = 1, .widths = {4}},
            .top = {.count = 1, .widths = {1}},
            .table_count = 1,
            .tables = &table};
    struct rps_model *model = NULL;
    struct rps_error error = {""};

    for (uint32_t i = 0; i <= FIELDS_MAX; i++) {
        places[i] = i;
    }
    ck_assert_msg(rps_dlrm_create(&model, &shape, &error) == RPS_OK, "%s",
            error.text);
    return model;
}

static struct rps_reader_options
options_of(const struct rps_model *model, uint32_t depth, uint32_t rank,
        uint32_t replicas)
{
    static struct rps_bags_work work[1]; /* nothing is pooled here */

    return (struct rps_reader_options){
            .model = model,
            .work = work,
            .batches = {.end_row = ROWS,
                    .batch_rows = BATCH,
                    .rank = rank,
                    .replicas = replicas,
                    .shuffle = 64,
                    .seed = 3},
            .depth = depth,
            .epoch_batches = ROWS / BATCH / replicas,
            .last_step = 2 * (ROWS / BATCH / replicas),
    };
}

static struct rps_reader *
open_reader(
        struct rps_dataset *dataset, const struct rps_reader_options *options)
{
    struct rps_reader *reader = NULL;
    struct rps_error error = {""};

    ck_assert_msg(
            rps_reader_create(&reader, dataset, options, &error) == RPS_OK,
            "%s", error.text);
    return reader;
}

static struct rps_turn *
take(struct rps_reader *reader)
{
    struct rps_turn *turn = NULL;
    struct rps_error error = {""};

    ck_assert_msg(
            rps_reader_take(reader, &turn, &error) == RPS_OK, "%s", error.text);
    return turn;
}

static void
check_same(const struct rps_turn *a, const struct rps_turn *b)
{
    ck_assert_uint_eq(a->step, b->step);
    ck_assert_uint_eq(a->epoch, b->epoch);
    ck_assert_uint_eq(a->next_batch, b->next_batch);
    ck_assert_uint_eq(a->batch.rows, b->batch.rows);
    ck_assert_uint_eq(a->bags[0].key_count, b->bags[0].key_count);
    ck_assert_mem_eq(a->bags[0].keys, b->bags[0].keys,
            a->bags[0].key_count * sizeof(uint64_t));
    ck_assert_mem_eq(a->batch.labels, b->batch.labels, BATCH * sizeof(float));
}

START_TEST(turns_read_ahead_are_those_read_one_by_one)
{
    struct rps_dataset *data[2] = {open_data(made_up), open_data(made_up)};
    struct rps_model *model = make_model(2, 3);
    const struct rps_reader_options one = options_of(model, 1, 1, 2);
    const struct rps_reader_options ahead = options_of(model, 5, 1, 2);
    struct rps_reader *readers[2] = {
            open_reader(data[0], &one), open_reader(data[1], &ahead)};

    for (uint64_t step = 1; step <= one.last_step; step++) {
        struct rps_turn *turn = take(readers[0]);

        ck_assert_uint_eq(turn->step, step);
        ck_assert(!turn->split);
        check_same(turn, take(readers[1]));
    }
    for (int i = 0; i < 2; i++) {
        rps_reader_destroy(readers[i]);
        rps_dataset_close(data[i]);
    }
    rps_model_destroy(model);
}
END_TEST

/* Each token's slot has its key, slots begin in order, none has two. */
static void
check_slots(const struct rps_turn *turn)
{
    const struct rps_slots *slots = &turn->slots[0];
    const struct rps_bags *bags = &turn->bags[0];
    size_t begun = 0;

    for (size_t i = 0; i < bags->key_count; i++) {
        const size_t slot = (size_t)slots->slots[i];

        ck_assert_uint_le(slot, begun);
        if (slot == begun) {
            ck_assert_uint_eq(slots->first[slot], i);
            begun++;
        }
        ck_assert(bags->keys[slots->first[slot]] == bags->keys[i]);
        for (size_t s = 0; s < slot; s++) {
            ck_assert(bags->keys[slots->first[s]] != bags->keys[i]);
        }
    }
    ck_assert_uint_eq(slots->count, begun);
    ck_assert_uint_lt(begun, bags->key_count); /* some key comes twice */
}

START_TEST(turns_may_be_read_further_than_they_are_looked_up)
{
    struct rps_dataset *data = open_data(made_up);
    struct rps_model *model = make_model(2, 3);
    struct rps_reader_options options = options_of(model, 1, 0, 1);
    struct rps_reader *reader;

    options.ahead = 9;
    options.slots = true;
    options.batches.batch_rows = 4 * BATCH;
    options.epoch_batches = ROWS / (4 * BATCH);
    options.last_step = 2 * options.epoch_batches;
    reader = open_reader(data, &options);
    ck_assert_uint_eq(rps_reader_see(reader, 8)->step, 9);
    for (uint64_t step = 1; step <= options.last_step; step++) {
        const struct rps_turn *seen = rps_reader_see(reader, step - 1);
        struct rps_turn *turn = take(reader);

        ck_assert_ptr_eq(seen, turn);
        ck_assert_uint_eq(turn->step, step);
        ck_assert_uint_eq(rps_reader_taken(reader), step);
        ck_assert(!turn->split);
        check_slots(turn);
    }
    ck_assert_ptr_null(rps_reader_see(reader, options.last_step));
    rps_reader_stop(reader);
    ck_assert_ptr_null(rps_reader_see(reader, 0));
    rps_reader_destroy(reader);
    rps_dataset_close(data);
    rps_model_destroy(model);
}
END_TEST

START_TEST(a_slot_has_its_keys_row)
{
    struct rps_dataset *data = open_data(made_up);
    struct rps_model *model = make_model(2, 3);
    struct rps_reader_options options = options_of(model, 3, 0, 1);
    struct rps_reader *reader;
    struct rps_turn *turn;
    float rows[4 * 3 * BATCH];

    options.slots = true;
    reader = open_reader(data, &options);
    turn = take(reader);
    for (size_t i = 0; i < 4 * turn->bags[0].key_count; i++) {
        turn->bags[0].rows[i] =
                (float)turn->bags[0].keys[i / 4] + 0.25f * (float)(i % 4);
    }
    rps_slots_gather(&turn->slots[0], &turn->bags[0], rows);
    for (size_t i = 0; i < turn->bags[0].key_count; i++) {
        ck_assert_mem_eq(rows + 4 * turn->slots[0].slots[i],
                turn->bags[0].rows + 4 * i, 4 * sizeof(float));
    }
    rps_reader_destroy(reader);
    rps_dataset_close(data);
    rps_model_destroy(model);
}
END_TEST

/* Keys of every global batch, in their order: an oracle without a filter. */
struct steps {
    uint64_t *keys[2 * ROWS / BATCH + 1];
    size_t counts[2 * ROWS / BATCH + 1];
};

static void
read_steps(struct steps *steps, const struct rps_reader_options *like)
{
    struct rps_dataset *data = open_data(made_up);
    struct rps_reader_options all = *like;
    struct rps_reader *reader;

    all.depth = 1;
    all.batches.batch_rows = BATCH * like->batches.replicas;
    all.batches.replicas = 1;
    all.batches.rank = 0;
    reader = open_reader(data, &all);
    for (uint64_t step = 1; step <= all.last_step; step++) {
        struct rps_turn *turn = take(reader);
        const size_t bytes = turn->batch.key_count * sizeof(uint64_t);

        steps->counts[step] = turn->batch.key_count;
        steps->keys[step] = malloc(bytes);
        memcpy(steps->keys[step], turn->batch.keys, bytes);
    }
    rps_reader_destroy(reader);
    rps_dataset_close(data);
}

static bool
step_has(const struct steps *steps, uint64_t step, uint64_t key)
{
    for (size_t i = 0; i < steps->counts[step]; i++) {
        if (steps->keys[step][i] == key) {
            return true;
        }
    }
    return false;
}

/* Looked up in step `from` at the earliest, with what from - 1 has left. */
static bool
may_change(
        const struct steps *steps, uint64_t from, uint64_t step, uint64_t key)
{
    bool found = false;

    for (; from < step; from++) {
        found = found || step_has(steps, from, key);
    }
    return found;
}

/* Counts keys that are early, and late without need. */
struct tally {
    size_t early;
    size_t late;
    size_t needless;
};

static void
check_turn(const struct rps_turn *turn, const struct steps *steps,
        uint64_t from, struct tally *tally)
{
    const struct rps_bags *bags = &turn->bags[0];
    const struct rps_late *late = &turn->late[0];
    size_t next = 0;

    for (size_t i = 0; i < bags->key_count; i++) {
        const bool is_late = next < late->count && late->positions[next] == i;

        ck_assert(bags->keys[i] != late->padding);
        if (is_late) {
            ck_assert_uint_eq(late->keys[next], bags->keys[i]);
            ck_assert_uint_eq(late->early_keys[i], late->padding);
            next++;
            tally->late++;
            tally->needless +=
                    !may_change(steps, from, turn->step, bags->keys[i]);
        } else {
            ck_assert_uint_eq(late->early_keys[i], bags->keys[i]);
            ck_assert(!may_change(steps, from, turn->step, bags->keys[i]));
            tally->early++;
        }
    }
    ck_assert_uint_eq(next, late->count);
}

static const struct {
    uint32_t depth, replicas, slack;
} splits[] = {{2, 1, 0}, {4, 1, 0}, {4, 3, 0}, {3, 2, 2}, {9, 1, 0}};

START_TEST(no_early_key_is_one_of_a_step_that_is_not_over)
{
    struct rps_dataset *data = open_data(made_up);
    struct rps_model *model = make_model(2, 3);
    struct rps_reader_options options =
            options_of(model, splits[_i].depth, 0, splits[_i].replicas);
    struct steps steps = {0};
    struct tally tally = {0};
    struct rps_reader *reader;

    options.slack = splits[_i].slack;
    read_steps(&steps, &options);
    reader = open_reader(data, &options);
    for (uint64_t step = 1; step <= options.last_step; step++) {
        const uint64_t back = options.depth - 1;
        uint64_t from = step > back + 1 ? step - back : 1;

        from = from > options.slack ? from - options.slack : 1;
        check_turn(take(reader), &steps, from > 0 ? from : 1, &tally);
    }
    ck_assert_uint_gt(tally.early, 0);
    ck_assert_uint_gt(tally.late, 0);
    /* an eighth of the places may be taken, by keys of a step */
    ck_assert_uint_le(
            tally.needless, (tally.early + tally.late) * options.depth / 8);
    rps_reader_destroy(reader);
    for (uint64_t step = 1; step <= options.last_step; step++) {
        free(steps.keys[step]);
    }
    rps_model_destroy(model);
    rps_dataset_close(data);
}
END_TEST

START_TEST(only_turns_within_the_depth_are_shown_ahead)
{
    struct rps_dataset *data = open_data(made_up);
    struct rps_model *model = make_model(2, 3);
    const struct rps_reader_options options = options_of(model, 3, 0, 1);
    struct rps_reader *reader = open_reader(data, &options);
    struct rps_turn *turn;

    ck_assert_ptr_null(rps_reader_peek(reader, 1)); /* none is taken */
    turn = take(reader);
    ck_assert_ptr_eq(rps_reader_peek(reader, 0), turn);
    while ((turn = rps_reader_peek(reader, 2)) == NULL) {
        (void)usleep(1000); /* the thread reads it */
    }
    ck_assert_uint_eq(turn->step, 3);
    ck_assert_uint_eq(rps_reader_peek(reader, 1)->step, 2);
    (void)usleep(2000); /* the fourth is read by now, or will be */
    ck_assert_ptr_null(rps_reader_peek(reader, 3));
    rps_reader_destroy(reader); /* while its thread waits for a place */
    rps_model_destroy(model);
    rps_dataset_close(data);
}
END_TEST

START_TEST(a_malformed_row_fails_its_own_turn_and_none_before)
{
    struct rps_text text = {0};
    struct rps_error error = {""};
    struct rps_turn *turn = NULL;
    struct rps_model *model = make_model(13, 26);
    struct rps_reader_options options = options_of(model, 4, 0, 1);
    struct rps_dataset *data;
    struct rps_reader *reader;
    char spec[300];

    make_folder();
    for (unsigned row = 0; row < 10 * BATCH; row++) {
        rps_text_add(&text, row == 5 * BATCH + 3 ? "?" : "1");
        for (unsigned column = 0; column < 39; column++) {
            rps_text_add(&text, "\t%x", column < 13 ? 1 : row * 8);
        }
        rps_text_add(&text, "\n");
    }
    put_file("rows", text.bytes);
    rps_text_finish(&text);
    (void)snprintf(spec, sizeof(spec), "criteo:%s", path_of("rows"));
    data = open_data(spec);
    options.batches.end_row = 10 * BATCH;
    options.batches.shuffle = 0;
    options.epoch_batches = 10;
    options.last_step = 10;
    reader = open_reader(data, &options);
    for (int step = 1; step <= 5; step++) {
        ck_assert_int_eq((int)take(reader)->step, step);
    }
    ck_assert_ptr_null(rps_reader_peek(reader, 1)); /* failed, or not read */
    ck_assert_int_eq(rps_reader_take(reader, &turn, &error), RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "rows"));
    rps_reader_destroy(reader);
    rps_dataset_close(data);
    rps_model_destroy(model);
    remove_folder();
}
END_TEST

START_TEST(what_was_seen_is_found_over_growth_and_the_end_of_32_bits)
{
    const uint64_t edge = UINT64_C(1) << 32;
    struct rps_recent recent = {0};
    uint64_t keys[2] = {0, UINT64_MAX};

    ck_assert(rps_recent_reserve(&recent, 2, edge - 1));
    ck_assert(!rps_recent_has(&recent, keys[0], edge - 3, edge - 1));
    rps_recent_add(&recent, keys, 1, edge - 1);
    ck_assert(rps_recent_has(&recent, keys[0], edge - 1, edge + 1));
    ck_assert(!rps_recent_has(&recent, keys[0], edge, edge + 1));
    ck_assert(!rps_recent_has(&recent, keys[1], edge - 2, edge + 1));
    ck_assert(rps_recent_reserve(&recent, 100000, edge + 1));
    ck_assert(rps_recent_has(&recent, keys[1], edge, edge + 1));
    rps_recent_add(&recent, keys + 1, 1, edge + 2);
    ck_assert(!rps_recent_has(&recent, keys[0], edge + 1, edge + 5));
    ck_assert(rps_recent_has(&recent, keys[1], edge + 1, edge + 5));
    rps_recent_finish(&recent);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("reader");
    TCase *tcase = tcase_create("turns");

    tcase_add_test(tcase, turns_read_ahead_are_those_read_one_by_one);
    tcase_add_test(tcase, turns_may_be_read_further_than_they_are_looked_up);
    tcase_add_test(tcase, a_slot_has_its_keys_row);
    tcase_add_loop_test(tcase, no_early_key_is_one_of_a_step_that_is_not_over,
            0, (int)(sizeof(splits) / sizeof(splits[0])));
    tcase_add_test(tcase, only_turns_within_the_depth_are_shown_ahead);
    tcase_add_test(tcase, a_malformed_row_fails_its_own_turn_and_none_before);
    tcase_add_test(
            tcase, what_was_seen_is_found_over_growth_and_the_end_of_32_bits);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
