/* SPDX-License-Identifier: Apache-2.0 */
/* recps precision compare LEFT RIGHT. */
#include "client/cli/precision_compare.h"

#include "base/text.h"
#include "client/cli/precision.h"
#include "client/cli/table_print.h"
#include "client/precision/clean.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOOL          "precision compare"
#define LIMIT_DEFAULT 20u
#define LIMIT_MAX     1000000u

static const char usage[] =
        "usage: recps precision compare LEFT RIGHT [--output FILE]\n"
        "                               [--html FILE] [--json] [OPTION]...\n"
        "\n"
        "Compare two dumps, of recps-train --dump or of another framework,\n"
        "operator by operator in order of execution, and say where they part:\n"
        "in an operator, in a fused one, in a table's lookup, or in what was\n"
        "read. LEFT and RIGHT are a dump's folder or any folder in it; of\n"
        "several times the newest. Every step that both have is compared.\n";

enum {
    FLAG_OUTPUT,
    FLAG_HTML,
    FLAG_THRESHOLD,
    FLAG_EXACT,
    FLAG_MAP,
    FLAG_OPERATOR,
    FLAG_LIMIT
};

static struct rps_tool_flag flags[] = {
        [FLAG_OUTPUT] = {.name = "output",
                .is_output = true,
                .letter = "o",
                .argument = "FILE",
                .help = "write every operator's figures as CSV"},
        [FLAG_HTML] = {.name = "html",
                .is_output = true,
                .argument = "FILE",
                .help = "write one page with a chart of cosine over "
                        "operators"},
        [FLAG_THRESHOLD] = {.name = "threshold",
                .argument = "X",
                .help = "a cosine below it differs (0.98)"},
        [FLAG_EXACT] = {.name = "exact",
                .help = "what has not the same bytes differs"},
        [FLAG_MAP] = {.name = "map",
                .argument = "FILE",
                .help = "which operators belong together, as JSON "
                        "(docs/PRECISION.md)"},
        [FLAG_OPERATOR] = {.name = "operator",
                .argument = "NAME",
                .help = "show this operator's tensors"},
        [FLAG_LIMIT] = {.name = "limit",
                .letter = "l",
                .argument = "N",
                .help = "list so many operators at most (20)"},
        {.name = NULL},
};

/* --- also for JSON ------------------------------------------------------- */

static bool
is_named(const struct rps_dumped_operator *op, const char *name,
        const char *clean)
{
    return op != NULL &&
           (strcmp(op->name, name) == 0 || strcmp(op->clean, clean) == 0);
}

bool
rps_compared_is(const struct rps_compared *compared, const char *name)
{
    char clean[256];

    if (name == NULL) {
        return true;
    }
    (void)snprintf(clean, sizeof(clean), "%s", name);
    rps_dump_clean(clean);
    return is_named(compared->left, name, clean) ||
           is_named(compared->right, name, clean) ||
           strcmp(compared->name, name) == 0;
}

/* at: the left folder's problems, the right one's, then every tensor. */
const char *
rps_compare_next_problem(const struct rps_compare_step *step, uint64_t *at)
{
    const uint64_t folders =
            (uint64_t)step->left->problem_count + step->right->problem_count;
    uint64_t skipped = folders;

    if (*at < step->left->problem_count) {
        return step->left->problems[(*at)++];
    }
    if (*at < folders) {
        return step->right->problems[(*at)++ - step->left->problem_count];
    }
    for (uint32_t i = 0; i < step->comparison->operator_count; i++) {
        const struct rps_compared *compared = &step->comparison->operators[i];

        if (*at >= skipped + compared->tensor_count) {
            skipped += compared->tensor_count;
            continue;
        }
        for (; *at < skipped + compared->tensor_count; (*at)++) {
            const struct rps_compared_tensor *tensor =
                    &compared->tensors[*at - skipped];

            if (tensor->damaged) {
                (*at)++;
                return tensor->problem != NULL ? tensor->problem : "no memory";
            }
        }
        skipped += compared->tensor_count;
    }
    return NULL;
}

/* --- for people ---------------------------------------------------------- */

void
rps_compare_run_say_problems(
        const struct rps_compare_run *run, const char *tool)
{
    for (uint32_t i = 0; i < run->count; i++) {
        const char *problem;
        uint64_t at = 0;

        while ((problem = rps_compare_next_problem(&run->steps[i], &at)) !=
                NULL) {
            rps_tool_fail(0, tool, "%s", problem);
        }
    }
    for (uint32_t i = 0; !run->single && i < run->left_alone_count; i++) {
        rps_tool_fail(0, tool, "step %" PRIu64 " is on the left alone",
                run->left_alone[i]);
    }
    for (uint32_t i = 0; !run->single && i < run->right_alone_count; i++) {
        rps_tool_fail(0, tool, "step %" PRIu64 " is on the right alone",
                run->right_alone[i]);
    }
}

static void
add_cosine(struct rps_table_print *print, double cosine)
{
    if (isnan(cosine)) {
        rps_table_print_cell(print, "nan");
    } else {
        rps_table_print_cell(print, "%.9f", cosine);
    }
}

/* Those that do not agree. */
static bool
print_operators(const struct rps_compare_run *run, uint64_t limit)
{
    struct rps_table_print print = {.columns = 6,
            .titles = {"step", "left", "right", "type", "input", "output"},
            .right = {true, false, false, false, true, true}};
    uint64_t all = 0;

    for (uint32_t s = 0; s < run->count; s++) {
        const struct rps_comparison *comparison = run->steps[s].comparison;

        for (uint32_t i = 0; i < comparison->operator_count; i++) {
            const struct rps_compared *compared = &comparison->operators[i];

            if ((compared->inputs_agree && compared->outputs_agree) ||
                    all++ >= limit) {
                continue;
            }
            rps_table_print_cell(&print, "%" PRIu64, run->steps[s].step);
            rps_table_print_cell(&print, "%s", compared->left_names);
            rps_table_print_cell(&print, "%s", compared->right_names);
            rps_table_print_cell(&print, "%s", compared->type);
            add_cosine(&print, compared->input_cosine);
            add_cosine(&print, compared->output_cosine);
        }
    }
    if (all == 0) {
        return true;
    }
    printf("Operators that do not agree, and their least cosines:\n");
    if (!rps_table_print_end(&print)) {
        return false;
    }
    if (all > limit) {
        printf("%" PRIu64 " more: --limit %" PRIu64 "\n", all - limit, all);
    }
    printf("\n");
    return true;
}

static void
add_tensor(struct rps_table_print *print, uint64_t step, const char *type,
        const struct rps_compared_tensor *tensor)
{
    const struct rps_dumped_tensor *one =
            tensor->left != NULL ? tensor->left : tensor->right;

    rps_table_print_cell(print, "%" PRIu64, step);
    rps_table_print_cell(print, "%s", type);
    rps_table_print_cell(print, "%s %" PRIu32 "%s%s",
            tensor->is_output ? "output" : "input", tensor->index,
            one->label != NULL ? " " : "",
            one->label != NULL ? one->label : "");
    if (!tensor->readable) {
        rps_table_print_cell(print, "not compared");
        for (int i = 0; i < 6; i++) {
            rps_table_print_cell(print, "-");
        }
        return;
    }
    add_cosine(print, tensor->cosine);
    rps_table_print_cell(print, "%.6g", tensor->length_ratio);
    rps_table_print_cell(print, "%.6g", tensor->max_absolute);
    rps_table_print_cell(print, "%.6g", tensor->max_relative);
    rps_table_print_cell(print, "%.6g", tensor->mean_absolute);
    rps_table_print_cell(
            print, "%" PRIu64 "+%" PRIu64, tensor->left_nan, tensor->left_inf);
    rps_table_print_cell(print, "%" PRIu64 "+%" PRIu64, tensor->right_nan,
            tensor->right_inf);
}

static bool
has_operator(const struct rps_compare_run *run, const char *name)
{
    for (uint32_t s = 0; s < run->count; s++) {
        const struct rps_comparison *comparison = run->steps[s].comparison;

        for (uint32_t i = 0; i < comparison->operator_count; i++) {
            if (rps_compared_is(&comparison->operators[i], name)) {
                return true;
            }
        }
    }
    return false;
}

/* One operator's tensors. */
static bool
print_one(const struct rps_compare_run *run, const char *name)
{
    struct rps_table_print print = {.columns = 10,
            .titles = {"step", "type", name, "cosine", "length", "max absolute",
                    "max relative", "mean", "NaN+Inf left", "right"},
            .right = {true, false, false, true, true, true, true, true, true,
                    true}};

    for (uint32_t s = 0; s < run->count; s++) {
        const struct rps_comparison *comparison = run->steps[s].comparison;

        for (uint32_t i = 0; i < comparison->operator_count; i++) {
            const struct rps_compared *compared = &comparison->operators[i];

            if (!rps_compared_is(compared, name)) {
                continue;
            }
            for (uint32_t k = 0; k < compared->tensor_count; k++) {
                add_tensor(&print, run->steps[s].step, compared->type,
                        &compared->tensors[k]);
            }
        }
    }
    if (!rps_table_print_end(&print)) {
        return false;
    }
    printf("\n");
    return true;
}

/* Where one side is a single step: that the other has more. */
static void
print_rest(const struct rps_compare_run *run)
{
    const bool left = run->left_alone_count > 0;
    const uint32_t count =
            left ? run->left_alone_count : run->right_alone_count;
    const uint64_t *steps = left ? run->left_alone : run->right_alone;

    if (!run->single || count == 0) {
        return;
    }
    printf(count == 1 ? "%" PRIu32 " step of the %s is not compared ("
                      : "%" PRIu32 " steps of the %s are not compared (",
            count, left ? "left" : "right");
    printf(count == 1 ? "%" PRIu64 : "%" PRIu64 " to ", steps[0]);
    if (count > 1) {
        printf("%" PRIu64, steps[count - 1]);
    }
    printf("): the %s has step %" PRIu64 " alone.\n", left ? "right" : "left",
            run->steps[0].step);
}

int
rps_compare_run_print(
        const struct rps_compare_run *run, const char *only, uint64_t limit)
{
    bool good;

    printf("left:  %s\nright: %s\n\n", run->steps[0].left->folder,
            run->steps[0].right->folder);
    good = only != NULL ? print_one(run, only) : print_operators(run, limit);
    if (!good) {
        return rps_tool_fail(RPS_TOOL_FAILED, TOOL, "no memory");
    }
    for (uint32_t i = 0; i < run->count; i++) {
        if (run->first == NULL || run->first == &run->steps[i]) {
            printf("%s", run->steps[i].comparison->words);
        }
    }
    print_rest(run);
    return RPS_TOOL_OK;
}

/* --- the command --------------------------------------------------------- */

bool
rps_compare_run_is_same(const struct rps_compare_run *run)
{
    bool same = run->first == NULL;

    for (uint32_t i = 0; i < run->count; i++) {
        const struct rps_comparison *comparison = run->steps[i].comparison;

        /* a mapping names what is compared; else both should have all */
        same = same &&
               (comparison->mapped ||
                       comparison->only_left + comparison->only_right == 0);
    }
    return same;
}

int
rps_compare_run_code(const struct rps_compare_run *run)
{
    if (run->problems > 0 ||
            (run->first != NULL && run->first->comparison->verdict ==
                                           RPS_VERDICT_INCOMPARABLE)) {
        return RPS_TOOL_CORRUPT;
    }
    return rps_compare_run_is_same(run) ? RPS_TOOL_OK : RPS_TOOL_DIFFERS;
}

static int
write_files(const struct rps_compare_run *run, const struct rps_tool_call *call)
{
    const char *csv = call->flags[FLAG_OUTPUT].value;
    const char *html = call->flags[FLAG_HTML].value;
    struct rps_error error = {.text = ""};
    rps_status status = RPS_OK;
    int code = RPS_TOOL_OK;

    if (csv != NULL) {
        status = rps_compare_run_write_csv(run, csv, &error);
        if (status != RPS_OK) {
            code = rps_tool_fail_output(TOOL, "--output", status, &error);
        }
    }
    if (html != NULL) {
        char *title =
                rps_format("%s and %s", call->operands[0], call->operands[1]);

        status = rps_compare_run_write_html(
                run, title != NULL ? title : "two dumps", html, &error);
        free(title);
        if (status != RPS_OK) {
            code = rps_tool_fail_output(TOOL, "--html", status, &error);
        }
    }
    return code;
}

static int
answer(const struct rps_compare_run *run, const struct rps_tool_call *call,
        uint64_t limit)
{
    const char *only = call->flags[FLAG_OPERATOR].value;
    const bool same = rps_compare_run_is_same(run);
    int code, written;

    rps_compare_run_say_problems(run, TOOL);
    if (only != NULL && !has_operator(run, only)) {
        return rps_tool_fail(
                RPS_TOOL_NOINPUT, TOOL, "no operator is called %s", only);
    }
    code = call->options->json
                   ? rps_tool_print_json(rps_compare_run_json(run, only, same))
                   : rps_compare_run_print(run, only, limit);
    /* the verdict is out, whatever becomes of the files */
    (void)rps_tool_flush();
    written = write_files(run, call);
    code = code == RPS_TOOL_OK ? written : code;
    return code == RPS_TOOL_OK ? rps_compare_run_code(run) : code;
}

static int
read_flags(const struct rps_tool_call *call,
        struct rps_compare_options *options, uint64_t *limit)
{
    const char *threshold = call->flags[FLAG_THRESHOLD].value;
    const char *text = call->flags[FLAG_LIMIT].value;

    *options = (struct rps_compare_options){.threshold = RPS_COMPARE_THRESHOLD,
            .exact = call->flags[FLAG_EXACT].value != NULL,
            .mapping = call->flags[FLAG_MAP].value};
    if (threshold != NULL &&
            (!rps_parse_double(threshold, &options->threshold) ||
                    !(fabs(options->threshold) <= 1.0))) {
        return rps_tool_fail(RPS_TOOL_USAGE, TOOL,
                "--threshold %s: must be from -1 to 1", threshold);
    }
    if (text != NULL && (!rps_parse_u64(text, limit) || *limit > LIMIT_MAX)) {
        return rps_tool_fail(RPS_TOOL_USAGE, TOOL,
                "--limit %s: must be from 0 to %u", text, LIMIT_MAX);
    }
    return call->operand_count == 2
                   ? RPS_TOOL_OK
                   : rps_tool_fail(RPS_TOOL_USAGE, TOOL,
                             "give two dumps' folders: LEFT RIGHT");
}

static int
run(const struct rps_tool_call *call)
{
    struct rps_compare_options options;
    struct rps_compare_run *run = NULL;
    struct rps_error error = {.text = ""};
    uint64_t limit = LIMIT_DEFAULT;
    int code = read_flags(call, &options, &limit);
    rps_status status;

    if (code != RPS_TOOL_OK) {
        return code;
    }
    status = rps_compare_dumps(
            call->operands[0], call->operands[1], &options, &run, &error);
    code = status == RPS_OK ? answer(run, call, limit)
                            : rps_tool_fail_input(TOOL, status, &error);
    rps_compare_run_free(run);
    return code;
}

const struct rps_tool rps_tool_precision_compare = {
        .name = "precision compare",
        .usage = usage,
        .summary = "two dumps, and where they part",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 2,
        .takes_folder = true,
        .run = run,
};
