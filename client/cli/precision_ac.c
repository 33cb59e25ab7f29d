/* SPDX-License-Identifier: Apache-2.0 */
/* recps precision ac and vc: a comparison whose table goes to the folder where
 * vcs finds it. */
#include "base/text.h"
#include "client/cli/precision.h"
#include "client/cli/precision_compare.h"
#include "client/cli/precision_guide.h"
#include "client/precision/clean.h"
#include "client/precision/vector_compare.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char ac_usage[] =
        "usage: recps precision ac -c [-l LIMIT] [OPTION]...\n"
        "\n"
        "The guide's `ac`: compare the dump of the device,\n"
        "precision_data/npu/debug_0, with that of the CPU or another "
        "framework,\n"
        "precision_data/tf/dump, operator by operator, and write a table of\n"
        "cosines into precision_data/temp/vector_compare (columns Left, "
        "Right,\n"
        "type, Input, Output; vcs filters it). Without -c nothing is "
        "compared:\n"
        "it says what both folders have. Exit codes are those of compare.\n";

static const char vc_usage[] =
        "usage: recps precision vc -lt LEFT -rt RIGHT [-g GRAPH] [OPTION]...\n"
        "\n"
        "The guide's `vc`: as `ac -c`, of two folders that are given: any of "
        "a\n"
        "dump, down to a step's.\n";

enum {
    AC_COMPARE,
    AC_LIMIT,
    AC_GRAPH,
    AC_MAP,
    AC_THRESHOLD,
    AC_FOLDER
};

enum {
    VC_LEFT,
    VC_RIGHT,
    VC_GRAPH,
    VC_LIMIT,
    VC_MAP,
    VC_THRESHOLD,
    VC_FOLDER
};

/* clang-format off */
#define FLAG_LIMIT {.name = "limit", .letter = "l", .argument = "LIMIT", \
    .help = "list so many operators at most (3)"}
#define FLAG_GRAPH {.name = "graph", .letter = "g", .argument = "GRAPH", \
    .help = "of several models in a dump this one, by its folder's name"}
#define FLAG_MAP {.name = "map", .argument = "FILE", \
    .help = "which operators belong together, as JSON (docs/PRECISION.md)"}
#define FLAG_THRESHOLD {.name = "threshold", .argument = "X", \
    .help = "a cosine below it differs, and so does a quotient of lengths " \
            "(0.98)"}
#define FLAG_FOLDER {.name = "folder", .argument = "DIR", \
    .help = "where the guide's folders lie (precision_data)"}
/* clang-format on */

static struct rps_tool_flag ac_flags[] = {
        [AC_COMPARE] = {.name = "compare",
                .letter = "c",
                .help = "compare them; else say what is there"},
        [AC_LIMIT] = FLAG_LIMIT,
        [AC_GRAPH] = FLAG_GRAPH,
        [AC_MAP] = FLAG_MAP,
        [AC_THRESHOLD] = FLAG_THRESHOLD,
        [AC_FOLDER] = FLAG_FOLDER,
        {.name = NULL},
};

static struct rps_tool_flag vc_flags[] = {
        [VC_LEFT] = {.name = "left",
                .letter = "lt",
                .argument = "DIR",
                .help = "a dump's folder, or one in it"},
        [VC_RIGHT] = {.name = "right",
                .letter = "rt",
                .argument = "DIR",
                .help = "what it is compared with"},
        [VC_GRAPH] = FLAG_GRAPH,
        [VC_LIMIT] = FLAG_LIMIT,
        [VC_MAP] = FLAG_MAP,
        [VC_THRESHOLD] = FLAG_THRESHOLD,
        [VC_FOLDER] = FLAG_FOLDER,
        {.name = NULL},
};

/* What is compared, and where the table goes. */
struct job {
    const char *tool;
    char *left, *right;
    char *results; /* folder */
    const char *graph;
    struct rps_compare_options options;
    uint64_t limit;
    bool json;
};

/* --- folders -------------------------------------------------------------- */

/* The steps of a side; of a graph: by its folder's name, cleaned. */
static rps_status
find_steps(const char *path, const char *graph, struct rps_dumped_steps *steps,
        struct rps_error *error)
{
    char *model = graph != NULL ? strdup(graph) : NULL;
    rps_status status;

    if (graph != NULL && model == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
    if (model != NULL) {
        rps_dump_clean(model);
    }
    status = rps_dumped_find_model(path, model, steps, error);
    free(model);
    return status;
}

/* *path becomes the folder of the graph's steps. */
static rps_status
narrow(char **path, const char *graph, struct rps_error *error)
{
    struct rps_dumped_steps steps = {.count = 0};
    rps_status status =
            graph != NULL ? find_steps(*path, graph, &steps, error) : RPS_OK;

    if (graph != NULL && status == RPS_OK) {
        char *folder = strdup(steps.folders[0]);

        if (folder == NULL) {
            status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", *path);
        } else {
            if (steps.count > 1) {
                *strrchr(folder, '/') = '\0';
            }
            free(*path);
            *path = folder;
        }
    }
    rps_dumped_steps_free(&steps);
    return status;
}

/* --- comparing -------------------------------------------------------------
 */

/* path: of the table; NULL: it could not be written. */
static int
tell(const struct job *job, const struct rps_compare_run *run, const char *path)
{
    int code;

    rps_compare_run_say_problems(run, job->tool);
    if (job->json) {
        json_t *all =
                rps_compare_run_json(run, NULL, rps_compare_run_is_same(run));

        if (all != NULL && path != NULL) {
            (void)json_object_set_new(all, "file", json_string(path));
        }
        code = rps_tool_print_json(all);
    } else {
        code = rps_compare_run_print(run, NULL, job->limit);
        if (path != NULL) {
            printf("\nThe table: %s\nFiltered: recps precision vcs -f %s\n",
                    path, path);
        }
    }
    return code == RPS_TOOL_OK ? rps_compare_run_code(run) : code;
}

static int
compare(struct job *job)
{
    struct rps_compare_run *run = NULL;
    struct rps_error error = {.text = ""};
    char *path = NULL;
    rps_status status = narrow(&job->left, job->graph, &error);
    int code;

    if (status == RPS_OK) {
        status = narrow(&job->right, job->graph, &error);
    }
    if (status == RPS_OK) {
        status = rps_compare_dumps(
                job->left, job->right, &job->options, &run, &error);
    }
    if (status != RPS_OK) {
        return rps_tool_fail_input(job->tool, status, &error);
    }
    status = rps_vector_new(job->results, &path, &error);
    if (status == RPS_OK) {
        status = rps_compare_run_write_csv(run, path, &error);
    }
    code = tell(job, run, status == RPS_OK ? path : NULL);
    if (status != RPS_OK) {
        if (path != NULL) { /* empty, under its name */
            (void)unlink(path);
        }
        code = rps_tool_fail_output(job->tool, "the table", status, &error);
    }
    free(path);
    rps_compare_run_free(run);
    return code;
}

/* --- what is there ----------------------------------------------------------
 */

static uint64_t
count_files(const struct rps_dumped *dumped)
{
    uint64_t files = 0;

    for (uint32_t i = 0; i < dumped->operator_count; i++) {
        const struct rps_dumped_operator *op = &dumped->operators[i];

        for (uint32_t k = 0; k < op->input_count; k++) {
            files += op->inputs[k].file != NULL ? 1 : 0;
        }
        for (uint32_t k = 0; k < op->output_count; k++) {
            files += op->outputs[k].file != NULL ? 1 : 0;
        }
    }
    return files;
}

static json_t *
fused_of(const struct rps_dumped *dumped)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < dumped->operator_count; i++) {
        const struct rps_dumped_operator *op = &dumped->operators[i];

        if (op->holds != NULL) {
            (void)json_array_append_new(
                    list, json_pack("{s:s, s:s, s:s}", "type", op->type, "name",
                                  op->name, "holds", op->holds));
        }
    }
    return list;
}

static json_t *
problems_of(const struct rps_dumped *dumped)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < dumped->problem_count; i++) {
        (void)json_array_append_new(list, json_string(dumped->problems[i]));
    }
    return list;
}

/* A side as JSON: what text is made of, too. */
static json_t *
look_at(const char *path, const char *graph, rps_status *status_out,
        struct rps_error *error)
{
    struct rps_dumped_steps steps = {.count = 0};
    struct rps_dumped *dumped = NULL;
    json_t *side = NULL, *numbers = json_array();

    *status_out = find_steps(path, graph, &steps, error);
    for (uint32_t i = 0; *status_out == RPS_OK && i < steps.count; i++) {
        (void)json_array_append_new(
                numbers, json_integer((json_int_t)steps.steps[i]));
    }
    if (*status_out == RPS_OK) {
        *status_out = rps_dumped_open(steps.folders[0], &dumped, error);
    }
    if (*status_out == RPS_OK) {
        side = json_pack("{s:s, s:O, s:I, s:I, s:b, s:I, s:o, s:o}", "folder",
                steps.folders[0], "steps", numbers, "operators",
                (json_int_t)dumped->operator_count, "files",
                (json_int_t)count_files(dumped), "complete", dumped->complete,
                "missing", (json_int_t)dumped->missing, "fused",
                fused_of(dumped), "problems", problems_of(dumped));
    }
    json_decref(numbers);
    rps_dumped_close(dumped);
    rps_dumped_steps_free(&steps);
    return side;
}

static void
print_side(const json_t *side, const char *path, uint64_t limit)
{
    const json_t *fused = json_object_get(side, "fused");
    const size_t count = json_array_size(fused);
    const size_t steps = json_array_size(json_object_get(side, "steps"));

    printf("%s\n  %zu %s, the first in %s:\n  %" JSON_INTEGER_FORMAT
           " operators, %" JSON_INTEGER_FORMAT " files%s\n",
            path, steps, steps == 1 ? "step" : "steps",
            json_string_value(json_object_get(side, "folder")),
            json_integer_value(json_object_get(side, "operators")),
            json_integer_value(json_object_get(side, "files")),
            json_is_true(json_object_get(side, "complete"))
                    ? ""
                    : "; its step did not end");
    printf("  %zu of them %s fused%s\n", count, count == 1 ? "is" : "are",
            count > 0 ? ":" : "");
    for (size_t i = 0; i < count && i < limit; i++) {
        const json_t *one = json_array_get(fused, i);

        printf("    %s %s: %s\n",
                json_string_value(json_object_get(one, "type")),
                json_string_value(json_object_get(one, "name")),
                json_string_value(json_object_get(one, "holds")));
    }
    if (count > limit) {
        printf("    and %zu more: -l %zu\n", count - limit, count);
    }
}

/* Is anything of it damaged or missing? Each is said. */
static bool
is_damaged(const char *tool, const json_t *side)
{
    const json_t *problems = json_object_get(side, "problems");
    const json_int_t missing =
            json_integer_value(json_object_get(side, "missing"));

    for (size_t i = 0; i < json_array_size(problems); i++) {
        rps_tool_fail(
                0, tool, "%s", json_string_value(json_array_get(problems, i)));
    }
    if (missing > 0) {
        rps_tool_fail(0, tool, "%s: %" JSON_INTEGER_FORMAT " files are missing",
                json_string_value(json_object_get(side, "folder")), missing);
    }
    return missing > 0 || json_array_size(problems) > 0;
}

static int
describe(const struct job *job)
{
    const char *const paths[] = {job->left, job->right};
    json_t *all = json_object();
    int code = RPS_TOOL_OK;

    for (int i = 0; i < 2; i++) {
        struct rps_error error = {.text = ""};
        rps_status status;
        json_t *side = look_at(paths[i], job->graph, &status, &error);

        if (side == NULL) {
            code = rps_tool_fail_input(job->tool, status, &error);
            continue;
        }
        if (is_damaged(job->tool, side) && code == RPS_TOOL_OK) {
            code = RPS_TOOL_CORRUPT;
        }
        if (!job->json) {
            print_side(side, paths[i], job->limit);
        }
        (void)json_object_set_new(all, i == 0 ? "left" : "right", side);
    }
    if (job->json) {
        const int printed = rps_tool_print_json(all);

        return code != RPS_TOOL_OK ? code : printed;
    }
    json_decref(all);
    if (code == RPS_TOOL_OK) {
        printf("\nNext, compare them: recps precision ac -c\n");
    }
    return code;
}

/* --- the commands -----------------------------------------------------------
 */

static void
job_finish(struct job *job)
{
    free(job->left);
    free(job->right);
    free(job->results);
}

/* What both commands have of flags. */
static int
read_job(struct job *job, const struct rps_tool_flag *threshold,
        const struct rps_tool_flag *limit, const struct rps_tool_flag *map)
{
    int code;

    job->limit = RPS_GUIDE_LIMIT;
    job->options = (struct rps_compare_options){
            .threshold = RPS_COMPARE_THRESHOLD, .mapping = map->value};
    code = rps_guide_cosine(job->tool, threshold, &job->options.threshold);
    if (code == RPS_TOOL_OK) {
        code = rps_guide_number(job->tool, limit, RPS_GUIDE_MOST, &job->limit);
    }
    if (code == RPS_TOOL_OK &&
            (job->left == NULL || job->right == NULL || job->results == NULL)) {
        code = rps_tool_fail(RPS_TOOL_FAILED, job->tool, "no memory");
    }
    return code;
}

/* Both default folders are there, or what makes them is said. */
static int
check_folders(const struct job *job)
{
    int code = RPS_TOOL_OK;

    if (access(job->left, F_OK) != 0) {
        code = rps_tool_fail(RPS_TOOL_NOINPUT, job->tool,
                "%s is not there: it is made by recps-train --device npu "
                "--dump",
                job->left);
    }
    if (access(job->right, F_OK) != 0) {
        code = rps_tool_fail(RPS_TOOL_NOINPUT, job->tool,
                "%s is not there: it is made by recps-train --device cpu "
                "--dump, or by another framework (docs/PRECISION.md)",
                job->right);
    }
    return code;
}

static int
ac_run(const struct rps_tool_call *call)
{
    const char *folder = call->flags[AC_FOLDER].value;
    struct job job = {.tool = rps_tool_precision_ac.name,
            .left = rps_guide_path(folder, RPS_GUIDE_DEBUG_0),
            .right = rps_guide_path(folder, RPS_GUIDE_TF),
            .results = rps_guide_path(folder, RPS_GUIDE_RESULTS),
            .graph = call->flags[AC_GRAPH].value,
            .json = call->options->json};
    int code = read_job(&job, &call->flags[AC_THRESHOLD],
            &call->flags[AC_LIMIT], &call->flags[AC_MAP]);

    if (code == RPS_TOOL_OK) {
        code = check_folders(&job);
    }
    if (code == RPS_TOOL_OK) {
        code = call->flags[AC_COMPARE].value != NULL ? compare(&job)
                                                     : describe(&job);
    }
    job_finish(&job);
    return code;
}

static int
vc_run(const struct rps_tool_call *call)
{
    const char *left = call->flags[VC_LEFT].value;
    const char *right = call->flags[VC_RIGHT].value;
    struct job job = {.tool = rps_tool_precision_vc.name,
            .graph = call->flags[VC_GRAPH].value,
            .json = call->options->json};
    int code;

    if (left == NULL || right == NULL) {
        return rps_tool_fail(RPS_TOOL_USAGE, job.tool,
                "give two dumps' folders: -lt LEFT -rt RIGHT");
    }
    job.left = strdup(left);
    job.right = strdup(right);
    job.results =
            rps_guide_path(call->flags[VC_FOLDER].value, RPS_GUIDE_RESULTS);
    code = read_job(&job, &call->flags[VC_THRESHOLD], &call->flags[VC_LIMIT],
            &call->flags[VC_MAP]);
    if (code == RPS_TOOL_OK) {
        code = compare(&job);
    }
    job_finish(&job);
    return code;
}

const struct rps_tool rps_tool_precision_ac = {
        .name = "precision ac",
        .usage = ac_usage,
        .summary = "the guide's: the device's dump and the CPU's",
        .flags = ac_flags,
        .scope = RPS_SCOPE_TOOL,
        .run = ac_run,
};

const struct rps_tool rps_tool_precision_vc = {
        .name = "precision vc",
        .usage = vc_usage,
        .summary = "the guide's: two dumps that are given",
        .flags = vc_flags,
        .scope = RPS_SCOPE_TOOL,
        .run = vc_run,
};
