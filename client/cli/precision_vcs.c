/* SPDX-License-Identifier: Apache-2.0 */
/* recps precision vcs: a comparison's table, filtered by its cosines. */
#include "base/text.h"
#include "client/cli/precision.h"
#include "client/cli/precision_guide.h"
#include "client/cli/table_print.h"
#include "client/precision/compare.h"
#include "client/precision/vector_compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOOL "precision vcs"

static const char usage[] =
        "usage: recps precision vcs [-f FILE] [-c COS] [-l LIMIT] [OPTION]...\n"
        "\n"
        "The guide's `vcs`: operators of a comparison of which a cosine, of "
        "an\n"
        "input or an output, is below COS, in order of execution, and the "
        "first\n"
        "of them whose inputs are not below and whose output is. FILE is a "
        "table\n"
        "of ac or vc: a path, or a name in "
        "precision_data/temp/vector_compare,\n"
        "where the newest is taken if none is given. Where nothing is below, "
        "a\n"
        "higher threshold is proposed that finds something. Exit: 0 nothing "
        "is\n"
        "below, 1 something is.\n";

enum {
    FLAG_FILE,
    FLAG_COS,
    FLAG_LIMIT,
    FLAG_FOLDER
};

static struct rps_tool_flag flags[] = {
        [FLAG_FILE] = {.name = "file",
                .letter = "f",
                .argument = "FILE",
                .help = "the table, a path or its name (the newest one)"},
        [FLAG_COS] = {.name = "cos-sim",
                .letter = "c",
                .argument = "COS",
                .help = "the threshold (0.98)"},
        [FLAG_LIMIT] = {.name = "limit",
                .letter = "l",
                .argument = "LIMIT",
                .help = "list so many operators at most (3)"},
        [FLAG_FOLDER] = {.name = "folder",
                .argument = "DIR",
                .help = "where the guide's folders lie (precision_data)"},
        {.name = NULL},
};

/* What was found in a table. */
struct found {
    const struct rps_vector_results *results;
    double threshold;
    const struct rps_vector_line *first; /* its inputs are good; NULL: none */
    uint64_t below;
    uint64_t otherwise;                  /* not below, but they do not agree */
    const struct rps_vector_line *other; /* the first of them */
    uint64_t unread;                     /* not below in what could be read */
    const struct rps_vector_line *least; /* NULL: nothing has a cosine */
    double least_cosine;
};

static bool
is_below(const struct found *found, const struct rps_vector_line *line)
{
    return rps_vector_is_below(line, false, found->threshold) ||
           rps_vector_is_below(line, true, found->threshold);
}

static void
look(struct found *found)
{
    for (uint32_t i = 0; i < found->results->count; i++) {
        const struct rps_vector_line *line = &found->results->lines[i];

        if (is_below(found, line)) {
            found->below++;
            if (found->first == NULL &&
                    !rps_vector_is_below(line, false, found->threshold)) {
                found->first = line;
            }
        } else if (!line->agrees) {
            found->otherwise++;
            found->other = found->other != NULL ? found->other : line;
        }
        found->unread += line->unread ? 1 : 0;
    }
    found->least = rps_vector_least(found->results, &found->least_cosine);
}

/* --- for people ----------------------------------------------------------- */

static const char *
name_of(const struct rps_vector_line *line)
{
    return line->left[0] != '\0' ? line->left : line->right;
}

/* "0: 1, 1: 0.806927" */
static void
add_cosines(struct rps_table_print *print, const struct rps_vector_line *line,
        bool is_output)
{
    const struct rps_vector_cosine *cosines =
            line->cosines + (is_output ? line->input_count : 0);
    const uint32_t count = is_output ? line->output_count : line->input_count;
    struct rps_text text = {.bytes = NULL};

    for (uint32_t i = 0; i < count; i++) {
        rps_text_add(
                &text, "%s%" PRIu32 ": ", i > 0 ? ", " : "", cosines[i].index);
        if (isnan(cosines[i].cosine)) {
            rps_text_add(&text, "nan");
        } else {
            rps_text_add(&text, "%.9g", cosines[i].cosine);
        }
    }
    print->failed = print->failed || text.failed;
    rps_table_print_cell(print, "%s", text.bytes != NULL ? text.bytes : "-");
    rps_text_finish(&text);
}

static bool
print_lines(const struct found *found, uint64_t limit)
{
    const bool steps = found->results->has_steps;
    struct rps_table_print print = {.columns = steps ? 6 : 5,
            .titles = {"Left", "Right", "type", "Input", "Output", "step"},
            .right = {false, false, false, false, false, true}};
    uint64_t shown = 0;

    for (uint32_t i = 0; i < found->results->count && shown < limit; i++) {
        const struct rps_vector_line *line = &found->results->lines[i];

        if (!is_below(found, line)) {
            continue;
        }
        shown++;
        rps_table_print_cell(&print, "%s", line->left);
        rps_table_print_cell(&print, "%s", line->right);
        rps_table_print_cell(&print, "%s", line->type);
        add_cosines(&print, line, false);
        add_cosines(&print, line, true);
        if (steps) {
            rps_table_print_cell(&print, "%" PRIu64, line->step);
        }
    }
    return rps_table_print_end(&print);
}

/* Nothing is below: what would be. */
static void
print_none(const struct found *found, const char *file)
{
    const double proposed = rps_vector_propose(found->least_cosine);
    char text[RPS_GUIDE_NUMBER];

    printf("No cosine is below %s", rps_guide_shortest(found->threshold, text));
    if (found->least == NULL) {
        printf(": the table has none.\n");
        return;
    }
    printf("; the least is %s, of %s %s.\n",
            rps_guide_shortest(found->least_cosine, text), found->least->type,
            name_of(found->least));
    if (isnan(proposed)) {
        printf("All are 1: no threshold finds anything.\n");
    } else {
        printf("A higher threshold that finds something: recps precision vcs "
               "-f %s -c %s\n",
                file, rps_guide_shortest(proposed, text));
    }
}

static void
print_first(const struct found *found)
{
    char text[RPS_GUIDE_NUMBER];

    if (found->first != NULL) {
        printf("\nThe first whose inputs are not below %s and whose output "
               "is: %s %s",
                rps_guide_shortest(found->threshold, text), found->first->type,
                name_of(found->first));
        if (found->results->has_steps) {
            printf(", step %" PRIu64, found->first->step);
        }
        printf("\n");
    } else if (found->below > 0) {
        printf("\nAll of them differ in what they read: go to who wrote it "
               "(recps precision ni -n NAME -s 1).\n");
    }
}

static int
print_text(const struct found *found, const char *file, uint64_t limit)
{
    char text[RPS_GUIDE_NUMBER];

    printf("%s: %" PRIu64 " of %" PRIu32 " operators are below %s\n\n", file,
            found->below, found->results->count,
            rps_guide_shortest(found->threshold, text));
    if (found->below == 0) {
        print_none(found, file);
    } else {
        if (!print_lines(found, limit)) {
            return rps_tool_fail(RPS_TOOL_FAILED, TOOL, "no memory");
        }
        if (found->below > limit) {
            printf("%" PRIu64 " more: -l %" PRIu64 "\n", found->below - limit,
                    found->below);
        }
        print_first(found);
    }
    if (found->otherwise > 0) {
        printf("%" PRIu64 " more %s for another reason than a cosine (length, "
               "whole numbers, rows of keys), the first: %s %s\n",
                found->otherwise,
                found->otherwise == 1 ? "does not agree" : "do not agree",
                found->other->type, name_of(found->other));
    }
    if (found->unread > 0) {
        printf("%" PRIu64 " %s a tensor that was not compared: its file is "
               "damaged, missing or of another shape\n",
                found->unread,
                found->unread == 1 ? "operator has" : "operators have");
    }
    return RPS_TOOL_OK;
}

/* --- for programs --------------------------------------------------------- */

static json_t *
cosines_json(const struct rps_vector_line *line, bool is_output)
{
    const struct rps_vector_cosine *cosines =
            line->cosines + (is_output ? line->input_count : 0);
    const uint32_t count = is_output ? line->output_count : line->input_count;
    json_t *list = json_array();

    for (uint32_t i = 0; i < count; i++) {
        json_t *cosine = isnan(cosines[i].cosine)
                                 ? json_null()
                                 : json_sprintf("%.17g", cosines[i].cosine);

        (void)json_array_append_new(
                list, json_pack("{s:I, s:o}", "index",
                              (json_int_t)cosines[i].index, "cosine", cosine));
    }
    return list;
}

static json_t *
line_json(const struct rps_vector_line *line)
{
    return line == NULL ? json_null()
                        : json_pack("{s:s, s:s, s:s, s:I, s:o, s:o}", "left",
                                  line->left, "right", line->right, "type",
                                  line->type, "step", (json_int_t)line->step,
                                  "input", cosines_json(line, false), "output",
                                  cosines_json(line, true));
}

static int
print_json(const struct found *found, const char *file, uint64_t limit)
{
    const double proposed = rps_vector_propose(found->least_cosine);
    json_t *list = json_array();
    json_t *all;

    for (uint32_t i = 0;
            i < found->results->count && json_array_size(list) < limit; i++) {
        if (is_below(found, &found->results->lines[i])) {
            (void)json_array_append_new(
                    list, line_json(&found->results->lines[i]));
        }
    }
    all = json_pack("{s:s, s:f, s:I, s:I, s:o, s:o, s:I, s:I}", "file", file,
            "threshold", found->threshold, "operators",
            (json_int_t)found->results->count, "below",
            (json_int_t)found->below, "list", list, "first",
            line_json(found->first), "differ_otherwise",
            (json_int_t)found->otherwise, "not_compared",
            (json_int_t)found->unread);
    if (all != NULL && found->below == 0 && !isnan(proposed)) {
        char text[RPS_GUIDE_NUMBER];

        /* a string: JSON's floats have nine digits here */
        (void)json_object_set_new(all, "proposed",
                json_string(rps_guide_shortest(proposed, text)));
    }
    return rps_tool_print_json(all);
}

/* --- the command ---------------------------------------------------------- */

/* A path that is there, else a name in the folder of results. */
static rps_status
find_file(const char *given, const char *folder, char **path_out,
        struct rps_error *error)
{
    if (given == NULL) {
        return rps_vector_newest(folder, path_out, error);
    }
    *path_out = NULL;
    if (strchr(given, '/') == NULL) {
        *path_out = rps_format("%s/%s", folder, given);
        if (*path_out != NULL && access(*path_out, F_OK) == 0) {
            return RPS_OK;
        }
        if (*path_out != NULL && access(given, F_OK) != 0) {
            const rps_status status = rps_fail(error, RPS_E_NOT_FOUND,
                    "%s: neither here nor in %s is such a file", given, folder);

            free(*path_out);
            *path_out = NULL;
            return status;
        }
        free(*path_out);
    }
    *path_out = strdup(given);
    return *path_out != NULL
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOMEM, "%s: no memory", given);
}

static int
answer(const struct rps_tool_call *call, const char *folder, double threshold,
        uint64_t limit)
{
    struct rps_vector_results results = {.lines = NULL};
    struct found found = {.results = &results, .threshold = threshold};
    struct rps_error error = {.text = ""};
    char *path = NULL;
    rps_status status =
            find_file(call->flags[FLAG_FILE].value, folder, &path, &error);
    int code;

    if (status == RPS_OK) {
        status = rps_vector_read(path, &results, &error);
    }
    if (status != RPS_OK) {
        code = rps_tool_fail_input(TOOL, status, &error);
    } else {
        look(&found);
        code = call->options->json ? print_json(&found, path, limit)
                                   : print_text(&found, path, limit);
        if (code == RPS_TOOL_OK && found.below > 0) {
            code = RPS_TOOL_DIFFERS;
        }
    }
    rps_vector_finish(&results);
    free(path);
    return code;
}

static int
run(const struct rps_tool_call *call)
{
    char *folder =
            rps_guide_path(call->flags[FLAG_FOLDER].value, RPS_GUIDE_RESULTS);
    double threshold = RPS_COMPARE_THRESHOLD;
    uint64_t limit = RPS_GUIDE_LIMIT;
    int code = rps_guide_cosine(TOOL, &call->flags[FLAG_COS], &threshold);

    if (code == RPS_TOOL_OK) {
        code = rps_guide_number(
                TOOL, &call->flags[FLAG_LIMIT], RPS_GUIDE_MOST, &limit);
    }
    if (code == RPS_TOOL_OK && folder == NULL) {
        code = rps_tool_fail(RPS_TOOL_FAILED, TOOL, "no memory");
    }
    if (code == RPS_TOOL_OK) {
        code = answer(call, folder, threshold, limit);
    }
    free(folder);
    return code;
}

const struct rps_tool rps_tool_precision_vcs = {
        .name = TOOL,
        .usage = usage,
        .summary = "the guide's: a comparison's lowest cosines",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .run = run,
};
