/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of a batch, joined as one operator. */
#include "client/worker/operand.h"
#include "tests/unit/suite.h"

#include <string.h>

#define TILE 4u /* rows; the last of three has one */
#define ROWS 9u

/* What was written, as long as the tape has it: looked at in write(). */
struct seen {
    size_t count;
    char names[8][64];
    uint64_t shapes[8][RPS_DUMP_DIMS_MAX];
    float outputs[8][64];
    uint64_t input_places[8], output_places[8];
    uint64_t place_strides[8][RPS_DUMP_DIMS_MAX];
    uint32_t input_counts[8];
};

static size_t
elements(const struct rps_dump_tensor *tensor)
{
    size_t n = 1;

    for (uint32_t d = 0; d < tensor->ndim; d++) {
        n *= (size_t)tensor->shape[d];
    }
    return n;
}

static void
see(void *context, const struct rps_dump_operator *op)
{
    struct seen *seen = context;
    const struct rps_dump_tensor *output = &op->outputs[0];
    const size_t i = seen->count++;

    ck_assert_uint_lt(i, 8);
    ck_assert_uint_le(elements(output), 64);
    (void)snprintf(seen->names[i], sizeof(seen->names[i]), "%s", op->name);
    memcpy(seen->shapes[i], output->shape, sizeof(output->shape));
    memcpy(seen->outputs[i], output->bytes, elements(output) * sizeof(float));
    seen->input_counts[i] = op->input_count;
    seen->input_places[i] = op->input_count > 0 ? op->inputs[0].place : 0;
    seen->output_places[i] = output->place;
    if (output->place_strides != NULL) {
        memcpy(seen->place_strides[i], output->place_strides,
                output->ndim * sizeof(uint64_t));
    }
}

/* One operator: y = 2 x, a tile at a time, in place of the tile before. */
static float x[TILE * 2], y[TILE * 2];
static struct rps_operands_list list;
static struct rps_operator doubling, adding;
static struct rps_tape *tape;

static struct rps_operands *
describe(struct rps_operator *operator, const char * name,
        enum rps_operands_when when, const struct rps_operand *input,
        const struct rps_operand *output)
{
    struct rps_operands *operands;

    rps_operator_init(operator, "twice", name);
    operands = rps_operands_of(&list, operator, when, "{}");
    ck_assert_ptr_nonnull(operands);
    if (input != NULL) {
        rps_operands_input(operands, input);
    }
    rps_operands_output(operands, output);
    return operands;
}

static struct seen
end(void)
{
    struct seen seen = {0};

    ck_assert_int_eq(rps_tape_end(tape, see, &seen, NULL), RPS_OK);
    ck_assert(!rps_tape_is_on());
    rps_tape_destroy(tape);
    rps_operands_finish(&list);
    return seen;
}

/* x of row r: r, -r. The padding is 99. */
static void
run_tiles(void)
{
    for (size_t first = 0; first < ROWS; first += TILE) {
        const size_t rows = ROWS - first < TILE ? ROWS - first : TILE;

        rps_tape_tile(first, rows);
        for (size_t r = 0; r < TILE; r++) {
            x[2 * r] = r < rows ? (float)(first + r) : 99.0f;
            x[2 * r + 1] = -x[2 * r];
        }
        rps_operator_part_begin(&doubling);
        for (size_t i = 0; i < 2 * TILE; i++) {
            y[i] = 2.0f * x[i];
        }
        for (size_t r = 0; r < TILE; r++) {
            rps_operator_row(&doubling, r);
        }
        rps_operator_part_end(&doubling);
    }
}

START_TEST(tiles_become_a_batch_without_their_padding)
{
    const struct rps_operand in = rps_operand_rows("x", x, 2);
    const struct rps_operand out = rps_operand_rows("y", y, 2);
    struct seen seen;

    describe(&doubling, "a", RPS_OPERANDS_ALWAYS, &in, &out);
    tape = rps_tape_create(true);
    rps_tape_begin(tape, ROWS);
    run_tiles();
    seen = end();
    ck_assert_uint_eq(seen.count, 1);
    ck_assert_str_eq(seen.names[0], "a/twice");
    ck_assert_uint_eq(seen.shapes[0][0], ROWS);
    ck_assert_uint_eq(seen.shapes[0][1], 2);
    for (size_t r = 0; r < ROWS; r++) {
        ck_assert_float_eq(seen.outputs[0][2 * r], 2.0f * (float)r);
        ck_assert_float_eq(seen.outputs[0][2 * r + 1], -2.0f * (float)r);
    }
    ck_assert_uint_ne(seen.input_places[0], seen.output_places[0]);
}
END_TEST

/* A column of y, told row by row as a tensor of three dimensions that is a part
 * of another one. */
START_TEST(rows_have_strides_and_a_home)
{
    static const float whole[1];
    struct rps_operand out = rps_operand_cube("y", y + 1, 1, 1);
    struct seen seen;

    out.strides[0] = 2;
    out.home = (struct rps_operand_home){
            .of = whole, .first = 5, .strides = {10, 1, 1}};
    describe(&doubling, "a", RPS_OPERANDS_ALWAYS, NULL, &out);
    out.home.first = 0;
    describe(&adding, "b", RPS_OPERANDS_ALWAYS, NULL, &out);
    tape = rps_tape_create(true);
    rps_tape_begin(tape, ROWS);
    run_tiles();
    rps_operator_part_end(&adding);
    seen = end();
    ck_assert_uint_eq(seen.count, 2);
    ck_assert_uint_eq(seen.shapes[0][0], ROWS);
    ck_assert_float_eq(seen.outputs[0][3], -6.0f);
    ck_assert_uint_eq(
            seen.output_places[0], seen.output_places[1] + 5 * sizeof(float));
    ck_assert_uint_eq(seen.place_strides[0][0], 10);
}
END_TEST

/* Told with rps_operator_row(), and not of the padding. */
START_TEST(an_operator_may_have_its_operands_row_by_row)
{
    struct rps_operand out = rps_operand_rows("y", y, 2);
    struct seen seen;

    out.reach = RPS_OPERAND_ROW;
    describe(&doubling, "a", RPS_OPERANDS_ALWAYS, NULL, &out);
    tape = rps_tape_create(true);
    rps_tape_begin(tape, ROWS);
    run_tiles();
    seen = end();
    ck_assert_uint_eq(seen.shapes[0][0], ROWS);
    /* all rows of a tile have the one row's memory: that of the first */
    ck_assert_float_eq(seen.outputs[0][2 * 2], 2.0f * 0.0f);
    ck_assert_float_eq(seen.outputs[0][2 * 5], 2.0f * 4.0f);
}
END_TEST

START_TEST(what_is_whole_is_as_it_is_behind_the_last_tile)
{
    const uint64_t shape[] = {2};
    static float sum[2];
    const struct rps_operand out =
            rps_operand_whole("sum", RPS_DUMP_F32, sum, 1, shape);
    struct seen seen;

    describe(&doubling, "a", RPS_OPERANDS_ALWAYS, NULL, &out);
    tape = rps_tape_create(true);
    rps_tape_begin(tape, ROWS);
    run_tiles();
    sum[0] = 3.0f;
    sum[1] = 4.0f;
    seen = end();
    ck_assert_uint_eq(seen.shapes[0][0], 2);
    ck_assert_float_eq(seen.outputs[0][1], 4.0f);
    ck_assert_uint_eq(seen.output_places[0], (uint64_t)(uintptr_t)sum);
}
END_TEST

START_TEST(a_tape_has_what_is_fused_or_its_parts)
{
    const struct rps_operand out = rps_operand_rows("y", y, 2);
    uint64_t operators = 0, bytes = 0;

    for (unsigned fused = 0; fused < 2; fused++) {
        struct seen seen;

        describe(&doubling, "whole", RPS_OPERANDS_FUSED, NULL, &out);
        describe(&adding, "part", RPS_OPERANDS_PART, NULL, &out);
        operators = bytes = 0;
        rps_operands_count(&list, fused != 0, ROWS, &operators, &bytes);
        ck_assert_uint_eq(operators, 1);
        ck_assert_uint_eq(bytes, ROWS * 2 * sizeof(float));
        tape = rps_tape_create(fused != 0);
        rps_tape_begin(tape, ROWS);
        rps_tape_tile(0, TILE);
        rps_operator_part_end(&doubling);
        rps_operator_part_end(&adding);
        seen = end();
        ck_assert_uint_eq(seen.count, 1);
        ck_assert_str_eq(
                seen.names[0], fused != 0 ? "whole/twice" : "part/twice");
    }
}
END_TEST

/* What is not there is no operand; what has none is no operator of it. */
START_TEST(an_operand_that_is_not_there_is_left_out)
{
    const struct rps_operand in = rps_operand_rows("x", NULL, 2);
    const struct rps_operand out = rps_operand_rows("y", y, 2);
    struct seen seen;

    describe(&doubling, "a", RPS_OPERANDS_ALWAYS, &in, &out);
    rps_operator_init(&adding, "twice", "b");
    adding.operands = NULL;
    tape = rps_tape_create(true);
    rps_tape_begin(tape, ROWS);
    run_tiles();
    rps_operator_part_begin(&adding);
    rps_operator_part_end(&adding);
    seen = end();
    ck_assert_uint_eq(seen.count, 1);
    ck_assert_uint_eq(seen.input_counts[0], 0);
}
END_TEST

/* Where a tile's rows are the batch's own memory, so is its place. */
START_TEST(rows_of_a_batch_are_where_they_are)
{
    static float batch[ROWS * 2];
    static const float *at = batch;
    struct rps_operand out = rps_operand_rows("y", NULL, 2);
    struct seen seen;

    out.reach = RPS_OPERAND_BATCH;
    out.via = &at;
    describe(&doubling, "a", RPS_OPERANDS_ALWAYS, NULL, &out);
    tape = rps_tape_create(true);
    rps_tape_begin(tape, ROWS);
    for (size_t first = 0; first < ROWS; first += TILE) {
        at = batch + 2 * first;
        rps_tape_tile(first, ROWS - first < TILE ? ROWS - first : TILE);
        batch[2 * first] = (float)first;
        rps_operator_part_end(&doubling);
    }
    seen = end();
    ck_assert_uint_eq(seen.output_places[0], (uint64_t)(uintptr_t)batch);
    ck_assert_float_eq(seen.outputs[0][2 * 8], 8.0f);
}
END_TEST

START_TEST(nothing_is_asked_while_none_is_on)
{
    const struct rps_operand out = rps_operand_rows("y", y, 2);

    describe(&doubling, "a", RPS_OPERANDS_ALWAYS, NULL, &out);
    ck_assert(!rps_tape_is_on());
    ck_assert_uint_eq(rps_operator_begin(&doubling), 0);
    rps_operator_row(&doubling, 0);
    rps_operator_end(&doubling, 0);
    rps_operands_finish(&list);
    rps_tape_destroy(NULL);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("tape");
    TCase *tcase = tcase_create("tape");

    tcase_add_test(tcase, tiles_become_a_batch_without_their_padding);
    tcase_add_test(tcase, rows_have_strides_and_a_home);
    tcase_add_test(tcase, an_operator_may_have_its_operands_row_by_row);
    tcase_add_test(tcase, what_is_whole_is_as_it_is_behind_the_last_tile);
    tcase_add_test(tcase, a_tape_has_what_is_fused_or_its_parts);
    tcase_add_test(tcase, an_operand_that_is_not_there_is_left_out);
    tcase_add_test(tcase, rows_of_a_batch_are_where_they_are);
    tcase_add_test(tcase, nothing_is_asked_while_none_is_on);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
