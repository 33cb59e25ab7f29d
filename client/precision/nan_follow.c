/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the first file upstream. Each turn goes to an earlier operator, so it
 * ends.
 */
#include "base/text.h"
#include "client/precision/nan_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* "linear top.2/linear, output 0 (y), element [3, 17] is nan" */
static void
say_spot(struct rps_nan_search *search, const struct rps_nan_spot *spot,
        const char *rest)
{
    char *words = rps_nan_spot_words(search->report->dumped, spot);

    search->failed = search->failed || words == NULL;
    if (words != NULL) {
        rps_nan_say(search, &search->report->trail, "%s is %g%s%s", words,
                spot->value, rest[0] != '\0' ? ": " : "", rest);
    }
    free(words);
}

static bool
find_dirty_input(struct rps_nan_search *search, uint32_t op,
        struct rps_nan_spot *spot_out)
{
    const struct rps_dumped_operator *it =
            &search->report->dumped->operators[op];

    for (uint32_t i = 0; i < it->input_count; i++) {
        struct rps_nan_spot spot = {.op = op, .index = i};

        if (rps_nan_look(search, &it->inputs[i], &spot.element, &spot.value)) {
            *spot_out = spot;
            return true;
        }
    }
    return false;
}

/* --- an output --------------------------------------------------------------
 */

static void
replay_failed(struct rps_nan_search *search, rps_status status)
{
    search->failed = search->failed || status == RPS_E_NOMEM;
}

/* true: the spot is an input now, and goes on; else an ending is noted. */
static bool
follow_output(struct rps_nan_search *search, struct rps_nan_spot *spot)
{
    const struct rps_dumped *dumped = search->report->dumped;
    const struct rps_dumped_operator *op = &dumped->operators[spot->op];
    struct rps_replayed replayed = {.words = NULL};
    struct rps_nan_spot input;
    rps_status status = RPS_OK;
    bool dirty = false;

    if (rps_nan_is_lookup(op) || rps_nan_is_variables(op)) {
        say_spot(search, spot, "");
        rps_nan_end_at_lookup(search, spot);
        return false;
    }
    status = rps_replay(dumped, spot->op, &replayed, NULL);
    if (status != RPS_OK) {
        replay_failed(search, status);
        return false;
    }
    if (replayed.verdict == RPS_REPLAY_DIFFERS) {
        say_spot(search, spot, "replayed from its inputs, they do not give it");
        rps_nan_end_at_operator(search, spot, replayed.words);
        rps_replayed_free(&replayed);
        return false;
    }
    say_spot(search, spot,
            replayed.verdict == RPS_REPLAY_AGREES
                    ? "replayed from its inputs, they give it"
                    : "it cannot be replayed");
    dirty = find_dirty_input(search, spot->op, &input);
    if (dirty) {
        *spot = input;
    } else if (replayed.verdict == RPS_REPLAY_AGREES) {
        rps_nan_follow_growth(search, spot->op);
    } else {
        rps_nan_end_unknown(search, spot, replayed.words);
    }
    rps_replayed_free(&replayed);
    return dirty;
}

/* --- an input ---------------------------------------------------------------
 */

static bool
value_at(struct rps_nan_search *search, const struct rps_dumped_tensor *tensor,
        uint64_t element, double *value_out)
{
    struct rps_dumped_values values = {.count = 0};
    const bool good =
            rps_nan_load(search, tensor, &values) && element < values.count;

    if (good) {
        *value_out = values.numbers[element];
    }
    rps_dumped_values_free(&values);
    return good;
}

static bool
follow_input(struct rps_nan_search *search, struct rps_nan_spot *spot)
{
    const struct rps_dumped *dumped = search->report->dumped;
    const struct rps_graph_written written = rps_graph_written(
            search->graph, spot->op, spot->index, spot->element);
    struct rps_nan_spot writer = {.op = written.from,
            .is_output = true,
            .index = written.output,
            .element = written.element};

    say_spot(search, spot, "");
    if (!written.by_operator) {
        rps_nan_end_at_source(search, spot);
        return false;
    }
    if (!value_at(search, &dumped->operators[writer.op].outputs[writer.index],
                writer.element, &writer.value)) {
        rps_nan_end_unknown(
                search, spot, "the output that it read is damaged or missing");
        return false;
    }
    if (!rps_nan_is_dirty(search, writer.value)) {
        say_spot(search, &writer, "it was written so");
        rps_nan_end_overwritten(search, spot, &writer);
        return false;
    }
    *spot = writer;
    return true;
}

void
rps_nan_follow(struct rps_nan_search *search)
{
    struct rps_nan_spot spot = search->report->first;
    bool goes_on = true;

    while (goes_on && !search->failed) {
        goes_on = spot.is_output ? follow_output(search, &spot)
                                 : follow_input(search, &spot);
    }
}

/* --- numbers that grow ------------------------------------------------------
 */

/* The earliest thing that is wrong among all that an output is made of. */
struct ancestors {
    bool *marked; /* [operators] */
    bool found_operator, found_break;
    struct rps_nan_spot operator_spot;
    struct rps_nan_spot input_spot, before_spot;
    char *why;
    uint32_t unchecked; /* operators without a replay */
    uint32_t checked;
};

static void
check_inputs(
        struct rps_nan_search *search, uint32_t op, struct ancestors *ancestors)
{
    const struct rps_graph *graph = search->graph;
    const struct rps_dumped_operator *it =
            &search->report->dumped->operators[op];

    for (uint32_t e = 0; e < graph->edge_count; e++) {
        if (graph->edges[e].to == op) {
            ancestors->marked[graph->edges[e].from] = true;
        }
    }
    for (uint32_t i = 0; i < it->input_count; i++) {
        struct rps_graph_break broken;
        const rps_status status = rps_graph_check(graph, op, i, &broken, NULL);

        replay_failed(search, status);
        if (status == RPS_OK && broken.elements > 0) {
            ancestors->found_break = true;
            ancestors->input_spot = (struct rps_nan_spot){.op = op,
                    .index = i,
                    .element = broken.first,
                    .value = broken.read};
            ancestors->before_spot = (struct rps_nan_spot){.op = broken.from,
                    .is_output = true,
                    .index = broken.output,
                    .element = broken.element,
                    .value = broken.wrote};
        }
    }
}

static uint32_t
output_that_differs(const struct rps_replayed *replayed)
{
    uint32_t output = 0;

    while (output + 1 < replayed->output_count &&
            replayed->outputs[output].elements == 0) {
        output++;
    }
    return output;
}

static void
check_operator(
        struct rps_nan_search *search, uint32_t op, struct ancestors *ancestors)
{
    struct rps_replayed replayed = {.words = NULL};

    replay_failed(
            search, rps_replay(search->report->dumped, op, &replayed, NULL));
    if (replayed.verdict == RPS_REPLAY_DIFFERS) {
        const uint32_t output = output_that_differs(&replayed);

        ancestors->found_operator = true;
        ancestors->operator_spot = (struct rps_nan_spot){.op = op,
                .is_output = true,
                .index = output,
                .element = replayed.outputs[output].first,
                .value = replayed.outputs[output].got};
        free(ancestors->why);
        ancestors->why = replayed.words;
        replayed.words = NULL;
        /* what is wrong behind it is its consequence */
        ancestors->found_break = false;
    }
    ancestors->checked += replayed.verdict == RPS_REPLAY_AGREES ? 1 : 0;
    ancestors->unchecked += replayed.verdict > RPS_REPLAY_DIFFERS ? 1 : 0;
    rps_replayed_free(&replayed);
}

/* The largest number that an operator reads. */
static bool
find_largest(struct rps_nan_search *search, uint32_t op,
        struct rps_nan_spot *spot_out)
{
    const struct rps_dumped_operator *it =
            &search->report->dumped->operators[op];
    bool found = false;

    for (uint32_t i = 0; i < it->input_count; i++) {
        const enum rps_dump_dtype dtype = it->inputs[i].dtype;
        struct rps_dumped_values values = {.count = 0};

        if ((dtype != RPS_DUMP_F32 && dtype != RPS_DUMP_BF16 &&
                    dtype != RPS_DUMP_F64) ||
                !rps_nan_load(search, &it->inputs[i], &values)) {
            continue;
        }
        for (uint64_t e = 0; e < values.count; e++) {
            if (!found || fabs(values.numbers[e]) > fabs(spot_out->value)) {
                *spot_out = (struct rps_nan_spot){.op = op,
                        .index = i,
                        .element = e,
                        .value = values.numbers[e]};
                found = true;
            }
        }
        rps_dumped_values_free(&values);
    }
    return found;
}

/* From largest number to largest number, to what no operator wrote. */
static void
follow_largest(struct rps_nan_search *search, uint32_t op)
{
    const struct rps_dumped *dumped = search->report->dumped;
    struct rps_nan_spot spot = {.op = op};

    while (find_largest(search, spot.op, &spot) && !search->failed) {
        const struct rps_graph_written written = rps_graph_written(
                search->graph, spot.op, spot.index, spot.element);

        say_spot(search, &spot, "the largest number that it reads");
        search->report->cause = spot;
        if (!written.by_operator) {
            return;
        }
        if (rps_nan_is_lookup(&dumped->operators[written.from])) {
            search->report->cause = (struct rps_nan_spot){.op = written.from,
                    .is_output = true,
                    .index = written.output,
                    .element = written.element,
                    .value = spot.value};
            return;
        }
        spot.op = written.from;
    }
}

static void
end_growth(struct rps_nan_search *search, uint32_t op,
        const struct ancestors *ancestors)
{
    struct rps_nan_report *report = search->report;
    const struct rps_dumped_operator *it = &report->dumped->operators[op];

    report->ending = RPS_NAN_ARITHMETIC;
    report->cause = (struct rps_nan_spot){.op = op};
    follow_largest(search, op);
    rps_nan_say(search, &report->words,
            "%s %s computes what its inputs give, and so do %u operators "
            "before it: numbers grow until they are no f32 any more",
            it->type, it->name, ancestors->checked);
    if (ancestors->unchecked > 0) {
        rps_nan_say(search, &report->words,
                "%u operators before it cannot be replayed, and were passed by",
                ancestors->unchecked);
    }
    rps_nan_end_at_growth(search);
}

void
rps_nan_follow_growth(struct rps_nan_search *search, uint32_t op)
{
    struct ancestors ancestors = {
            .marked = calloc((size_t)op + 1, sizeof(bool))};

    if (ancestors.marked == NULL) {
        search->failed = true;
        return;
    }
    check_inputs(search, op, &ancestors);
    for (uint32_t i = op; i-- > 0 && !search->failed;) {
        const struct rps_dumped_operator *it =
                &search->report->dumped->operators[i];

        if (ancestors.marked[i] && !rps_nan_is_lookup(it) &&
                !rps_nan_is_variables(it)) {
            check_operator(search, i, &ancestors);
            check_inputs(search, i, &ancestors);
        }
    }
    if (ancestors.found_break) {
        rps_nan_end_overwritten(
                search, &ancestors.input_spot, &ancestors.before_spot);
    } else if (ancestors.found_operator) {
        say_spot(search, &ancestors.operator_spot,
                "replayed from its inputs, they do not give it");
        rps_nan_end_at_operator(
                search, &ancestors.operator_spot, ancestors.why);
    } else if (!search->failed) {
        end_growth(search, op, &ancestors);
    }
    free(ancestors.why);
    free(ancestors.marked);
}
