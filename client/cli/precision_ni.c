/* SPDX-License-Identifier: Apache-2.0 */
/* recps precision ni: one operator, of two dumps side by side. */
#include "client/cli/precision_ni.h"

#include "base/file.h"
#include "base/text.h"
#include "client/cli/precision.h"
#include "client/cli/precision_guide.h"
#include "client/precision/clean.h"
#include "client/precision/subgraph.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOOL       "precision ni"
#define DEPTH_MOST 1000u
#define LISTED     50u

static const char usage[] =
        "usage: recps precision ni [-n] OP [-g GRAPH] [-a ATTR] [-s DEPTH]\n"
        "                          [OPTION]...\n"
        "\n"
        "The guide's `ni`: an operator's type and attributes, and of each "
        "input\n"
        "and output the shape, dtype, least, largest and mean number and the\n"
        "first ones: of precision_data/npu/debug_0 and debug_1 side by side\n"
        "where both are there. OP is a name (top.0/linear, top_0_linear, or "
        "with\n"
        "its type as a file has it: linear.top_0_linear) or a part of one; "
        "where\n"
        "several operators have it they are listed. -s writes the operator "
        "with\n"
        "its neighbours, DEPTH operators far, for Graphviz and as SVG, into\n"
        "precision_data/temp/graph. Exit: 0 it is the same on both sides, or\n"
        "there is one side alone, 1 it is not, 66 nothing is called so, or\n"
        "several are.\n";

enum {
    FLAG_NAME,
    FLAG_GRAPH,
    FLAG_ATTR,
    FLAG_SAVE,
    FLAG_STEP,
    FLAG_LEFT,
    FLAG_RIGHT,
    FLAG_FOLDER
};

static struct rps_tool_flag flags[] = {
        [FLAG_NAME] = {.name = "name",
                .letter = "n",
                .argument = "OP",
                .help = "the operator"},
        [FLAG_GRAPH] = {.name = "graph",
                .letter = "g",
                .argument = "GRAPH",
                .help = "of several models in a dump this one, by its "
                        "folder's name"},
        [FLAG_ATTR] = {.name = "attr",
                .letter = "a",
                .argument = "ATTR",
                .help = "show this attribute, or those with it in their name, "
                        "alone"},
        [FLAG_SAVE] = {.name = "save",
                .letter = "s",
                .argument = "DEPTH",
                .help = "write the operators so far away as .dot and .svg"},
        [FLAG_STEP] = {.name = "step",
                .argument = "N",
                .help = "of several steps this one (the first)"},
        [FLAG_LEFT] = {.name = "left",
                .letter = "lt",
                .argument = "DIR",
                .help = "a dump (debug_0; where there is none, tf/dump)"},
        [FLAG_RIGHT] = {.name = "right",
                .letter = "rt",
                .argument = "DIR",
                .help = "another one (debug_1, where it is there)"},
        [FLAG_FOLDER] = {.name = "folder",
                .argument = "DIR",
                .help = "where the guide's folders lie (precision_data)"},
        {.name = NULL},
};

/* --- dumps ---------------------------------------------------------------- */

static rps_status
no_memory(struct rps_error *error)
{
    return rps_fail(error, RPS_E_NOMEM, "no memory");
}

/* What its folder is called, where that tells it from the other side; a step's
 * is a number. */
static void
give_titles(struct rps_ni *ni)
{
    static const char *const words[] = {"left", "right"};
    bool plain = false;

    for (int i = 0; i < 2 && ni->paths[i] != NULL; i++) {
        char *path = ni->paths[i];
        size_t length = strlen(path);
        const char *title;

        while (length > 1 && path[length - 1] == '/') {
            path[--length] = '\0';
        }
        title = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
        ni->sides[i].title = title;
        plain = plain || title[strspn(title, "0123456789./")] == '\0';
    }
    plain = plain || (ni->paths[1] != NULL && strcmp(ni->sides[0].title,
                                                      ni->sides[1].title) == 0);
    for (int i = 0; i < 2 && plain; i++) {
        ni->sides[i].title = words[i];
    }
}

/* Which of a dump's steps: the one that is asked for; else of another side its
 * number, and its only one. */
static rps_status
choose_step(const struct rps_dumped_steps *steps, const char *path,
        const uint64_t *wanted, bool is_asked, uint32_t *index,
        struct rps_error *error)
{
    *index = 0;
    if (wanted == NULL) {
        return RPS_OK;
    }
    for (; *index < steps->count; (*index)++) {
        if (steps->steps[*index] == *wanted) {
            return RPS_OK;
        }
    }
    *index = 0;
    if (steps->count == 1 && !is_asked) {
        return RPS_OK;
    }
    return rps_fail(error, RPS_E_NOT_FOUND,
            "%s: has no step %" PRIu64 ", its first one is %" PRIu64, path,
            *wanted, steps->steps[0]);
}

static rps_status
open_side(struct rps_ni_side *side, const char *path, const char *graph,
        const uint64_t *wanted, bool is_asked, struct rps_error *error)
{
    struct rps_dumped_steps steps = {.count = 0};
    char *model = graph != NULL ? strdup(graph) : NULL;
    uint32_t index = 0;
    rps_status status =
            graph == NULL || model != NULL ? RPS_OK : no_memory(error);

    if (model != NULL) {
        rps_dump_clean(model);
    }
    if (status == RPS_OK) {
        status = rps_dumped_find_model(path, model, &steps, error);
    }
    if (status == RPS_OK) {
        status = choose_step(&steps, path, wanted, is_asked, &index, error);
    }
    if (status == RPS_OK) {
        side->step_count = steps.count;
        status = rps_dumped_open(steps.folders[index], &side->dumped, error);
    }
    rps_dumped_steps_free(&steps);
    free(model);
    return status;
}

static char *
default_left(const char *folder)
{
    char *path = rps_guide_path(folder, RPS_GUIDE_DEBUG_0);

    if (path != NULL && access(path, F_OK) != 0) {
        char *other = rps_guide_path(folder, RPS_GUIDE_TF);

        if (other != NULL && access(other, F_OK) == 0) {
            free(path);
            return other;
        }
        free(other);
    }
    return path;
}

/* NULL: there is none. */
static char *
default_right(const char *folder)
{
    char *path = rps_guide_path(folder, RPS_GUIDE_DEBUG_1);

    if (path != NULL && access(path, F_OK) != 0) {
        free(path);
        return NULL;
    }
    return path;
}

static char *
side_path(const struct rps_tool_call *call, int side)
{
    const char *folder = call->flags[FLAG_FOLDER].value;
    const char *left = call->flags[FLAG_LEFT].value;
    const char *right = call->flags[FLAG_RIGHT].value;

    if (side == 0) {
        return left != NULL ? strdup(left) : default_left(folder);
    }
    if (right != NULL) {
        return strdup(right);
    }
    /* a folder that is given has no counterpart by itself */
    return left != NULL ? NULL : default_right(folder);
}

static rps_status
open_sides(struct rps_ni *ni, const struct rps_tool_call *call,
        const uint64_t *asked, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (int i = 0; i < 2; i++) {
        ni->paths[i] = side_path(call, i);
    }
    if (ni->paths[0] == NULL) {
        return no_memory(error);
    }
    give_titles(ni);
    status = open_side(&ni->sides[0], ni->paths[0],
            call->flags[FLAG_GRAPH].value, asked, asked != NULL, error);
    if (status == RPS_OK && ni->paths[1] != NULL) {
        status = open_side(&ni->sides[1], ni->paths[1],
                call->flags[FLAG_GRAPH].value, &ni->sides[0].dumped->step,
                asked != NULL, error);
    }
    return status;
}

/* --- operators -------------------------------------------------------------
 */

static const struct rps_dumped_operator *
found_of(const struct rps_ni_side *side, uint32_t index)
{
    return &side->dumped->operators[side->found.operators[index]];
}

/* The left side's, else what the right one alone has. */
static const struct rps_ni_side *
side_with_name(const struct rps_ni *ni)
{
    return ni->sides[0].found.count > 0 ? &ni->sides[0] : &ni->sides[1];
}

static int
list_operators(const struct rps_ni *ni, const char *name)
{
    const struct rps_ni_side *side = side_with_name(ni);
    uint32_t listed = 0;

    rps_tool_fail(0, TOOL,
            "%" PRIu32 " operators have %s in their name, give one of them:",
            side->found.kinds, name);
    for (uint32_t i = 0; i < side->found.count && listed < LISTED; i++) {
        const struct rps_dumped_operator *op = found_of(side, i);

        if (op->occurrence == 0) {
            char *type = strdup(op->type);

            if (type != NULL) {
                rps_dump_clean(type);
            }
            fprintf(stderr, "  -n %s.%s\n", type != NULL ? type : "?",
                    op->clean);
            free(type);
            listed++;
        }
    }
    if (side->found.kinds > listed) {
        fprintf(stderr, "  and %" PRIu32 " more\n", side->found.kinds - listed);
    }
    return RPS_TOOL_NOINPUT;
}

/* The right side's operator for one of the left: the same type and name, as
 * often before. */
static const struct rps_dumped_operator *
counterpart(const struct rps_ni *ni, const struct rps_dumped_operator *op)
{
    const struct rps_dumped *other = ni->sides[1].dumped;

    for (uint32_t i = 0; other != NULL && i < other->operator_count; i++) {
        const struct rps_dumped_operator *one = &other->operators[i];

        if (one->occurrence == op->occurrence &&
                strcmp(one->type, op->type) == 0 &&
                strcmp(one->clean, op->clean) == 0) {
            return one;
        }
    }
    return NULL;
}

/* --- neighbours ------------------------------------------------------------
 */

static rps_status
write_text(char **path_out, const char *stem, const char *ending,
        struct rps_text *text, struct rps_error *error)
{
    *path_out = rps_format("%s.%s", stem, ending);
    if (*path_out == NULL || text->failed) {
        return no_memory(error);
    }
    return rps_file_replace(*path_out, text->bytes, text->length, error);
}

static rps_status
draw(struct rps_ni *ni, const char *stem, const struct rps_subgraph *subgraph,
        struct rps_error *error)
{
    struct rps_text dot = {.bytes = NULL}, svg = {.bytes = NULL};
    rps_status status = rps_subgraph_svg(subgraph, &svg, error);

    rps_subgraph_dot(subgraph, &dot);
    if (status == RPS_OK) {
        status = write_text(&ni->dot, stem, "dot", &dot, error);
    }
    if (status == RPS_OK) {
        status = write_text(&ni->svg, stem, "svg", &svg, error);
    }
    rps_text_finish(&dot);
    rps_text_finish(&svg);
    return status;
}

/* {folder}/{type}.{name}.{depth} */
static char *
make_stem(const char *folder, const struct rps_dumped_operator *op,
        uint64_t depth, struct rps_error *error)
{
    char *graphs = rps_guide_path(folder, RPS_GUIDE_GRAPHS);
    char *type = strdup(op->type);
    char *stem = NULL;

    if (graphs == NULL || type == NULL) {
        (void)no_memory(error);
    } else if (rps_dir_make(graphs, error) == RPS_OK) {
        rps_dump_clean(type);
        stem = rps_format("%s/%s.%s.%" PRIu64, graphs, type, op->clean, depth);
    }
    free(graphs);
    free(type);
    return stem;
}

/* Of the side that has it, the left one first. */
static rps_status
save(struct rps_ni *ni, const char *folder, uint64_t depth,
        struct rps_error *error)
{
    const struct rps_ni_side *side = side_with_name(ni);
    const uint32_t centre = side->found.operators[0];
    struct rps_subgraph subgraph = {.graph = NULL};
    struct rps_graph *graph = NULL;
    char *stem =
            make_stem(folder, &side->dumped->operators[centre], depth, error);
    rps_status status = stem != NULL ? RPS_OK : RPS_E_IO;

    if (status == RPS_OK) {
        status = rps_graph_make(side->dumped, &graph, error);
    }
    if (status == RPS_OK) {
        status = rps_subgraph_take(
                graph, centre, (uint32_t)depth, &subgraph, error);
    }
    if (status == RPS_OK) {
        status = draw(ni, stem, &subgraph, error);
    }
    rps_subgraph_finish(&subgraph);
    rps_graph_free(graph);
    free(stem);
    return status;
}

/* --- the command ---------------------------------------------------------- */

/* Every operator of the name: more than one where it ran again. */
static int
show_all(struct rps_ni *ni)
{
    const struct rps_ni_side *side = side_with_name(ni);
    json_t *list = json_array();

    for (uint32_t i = 0; i < side->found.count; i++) {
        const struct rps_dumped_operator *one = found_of(side, i);
        const bool is_left = side == &ni->sides[0];
        struct rps_ni_pair pair = {
                .op = {is_left ? one : NULL,
                        is_left ? counterpart(ni, one) : one}};

        if (ni->json) {
            (void)json_array_append_new(list, rps_ni_pair_json(ni, &pair));
        } else if (!rps_ni_pair_print(ni, &pair)) {
            json_decref(list);
            return rps_tool_fail(RPS_TOOL_FAILED, TOOL, "no memory");
        }
    }
    if (!ni->json) {
        json_decref(list);
        if (ni->svg != NULL) {
            printf("\nNeighbours: %s\n            %s\n", ni->dot, ni->svg);
        }
        return RPS_TOOL_OK;
    }
    return rps_tool_print_json(json_pack("{s:o, s:s?, s:s?, s:b}", "operators",
            list, "dot", ni->dot, "svg", ni->svg, "same", !ni->differs));
}

static void
say_folder_problems(struct rps_ni *ni)
{
    for (int i = 0; i < 2 && ni->sides[i].dumped != NULL; i++) {
        const struct rps_dumped *dumped = ni->sides[i].dumped;

        for (uint32_t k = 0; k < dumped->problem_count; k++) {
            rps_tool_fail(0, TOOL, "%s", dumped->problems[k]);
            ni->damaged = true;
        }
    }
}

static int
answer(struct rps_ni *ni, const struct rps_tool_call *call, const char *name,
        uint64_t depth)
{
    struct rps_error error = {.text = ""};
    rps_status status = RPS_OK, saved = RPS_OK;
    int code;

    for (int i = 0; i < 2 && status == RPS_OK; i++) {
        if (ni->sides[i].dumped != NULL) {
            status = rps_ni_find(
                    ni->sides[i].dumped, name, &ni->sides[i].found, &error);
        }
    }
    if (status == RPS_OK && side_with_name(ni)->found.count == 0) {
        return rps_tool_fail(RPS_TOOL_NOINPUT, TOOL,
                "no operator of %s has %s in its name",
                ni->sides[0].dumped->folder, name);
    }
    if (status == RPS_OK && side_with_name(ni)->found.kinds > 1) {
        return list_operators(ni, name);
    }
    say_folder_problems(ni);
    if (status != RPS_OK) {
        return rps_tool_fail_status(TOOL, status, "%s", error.text);
    }
    if (call->flags[FLAG_SAVE].value != NULL) {
        saved = save(ni, call->flags[FLAG_FOLDER].value, depth, &error);
    }
    if (saved == RPS_E_LIMIT) {
        return rps_tool_fail_status(TOOL, saved, "%s", error.text);
    }
    if (saved != RPS_OK) { /* one may be there: neither is told */
        free(ni->dot);
        free(ni->svg);
        ni->dot = ni->svg = NULL;
    }
    code = show_all(ni);
    if (saved != RPS_OK) {
        return rps_tool_fail_output(TOOL, "--save", saved, &error);
    }
    if (code != RPS_TOOL_OK) {
        return code;
    }
    return ni->damaged   ? RPS_TOOL_CORRUPT
           : ni->differs ? RPS_TOOL_DIFFERS
                         : RPS_TOOL_OK;
}

static void
finish(struct rps_ni *ni)
{
    for (int i = 0; i < 2; i++) {
        rps_ni_found_finish(&ni->sides[i].found);
        rps_dumped_close(ni->sides[i].dumped);
        free(ni->paths[i]);
    }
    free(ni->dot);
    free(ni->svg);
}

/* -n OP, or OP alone. */
static const char *
name_of(const struct rps_tool_call *call)
{
    const char *name = call->flags[FLAG_NAME].value;

    if ((name != NULL) == (call->operand_count > 0)) {
        return NULL;
    }
    name = name != NULL ? name : call->operands[0];
    return name[0] != '\0' ? name : NULL;
}

static int
run(const struct rps_tool_call *call)
{
    struct rps_ni ni = {.attribute = call->flags[FLAG_ATTR].value,
            .json = call->options->json};
    const char *name = name_of(call);
    struct rps_error error = {.text = ""};
    uint64_t depth = 0, step = 0;
    rps_status status;
    int code = name != NULL ? RPS_TOOL_OK
                            : rps_tool_fail(RPS_TOOL_USAGE, TOOL,
                                      "give one operator's name: -n OP");

    if (code == RPS_TOOL_OK) {
        code = rps_guide_number(
                TOOL, &call->flags[FLAG_SAVE], DEPTH_MOST, &depth);
    }
    if (code == RPS_TOOL_OK) {
        code = rps_guide_number(
                TOOL, &call->flags[FLAG_STEP], UINT64_MAX, &step);
    }
    if (code != RPS_TOOL_OK) {
        return code;
    }
    status = open_sides(&ni, call,
            call->flags[FLAG_STEP].value != NULL ? &step : NULL, &error);
    code = status == RPS_OK ? answer(&ni, call, name, depth)
                            : rps_tool_fail_input(TOOL, status, &error);
    finish(&ni);
    return code;
}

const struct rps_tool rps_tool_precision_ni = {
        .name = TOOL,
        .usage = usage,
        .summary = "the guide's: one operator, debug_0 beside debug_1",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 1,
        .run = run,
};
