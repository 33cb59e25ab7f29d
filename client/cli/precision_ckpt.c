/* SPDX-License-Identifier: Apache-2.0 */
/* recps precision ckpt A B: which variable of two checkpoints went astray. */
#include "client/cli/precision_ckpt.h"

#include "base/text.h"
#include "client/cli/precision.h"
#include "embedding/checkpoint/checkpoint.h"
#include "embedding/checkpoint/layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TOOL "precision ckpt"

static const char usage[] =
        "usage: recps precision ckpt [OPTION]... A B\n"
        "\n"
        "The cosine of every variable of two checkpoints, the least first: a "
        "dense\n"
        "variable or a table's rows as one vector, rows aligned by their "
        "keys. Keys\n"
        "of one side alone are counted. The first variable below --cos is the "
        "work of\n"
        "the operator that is named. A, of the run that went wrong, and B, of "
        "one that\n"
        "did not, are ckpt-STEP folders of one step, full or delta, of any "
        "number of\n"
        "servers; or checkpoint_dirs: their newest step, or with --first the "
        "first\n"
        "step of both at which something is below. Exit code 0: no variable "
        "is, and\n"
        "no row of one; 1: something is, or is of another size; 65: a file is "
        "damaged\n"
        "or missing, which is named, and what can be read is compared.\n";

enum {
    FLAG_COS,
    FLAG_SLOTS,
    FLAG_FIRST,
    FLAG_TABLE,
    FLAG_OUTPUT,
    FLAG_HTML,
    FLAG_MEMORY
};

static struct rps_tool_flag flags[] = {
        [FLAG_COS] = {.name = "cos",
                .argument = "COSINE",
                .help = "a variable below this has gone astray (0.98)"},
        [FLAG_SLOTS] = {.name = "slots", .help = "the optimizers' slots, too"},
        [FLAG_FIRST] = {.name = "first",
                .help = "A and B are checkpoint_dirs: go through the steps "
                        "that both have, and stop at the first at which a "
                        "variable or a row is below"},
        [FLAG_TABLE] = {.name = "table",
                .argument = "TABLE",
                .help = "this one only"},
        [FLAG_OUTPUT] = {.name = "output",
                .is_output = true,
                .argument = "FILE",
                .letter = "o",
                .help = "write the variables as CSV"},
        [FLAG_HTML] = {.name = "html",
                .is_output = true,
                .argument = "FILE",
                .help = "write a page with a chart"},
        [FLAG_MEMORY] = RPS_MEMORY_FLAG,
        {.name = NULL},
};

static void
show_progress(void *context, uint64_t done, uint64_t total)
{
    struct rps_ckpt_asked *asked = context;

    rps_checkpoint_progress_show(&asked->progress, done, total);
}

/* What was compared last is compared no longer. */
static void
forget(struct rps_ckpt_asked *asked)
{
    for (int side = 0; side < 2; side++) {
        free(asked->folders[side]);
        asked->folders[side] = NULL;
    }
    rps_variables_finish(&asked->variables);
}

static int
open_side(struct rps_ckpt_asked *asked, int side, const char *path,
        struct rps_ckpt_chain *chain)
{
    int code = rps_checkpoint_find(TOOL, path, &asked->folders[side]);

    if (code == RPS_TOOL_OK) {
        code = rps_checkpoint_open(TOOL, asked->folders[side], chain);
    }
    if (code == RPS_TOOL_OK) {
        asked->steps[side] = rps_ckpt_chain_last(chain)->manifest.step;
    }
    return code;
}

/* On stderr; of a table's slots there is nothing else to say. */
static void
name_unread(struct rps_ckpt_asked *asked)
{
    const struct rps_variables *variables = &asked->variables;

    for (size_t i = 0; i < variables->count; i++) {
        const struct rps_variable *variable = &variables->list[i];

        if (variable->unread && variable->slot == NULL) {
            rps_tool_fail(RPS_TOOL_CORRUPT, TOOL, "%s", variable->problem);
        }
    }
    asked->damaged = asked->damaged || variables->unread > 0;
}

/* Compare what the two paths mean. An exit code. */
static int
compare(struct rps_ckpt_asked *asked, const char *const paths[2])
{
    struct rps_ckpt_chain chains[2];
    struct rps_error error = {.text = ""};
    rps_status status = RPS_OK;
    int code = RPS_TOOL_OK;

    memset(chains, 0, sizeof(chains));
    forget(asked);
    /* both, so that what is wrong with each is told */
    for (int side = 0; side < 2; side++) {
        const int opened = open_side(asked, side, paths[side], &chains[side]);

        code = code == RPS_TOOL_OK ? opened : code;
    }
    if (code == RPS_TOOL_OK) {
        rps_checkpoint_progress_begin(&asked->progress);
        status = rps_variables_compare(&asked->variables, &chains[0],
                &chains[1], &asked->options, &error);
        rps_checkpoint_progress_end(&asked->progress);
        asked->compared++;
        name_unread(asked);
    }
    if (status != RPS_OK) {
        code = status == RPS_E_NOT_FOUND && asked->options.table != NULL
                       ? rps_tool_fail_status(TOOL, status, "%s", error.text)
                       : rps_checkpoint_fail(TOOL, status, &error);
    }
    for (int side = 0; side < 2; side++) {
        rps_ckpt_chain_close(&chains[side]);
    }
    return code;
}

/* --- steps of both ---------------------------------------------------------
 */

struct surveys {
    struct rps_checkpoint_survey sides[2];
};

/* Not one that the job went back below: another of its step may have come. */
static bool
has_step(const struct rps_checkpoint_survey *survey, uint64_t step)
{
    for (size_t i = 0; i < survey->count; i++) {
        if (survey->complete[i].step == step) {
            return !survey->complete[i].abandoned;
        }
    }
    return false;
}

static bool
have_step(const struct surveys *surveys, uint64_t step)
{
    return has_step(&surveys->sides[0], step) &&
           has_step(&surveys->sides[1], step);
}

/* The newest step below `below` of both; false: there is none. */
static bool
find_before(const struct surveys *surveys, uint64_t below, uint64_t *step_out)
{
    const struct rps_checkpoint_survey *a = &surveys->sides[0];

    for (size_t i = a->count; i > 0; i--) {
        if (a->complete[i - 1].step < below &&
                have_step(surveys, a->complete[i - 1].step)) {
            *step_out = a->complete[i - 1].step;
            return true;
        }
    }
    return false;
}

static void
finish_surveys(struct surveys *surveys)
{
    for (int side = 0; side < 2; side++) {
        rps_checkpoint_survey_finish(&surveys->sides[side]);
    }
}

/* What lies beside the two that were compared: only a help for what to do
 * next, so that a folder that cannot be read is none. */
static void
look_before(struct rps_ckpt_asked *asked)
{
    struct surveys surveys;
    bool good = asked->steps[0] == asked->steps[1];

    memset(&surveys, 0, sizeof(surveys));
    for (int side = 0; side < 2 && good; side++) {
        char *slash = strrchr(asked->folders[side], '/');
        const size_t length =
                slash != NULL ? (size_t)(slash - asked->folders[side]) : 0;
        char *dir = slash != NULL ? strndup(asked->folders[side], length)
                                  : strdup(".");

        good = dir != NULL &&
               rps_checkpoint_survey(dir[0] != '\0' ? dir : "/", 0, 0,
                       &surveys.sides[side], NULL) == RPS_OK;
        free(dir);
    }
    if (good) {
        asked->has_before =
                find_before(&surveys, asked->steps[0], &asked->before);
    }
    finish_surveys(&surveys);
}

static int
compare_step(struct rps_ckpt_asked *asked, uint64_t step)
{
    char *paths[2] = {rps_checkpoint_path(asked->paths[0], step),
            rps_checkpoint_path(asked->paths[1], step)};
    int code = paths[0] == NULL || paths[1] == NULL
                       ? rps_tool_fail(RPS_TOOL_FAILED, TOOL, "no memory")
                       : compare(asked, (const char *const *)paths);

    free(paths[0]);
    free(paths[1]);
    return code;
}

/* What does not count of the steps there are is named and left out. */
static void
name_unusable(struct rps_ckpt_asked *asked, const struct surveys *surveys)
{
    for (int side = 0; side < 2; side++) {
        const struct rps_checkpoint_survey *survey = &surveys->sides[side];

        for (size_t i = 0; i < survey->unusable_count; i++) {
            if (!survey->unusable[i].abandoned) {
                rps_tool_fail(
                        RPS_TOOL_CORRUPT, TOOL, "%s", survey->unusable[i].why);
                asked->damaged = true;
            }
        }
    }
}

/* --first: step by step, until something is below. */
static int
go_through(struct rps_ckpt_asked *asked, const struct surveys *surveys)
{
    const struct rps_checkpoint_survey *a = &surveys->sides[0];
    int code = RPS_TOOL_OK;

    for (size_t i = 0; i < a->count && code == RPS_TOOL_OK &&
                       !rps_ckpt_shows(&asked->variables);
            i++) {
        if (have_step(surveys, a->complete[i].step)) {
            code = compare_step(asked, a->complete[i].step);
        }
    }
    if (code == RPS_TOOL_OK && asked->compared == 0) {
        if (asked->damaged) {
            return RPS_TOOL_CORRUPT;
        }
        return rps_tool_fail(RPS_TOOL_NOINPUT, TOOL,
                "%s and %s have no complete step in common", asked->paths[0],
                asked->paths[1]);
    }
    return code;
}

static int
compare_all(struct rps_ckpt_asked *asked)
{
    struct surveys surveys;
    struct rps_error error = {.text = ""};
    rps_status status = RPS_OK;
    int code;

    memset(&surveys, 0, sizeof(surveys));
    for (int side = 0; side < 2 && status == RPS_OK; side++) {
        status = rps_checkpoint_survey(
                asked->paths[side], 0, 0, &surveys.sides[side], &error);
    }
    if (status == RPS_OK) {
        name_unusable(asked, &surveys);
        code = go_through(asked, &surveys);
    } else {
        code = rps_tool_fail_input(TOOL, status, &error);
    }
    finish_surveys(&surveys);
    return code;
}

/* --- the command -----------------------------------------------------------
 */

static int
read_arguments(struct rps_ckpt_asked *asked, const struct rps_tool_call *call)
{
    const char *cosine = call->flags[FLAG_COS].value;

    if (call->operand_count != 2) {
        return rps_tool_fail(
                RPS_TOOL_USAGE, TOOL, "give two checkpoints' folders");
    }
    asked->paths[0] = call->operands[0];
    asked->paths[1] = call->operands[1];
    asked->first = call->flags[FLAG_FIRST].value != NULL;
    asked->csv = call->flags[FLAG_OUTPUT].value;
    asked->html = call->flags[FLAG_HTML].value;
    asked->json = call->options->json;
    asked->options =
            (struct rps_variables_options){.threshold = RPS_CKPT_COS_DEFAULT,
                    .slots = call->flags[FLAG_SLOTS].value != NULL,
                    .table = call->flags[FLAG_TABLE].value,
                    .progress = show_progress,
                    .context = asked};
    if (cosine != NULL &&
            (!rps_parse_double(cosine, &asked->options.threshold) ||
                    asked->options.threshold < -1 ||
                    asked->options.threshold > 1)) {
        return rps_tool_fail(
                RPS_TOOL_USAGE, TOOL, "--cos %s: must be from -1 to 1", cosine);
    }
    return rps_checkpoint_memory(
            TOOL, &call->flags[FLAG_MEMORY], &asked->options.memory_bytes);
}

static int
run(const struct rps_tool_call *call)
{
    struct rps_ckpt_asked asked = {.json = false};
    int code = read_arguments(&asked, call);

    if (code == RPS_TOOL_OK) {
        code = asked.first ? compare_all(&asked) : compare(&asked, asked.paths);
    }
    if (code == RPS_TOOL_OK) {
        look_before(&asked);
        code = rps_ckpt_answer(&asked);
    }
    forget(&asked);
    return code;
}

const struct rps_tool rps_tool_precision_ckpt = {
        .name = TOOL,
        .usage = usage,
        .summary = "the cosine of each variable of two checkpoints",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 2,
        .takes_folder = true,
        .run = run,
};
