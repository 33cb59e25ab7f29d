/* SPDX-License-Identifier: Apache-2.0 */
/* recps precision replay DIR: every operator again, from its dumped inputs. */
#include "base/text.h"
#include "client/cli/precision.h"
#include "client/cli/table_print.h"
#include "client/precision/graph.h"
#include "client/precision/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOOL "precision replay"

static const char usage[] =
        "usage: recps precision replay DIR [--json]\n"
        "\n"
        "Compute every operator of a dump again, in f64 from its dumped "
        "inputs,\n"
        "and say which outputs its inputs do not give; and whether what an\n"
        "operator read is what was written. DIR is a dump\n"
        "(precision_data/npu/debug_0) or a folder of one. Lookups and pushes\n"
        "are the servers', and are not replayed. Exit: 0 all agree, 1 some do\n"
        "not, 65 files are damaged or missing.\n";

/* Of all operators of a type. */
struct tally {
    char *type;
    uint64_t count[4]; /* by verdict */
    double worst;
    double error;
};

struct replay {
    bool json;
    struct tally *tallies;
    uint32_t tally_count;
    uint64_t count[4];
    uint64_t operators;
    uint64_t inputs, broken; /* of inputs: changed since they were written */
    json_t *list;            /* --json: what does not agree */
    bool failed;             /* no memory */
};

static struct tally *
tally_of(struct replay *replay, const char *type)
{
    struct tally *tallies = NULL;

    for (uint32_t i = 0; i < replay->tally_count; i++) {
        if (strcmp(replay->tallies[i].type, type) == 0) {
            return &replay->tallies[i];
        }
    }
    tallies = realloc(replay->tallies,
            ((size_t)replay->tally_count + 1) * sizeof(tallies[0]));
    if (tallies == NULL) {
        return NULL;
    }
    replay->tallies = tallies;
    tallies += replay->tally_count;
    *tallies = (struct tally){.type = strdup(type)};
    if (tallies->type == NULL) {
        return NULL;
    }
    replay->tally_count++;
    return tallies;
}

static bool
is_of_servers(const char *type)
{
    return strcmp(type, "lookup") == 0 || strcmp(type, "push") == 0 ||
           strcmp(type, "variables") == 0;
}

static const char *
verdict_name(enum rps_replay_verdict verdict)
{
    static const char *const names[] = {
            [RPS_REPLAY_AGREES] = "agrees",
            [RPS_REPLAY_DIFFERS] = "differs",
            [RPS_REPLAY_NO_LAW] = "not replayed",
            [RPS_REPLAY_UNREADABLE] = "damaged",
    };

    return names[verdict];
}

/* A line, or an element of the list. */
static void
say(struct replay *replay, const struct rps_dumped *dumped, uint32_t index,
        const char *verdict, const char *words)
{
    const struct rps_dumped_operator *op = &dumped->operators[index];

    if (replay->json) {
        (void)json_array_append_new(replay->list,
                json_pack("{s:I, s:I, s:s, s:s, s:s, s:s}", "step",
                        (json_int_t)dumped->step, "operator", (json_int_t)index,
                        "type", op->type, "name", op->name, "verdict", verdict,
                        "words", words));
    } else {
        (void)printf("step %" PRIu64 ", operator %u, %s %s, %s: %s\n",
                dumped->step, index + 1, op->type, op->name, verdict, words);
    }
}

static void
replay_operator(
        struct replay *replay, const struct rps_dumped *dumped, uint32_t index)
{
    const char *type = dumped->operators[index].type;
    struct rps_replayed replayed;
    struct tally *tally = tally_of(replay, type);

    if (tally == NULL || rps_replay(dumped, index, &replayed, NULL) != RPS_OK) {
        replay->failed = true;
        return;
    }
    tally->count[replayed.verdict]++;
    for (uint32_t i = 0; i < replayed.output_count; i++) {
        const struct rps_replayed_output *output = &replayed.outputs[i];

        tally->worst =
                output->worst > tally->worst ? output->worst : tally->worst;
        tally->error =
                output->error > tally->error ? output->error : tally->error;
    }
    if (!is_of_servers(type)) {
        replay->count[replayed.verdict]++;
        replay->operators++;
        if (replayed.verdict != RPS_REPLAY_AGREES) {
            say(replay, dumped, index, verdict_name(replayed.verdict),
                    replayed.words);
        }
    }
    rps_replayed_free(&replayed);
}

static void
check_inputs(struct replay *replay, const struct rps_graph *graph,
        const struct rps_dumped *dumped, uint32_t index)
{
    for (uint32_t i = 0; i < dumped->operators[index].input_count; i++) {
        struct rps_graph_break broken;
        struct rps_error error = {.text = ""};
        const rps_status status =
                rps_graph_check(graph, index, i, &broken, &error);
        char *words = NULL;

        replay->inputs++;
        replay->failed = replay->failed || status == RPS_E_NOMEM;
        if (status != RPS_OK || broken.elements == 0) {
            continue;
        }
        replay->broken++;
        words = rps_format(
                "input %u: %" PRIu64
                " elements are not what %s %s wrote; element %" PRIu64
                " was %.9g and is %.9g",
                i, broken.elements, dumped->operators[broken.from].type,
                dumped->operators[broken.from].name, broken.first, broken.wrote,
                broken.read);
        replay->failed = replay->failed || words == NULL;
        if (words != NULL) {
            say(replay, dumped, index, "overwritten", words);
        }
        free(words);
    }
}

static rps_status
replay_step(struct replay *replay, const char *folder, struct rps_error *error)
{
    struct rps_dumped *dumped = NULL;
    struct rps_graph *graph = NULL;
    rps_status status = rps_dumped_open(folder, &dumped, error);

    if (status == RPS_OK) {
        status = rps_graph_make(dumped, &graph, error);
    }
    for (uint32_t i = 0; status == RPS_OK && i < dumped->operator_count; i++) {
        replay_operator(replay, dumped, i);
        check_inputs(replay, graph, dumped, i);
        if (replay->failed) {
            status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", folder);
        }
    }
    if (status == RPS_OK) {
        replay->count[RPS_REPLAY_UNREADABLE] += dumped->problem_count;
        for (uint32_t i = 0; i < dumped->problem_count; i++) {
            rps_tool_fail(0, TOOL, "%s", dumped->problems[i]);
        }
    }
    rps_graph_free(graph);
    rps_dumped_close(dumped);
    return status;
}

/* --- the answer ----------------------------------------------------------- */

static int
print_text(struct replay *replay)
{
    struct rps_table_print print = {.columns = 6,
            .titles = {"type", "operators", "agree", "differ", "largest error",
                    "of tolerance"},
            .right = {false, true, true, true, true, true}};

    for (uint32_t i = 0; i < replay->tally_count; i++) {
        const struct tally *tally = &replay->tallies[i];
        uint64_t all = 0;

        for (int v = 0; v < 4; v++) {
            all += tally->count[v];
        }
        rps_table_print_cell(&print, "%s", tally->type);
        rps_table_print_cell(&print, "%" PRIu64, all);
        rps_table_print_cell(
                &print, "%" PRIu64, tally->count[RPS_REPLAY_AGREES]);
        rps_table_print_cell(
                &print, "%" PRIu64, tally->count[RPS_REPLAY_DIFFERS]);
        rps_table_print_cell(&print, "%.2g", tally->error);
        rps_table_print_cell(&print, "%.1f%%", 100.0 * tally->worst);
    }
    if (!rps_table_print_end(&print)) {
        return RPS_TOOL_IO;
    }
    (void)printf("%" PRIu64 " of %" PRIu64 " operators agree with their "
                 "inputs, %" PRIu64 " differ, %" PRIu64
                 " are not replayed; %" PRIu64 " of %" PRIu64
                 " inputs were overwritten\n",
            replay->count[RPS_REPLAY_AGREES], replay->operators,
            replay->count[RPS_REPLAY_DIFFERS], replay->count[RPS_REPLAY_NO_LAW],
            replay->broken, replay->inputs);
    return rps_tool_flush() ? RPS_TOOL_OK : RPS_TOOL_IO;
}

static int
print_json(struct replay *replay)
{
    json_t *types = json_object();

    for (uint32_t i = 0; i < replay->tally_count; i++) {
        const struct tally *tally = &replay->tallies[i];

        (void)json_object_set_new(types, tally->type,
                json_pack("{s:I, s:I, s:I, s:I, s:f, s:f}", "agree",
                        (json_int_t)tally->count[RPS_REPLAY_AGREES], "differ",
                        (json_int_t)tally->count[RPS_REPLAY_DIFFERS],
                        "not_replayed",
                        (json_int_t)tally->count[RPS_REPLAY_NO_LAW], "damaged",
                        (json_int_t)tally->count[RPS_REPLAY_UNREADABLE],
                        "error", tally->error, "of_tolerance", tally->worst));
    }
    return rps_tool_print_json(json_pack(
            "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:O}", "operators",
            (json_int_t)replay->operators, "agree",
            (json_int_t)replay->count[RPS_REPLAY_AGREES], "differ",
            (json_int_t)replay->count[RPS_REPLAY_DIFFERS], "not_replayed",
            (json_int_t)replay->count[RPS_REPLAY_NO_LAW], "damaged",
            (json_int_t)replay->count[RPS_REPLAY_UNREADABLE], "inputs",
            (json_int_t)replay->inputs, "overwritten",
            (json_int_t)replay->broken, "types", types, "not_agreeing",
            replay->list));
}

static int
exit_code(const struct replay *replay)
{
    if (replay->count[RPS_REPLAY_UNREADABLE] > 0) {
        return RPS_TOOL_CORRUPT;
    }
    return replay->count[RPS_REPLAY_DIFFERS] + replay->broken > 0
                   ? RPS_TOOL_DIFFERS
                   : RPS_TOOL_OK;
}

static int
run(const struct rps_tool_call *call)
{
    struct replay replay = {.json = call->options->json, .list = json_array()};
    struct rps_dumped_steps steps = {.count = 0};
    struct rps_error error = {.text = ""};
    rps_status status = RPS_OK;
    int code;

    if (call->operand_count != 1) {
        json_decref(replay.list);
        return rps_tool_fail(RPS_TOOL_USAGE, TOOL,
                "give the dump's folder, such as precision_data/npu/debug_0");
    }
    status = rps_dumped_find(call->operands[0], &steps, &error);
    for (uint32_t i = 0; status == RPS_OK && i < steps.count; i++) {
        status = replay_step(&replay, steps.folders[i], &error);
    }
    if (status != RPS_OK) {
        code = rps_tool_fail_input(TOOL, status, &error);
    } else {
        code = replay.json ? print_json(&replay) : print_text(&replay);
        code = code == RPS_TOOL_OK ? exit_code(&replay) : code;
    }
    rps_dumped_steps_free(&steps);
    for (uint32_t i = 0; i < replay.tally_count; i++) {
        free(replay.tallies[i].type);
    }
    free(replay.tallies);
    json_decref(replay.list);
    return code;
}

const struct rps_tool rps_tool_precision_replay = {
        .name = TOOL,
        .usage = usage,
        .summary = "compute every operator of a dump again",
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 1,
        .takes_folder = true,
        .run = run,
};
