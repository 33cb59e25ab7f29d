/* SPDX-License-Identifier: Apache-2.0 */
/* Who wrote what: by places, by contents, in part and anew. */
#include "client/precision/graph.h"
#include "client/precision/graph_place.h"
#include "tests/unit/precision/write.h"
#include "tests/unit/suite.h"

#include <string.h>

#define OPERATORS 4u
#define BASE      UINT64_C(0x1000)

/* Operators with one input and one output each, in memory alone. */
struct world {
    struct rps_dumped dumped;
    struct rps_dumped_operator operators[OPERATORS];
    struct rps_dumped_tensor inputs[OPERATORS];
    struct rps_dumped_tensor outputs[OPERATORS];
    struct rps_graph *graph;
};

static char here[] = "here";

static void
begin(struct world *world)
{
    memset(world, 0, sizeof(*world));
    world->dumped.folder = here;
    world->dumped.operators = world->operators;
    world->dumped.operator_count = OPERATORS;
    for (uint32_t i = 0; i < OPERATORS; i++) {
        world->operators[i].inputs = &world->inputs[i];
        world->operators[i].outputs = &world->outputs[i];
    }
}

static void
input(struct world *world, uint32_t i, struct rps_dumped_tensor tensor)
{
    world->inputs[i] = tensor;
    world->operators[i].input_count = 1;
}

static void
output(struct world *world, uint32_t i, struct rps_dumped_tensor tensor)
{
    world->outputs[i] = tensor;
    world->operators[i].output_count = 1;
}

static void
make(struct world *world)
{
    ck_assert_int_eq(
            rps_graph_make(&world->dumped, &world->graph, NULL), RPS_OK);
}

/* [rows][columns] of f32, rows `stride` apart. */
static struct rps_dumped_tensor
matrix(uint64_t place, uint64_t rows, uint64_t columns, uint64_t stride)
{
    return (struct rps_dumped_tensor){.dtype = RPS_DUMP_F32,
            .ndim = 2,
            .shape = {rows, columns},
            .strides = {stride, 1},
            .place = place,
            .shape_known = true};
}

static void
wrote(const struct world *world, uint32_t to, uint64_t element, uint32_t from,
        uint64_t there)
{
    uint32_t writer = 99, index = 99;
    uint64_t at = 99;

    ck_assert(rps_graph_writer(
            world->graph, to, 0, element, &writer, &index, &at));
    ck_assert_uint_eq(writer, from);
    ck_assert_uint_eq(index, 0);
    ck_assert_uint_eq(at, there);
}

static void
nobody_wrote(const struct world *world, uint32_t to, uint64_t element)
{
    uint32_t writer = 99, index = 99;
    uint64_t at = 99;

    ck_assert(!rps_graph_writer(
            world->graph, to, 0, element, &writer, &index, &at));
}

START_TEST(the_newest_writer_of_a_place_is_asked)
{
    struct world world;

    begin(&world);
    output(&world, 0, matrix(BASE, 2, 3, 3));
    output(&world, 1, matrix(BASE, 2, 3, 3));
    input(&world, 2, matrix(BASE, 2, 3, 3));
    make(&world);
    ck_assert_uint_eq(world.graph->edge_count, 1);
    wrote(&world, 2, 5, 1, 5);
    rps_graph_free(world.graph);
}
END_TEST

START_TEST(slices_of_a_wide_tensor_have_their_own_writers)
{
    struct world world;

    begin(&world);
    output(&world, 0, matrix(BASE, 3, 2, 5));
    output(&world, 1, matrix(BASE + 2 * 4, 3, 3, 5));
    input(&world, 2, matrix(BASE, 3, 5, 5));
    input(&world, 3, matrix(BASE + 4 * 4, 3, 1, 5));
    make(&world);
    ck_assert_uint_eq(world.graph->edge_count, 3);
    wrote(&world, 2, 0, 0, 0);
    wrote(&world, 2, 6, 0, 3);
    wrote(&world, 2, 14, 1, 8);
    wrote(&world, 3, 1, 1, 5);
    rps_graph_free(world.graph);
}
END_TEST

START_TEST(a_part_that_was_written_anew_is_the_newer_ones)
{
    struct world world;

    begin(&world);
    output(&world, 0, matrix(BASE, 1, 100, 100));
    output(&world, 1, matrix(BASE + 40 * 4, 1, 10, 10));
    input(&world, 2, matrix(BASE, 1, 100, 100));
    make(&world);
    ck_assert_uint_eq(world.graph->edge_count, 2);
    ck_assert_uint_eq(world.graph->edges[0].from, 1);
    wrote(&world, 2, 39, 0, 39);
    wrote(&world, 2, 40, 1, 0);
    wrote(&world, 2, 49, 1, 9);
    wrote(&world, 2, 50, 0, 50);
    rps_graph_free(world.graph);
}
END_TEST

START_TEST(a_transposed_input_is_followed_element_by_element)
{
    struct world world;
    struct rps_dumped_tensor turned = matrix(BASE, 3, 2, 1);

    turned.strides[1] = 3;
    begin(&world);
    output(&world, 0, matrix(BASE, 2, 3, 3));
    input(&world, 1, turned);
    output(&world, 1, turned);
    input(&world, 2, matrix(BASE, 2, 3, 3));
    make(&world);
    wrote(&world, 1, 1, 0, 3);
    wrote(&world, 1, 4, 0, 2);
    wrote(&world, 2, 3, 1, 1); /* back through the turned output */
    wrote(&world, 2, 2, 1, 4);
    rps_graph_free(world.graph);
}
END_TEST

START_TEST(an_operator_in_place_reads_what_was_there_before_it)
{
    struct world world;

    begin(&world);
    output(&world, 0, matrix(BASE, 1, 4, 4));
    input(&world, 1, matrix(BASE, 1, 4, 4));
    output(&world, 1, matrix(BASE, 1, 4, 4));
    make(&world);
    wrote(&world, 1, 2, 0, 2);
    rps_graph_free(world.graph);
}
END_TEST

START_TEST(what_nobody_wrote_came_from_the_host)
{
    struct world world;

    begin(&world);
    output(&world, 0, matrix(BASE, 3, 2, 4));
    input(&world, 1, matrix(BASE + 2 * 4, 3, 2, 4)); /* between its rows */
    input(&world, 2, matrix(BASE, 0, 2, 2));
    input(&world, 3, matrix(BASE + 3 * 4, 1, 2, 2)); /* half of it */
    make(&world);
    ck_assert_uint_eq(world.graph->edge_count, 1);
    nobody_wrote(&world, 1, 0);
    nobody_wrote(&world, 3, 0);
    wrote(&world, 3, 1, 0, 2);
    rps_graph_free(world.graph);
}
END_TEST

START_TEST(a_broadcast_input_has_one_writer)
{
    struct world world;
    struct rps_dumped_tensor wide = matrix(BASE, 4, 3, 0);

    begin(&world);
    output(&world, 0, matrix(BASE, 1, 3, 3));
    input(&world, 1, wide);
    make(&world);
    wrote(&world, 1, 11, 0, 2);
    rps_graph_free(world.graph);
}
END_TEST

START_TEST(strides_beyond_all_memory_are_no_place)
{
    struct rps_dumped_tensor tensor = matrix(BASE, 1ull << 40, 3, 1ull << 40);

    ck_assert_uint_eq(rps_place_of(&tensor).count, 0);
    tensor = matrix(UINT64_MAX - 2, 1, 1, 1);
    ck_assert_uint_eq(rps_place_of(&tensor).count, 0);
}
END_TEST

START_TEST(without_places_equal_contents_of_a_shape_are_the_same_tensor)
{
    static const float some[] = {1.0f, 2.0f}, other[] = {1.0f, 3.0f};
    char folder[FOLDER_BYTES];
    struct world world = {.graph = NULL};
    struct rps_dumped *dumped = NULL;

    folder_make(folder);
    write_floats(folder, "a.x.0.0.1.output.0.npy", some, 2);
    write_floats(folder, "b.y.1.0.2.output.0.npy", some, 2);
    write_floats(folder, "c.z.2.0.3.input.0.npy", some, 2);
    write_floats(folder, "c.z.2.0.4.input.1.npy", other, 2);
    write_floats(folder, "c.z.2.0.5.output.0.npy", some, 1);
    ck_assert_int_eq(rps_dumped_open(folder, &dumped, NULL), RPS_OK);
    ck_assert_int_eq(rps_graph_make(dumped, &world.graph, NULL), RPS_OK);
    ck_assert_uint_eq(world.graph->edge_count, 1);
    wrote(&world, 2, 1, 1, 1);
    rps_graph_free(world.graph);
    rps_dumped_close(dumped);
    folder_remove(folder);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("precision: graph");
    TCase *tcase = tcase_create("graph");

    tcase_add_test(tcase, the_newest_writer_of_a_place_is_asked);
    tcase_add_test(tcase, slices_of_a_wide_tensor_have_their_own_writers);
    tcase_add_test(tcase, a_part_that_was_written_anew_is_the_newer_ones);
    tcase_add_test(tcase, a_transposed_input_is_followed_element_by_element);
    tcase_add_test(tcase, an_operator_in_place_reads_what_was_there_before_it);
    tcase_add_test(tcase, what_nobody_wrote_came_from_the_host);
    tcase_add_test(tcase, a_broadcast_input_has_one_writer);
    tcase_add_test(tcase, strides_beyond_all_memory_are_no_place);
    tcase_add_test(tcase,
            without_places_equal_contents_of_a_shape_are_the_same_tensor);
    suite_add_single_threaded(suite, tcase);
    return run_suite(suite);
}
