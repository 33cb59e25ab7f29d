/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"
#include "base/text.h"
#include "client/cli/key.h"
#include "client/cli/precision_ckpt.h"
#include "client/cli/table_print.h"
#include "client/precision/variable_operator.h"
#include "client/precision/variables_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define TOOL "precision ckpt"

/* --- words -----------------------------------------------------------------
 */

/* Where in the variable it is worst. */
static void
add_worst(struct rps_text *text, const struct rps_variable *variable)
{
    char cosine[RPS_COSINE_TEXT_BYTES];

    if (variable->changed > 0 && variable->dense) {
        rps_text_add(text,
                "its largest change is %.4g, in element %" PRIu64 "\n",
                variable->largest,
                variable->largest_key * RPS_DENSE_ROW_FLOATS +
                        variable->largest_column);
    } else if (variable->changed > 0) {
        rps_text_add(text,
                "%" PRIu64 " of its %" PRIu64
                " rows are below, the worst is key %" PRIu64
                ": cosine %s; its largest change is %.4g, in key %" PRIu64
                ", column %" PRIu32 "\n",
                variable->below, variable->both, variable->worst_key,
                rps_cosine_text(variable->worst_cosine, cosine),
                variable->largest, variable->largest_key,
                variable->largest_column);
    }
}

/* A few rows of a large table do not show in its cosine. */
static void
add_rows_below(struct rps_text *text, const struct rps_variables *variables)
{
    for (size_t i = variables->below; i < variables->count; i++) {
        const struct rps_variable *variable = &variables->list[i];
        char cosine[RPS_COSINE_TEXT_BYTES];

        if (variable->below > 0) {
            rps_text_add(text,
                    "%s as a whole is not, but %" PRIu64 " of its %" PRIu64
                    " rows are: the worst is key %" PRIu64 ", cosine %s\n",
                    variable->name, variable->below, variable->both,
                    variable->worst_key,
                    rps_cosine_text(variable->worst_cosine, cosine));
        }
    }
}

/* Who made it so. */
static void
add_operator(struct rps_text *text, const struct rps_variable *variable)
{
    const struct rps_variable_operator who =
            rps_variable_operator_of(variable->table, variable->dense);

    if (!variable->dense) {
        rps_text_add(text,
                "it is a table: the precision issue is one of its lookup, its "
                "gradient (%s) or its push, whose %s step the servers do\n",
                who.gradient, variable->optimizer);
    } else if (who.known) {
        rps_text_add(text,
                "the operator that outputs it: %s makes its gradient, its "
                "push the %s step\n",
                who.gradient, variable->optimizer);
    } else {
        rps_text_add(text,
                "the operator that outputs it: its push, which does the %s "
                "step, and what made its gradient\n",
                variable->optimizer);
    }
    if (who.part[0] != '\0') {
        rps_text_add(text,
                "that is a fused operator: with --fusion off it is %s\n",
                who.part);
    }
}

/* Steps count from 1 and those of a dump from 0, so that step s has s - 1. */
static void
add_next(struct rps_text *text, const struct rps_ckpt_asked *asked)
{
    const uint64_t last = asked->steps[0];
    const uint64_t first = asked->has_before ? asked->before : 0;

    if (asked->steps[0] != asked->steps[1] || first >= last) {
        return;
    }
    rps_text_add(text,
            "next: let both runs dump steps %" PRIu64 " to %" PRIu64
            ", and compare these\n  recps-train …",
            first + 1, last);
    if (asked->has_before) {
        rps_text_add(text, " --restore=%" PRIu64, first);
    }
    rps_text_add(text,
            " --steps %" PRIu64 " --dump --dump-step '%" PRIu64 "-%" PRIu64
            "' --dump-path DUMP\n  recps precision compare DUMP_A DUMP_B\n"
            "… are the run's own options, but without --save-steps (or with "
            "--dump-and-save),\nand %s\n",
            last, first, last - 1,
            asked->has_before ? "with --checkpoint-dir of a copy, since a run "
                                "saves at its end"
                              : "without --checkpoint-dir");
}

/* Training changes every variable: what differs says nothing then. */
static void
add_steps(struct rps_text *text, const struct rps_ckpt_asked *asked)
{
    if (asked->steps[0] != asked->steps[1]) {
        rps_text_add(text,
                "A is of step %" PRIu64 ", B of step %" PRIu64
                ": they differ by the steps between; compare checkpoints of "
                "one step\n",
                asked->steps[0], asked->steps[1]);
    }
}

/* Whose work it is: the first variable below, else the first with rows that
 * are. NULL: there is none. */
static const struct rps_variable *
culprit_of(const struct rps_variables *variables)
{
    for (size_t i = 0; i < variables->count; i++) {
        if (i < variables->below || variables->list[i].below > 0) {
            return &variables->list[i];
        }
    }
    return NULL;
}

static void
add_below(struct rps_text *text, const struct rps_ckpt_asked *asked)
{
    const struct rps_variables *variables = &asked->variables;
    const struct rps_variable *first = &variables->list[0];
    char cosine[RPS_COSINE_TEXT_BYTES];

    if (asked->first && culprit_of(variables) != NULL) {
        rps_text_add(text,
                "step %" PRIu64 " is the first that shows something\n",
                asked->steps[0]);
    }
    if (variables->below > 0) {
        rps_text_add(text,
                "%zu of %zu variables below %.12g; the first is %s: cosine "
                "%s\n",
                variables->below, variables->count, variables->threshold,
                first->name, rps_cosine_text(first->cosine, cosine));
        add_worst(text, first);
    } else {
        rps_text_add(text, "no variable%s is below %.12g%s%s\n",
                variables->problems > 0 ? " that can be compared" : "",
                variables->threshold,
                asked->first && culprit_of(variables) == NULL
                        ? " at any step that both have"
                        : "",
                variables->problems < variables->count && first->cosine < 1
                        ? "; a higher --cos shows more"
                        : "");
    }
    add_rows_below(text, variables);
}

static void
add_verdict(struct rps_text *text, const struct rps_ckpt_asked *asked)
{
    const struct rps_variables *variables = &asked->variables;
    const struct rps_variable *culprit = culprit_of(variables);

    if (variables->count == 0) {
        rps_text_add(text, "neither has a table\n");
        return;
    }
    add_steps(text, asked);
    if (variables->problems > 0) {
        rps_text_add(text, "%zu of %zu variables cannot be compared\n",
                variables->problems, variables->count);
    }
    if (variables->unread > 0) {
        rps_text_add(text, "of %zu of them a file cannot be read\n",
                variables->unread);
    }
    if (variables->resized > 0) {
        rps_text_add(text,
                "the layers of A and B are of other sizes: these are two "
                "models, and what is below may come from that\n");
    }
    add_below(text, asked);
    if (culprit != NULL) {
        add_operator(text, culprit);
        add_next(text, asked);
    }
}

/* --- for people ------------------------------------------------------------
 */

static void
print_variable(
        struct rps_table_print *print, const struct rps_variable *variable)
{
    char cosine[RPS_COSINE_TEXT_BYTES];

    rps_table_print_cell(print, "%s", variable->name);
    if (variable->problem == NULL) {
        rps_table_print_cell(
                print, "%s", rps_cosine_text(variable->cosine, cosine));
    } else {
        rps_table_print_cell(print, "-");
    }
    rps_table_print_cell(print, "%" PRIu64, variable->both);
    rps_table_print_cell(print, "%" PRIu64, variable->only_a);
    rps_table_print_cell(print, "%" PRIu64, variable->only_b);
    rps_table_print_cell(print, "%" PRIu64, variable->changed);
    if (variable->changed > 0) {
        rps_table_print_cell(print, "%" PRIu64, variable->worst_key);
        rps_table_print_cell(
                print, "%s", rps_cosine_text(variable->worst_cosine, cosine));
        rps_table_print_cell(print, "%.4g", variable->largest);
    } else {
        for (int i = 0; i < 3; i++) {
            rps_table_print_cell(print, "-");
        }
    }
}

static int
print_text(const struct rps_ckpt_asked *asked, const char *verdict)
{
    const struct rps_variables *variables = &asked->variables;
    struct rps_table_print print = {.columns = 9,
            .titles = {"variable", "cosine", "rows", "only A", "only B",
                    "changed", "worst row", "its cosine", "largest change"},
            .right = {false, true, true, true, true, true, true, true, true}};

    printf("A: %s (step %" PRIu64 ")\nB: %s (step %" PRIu64 ")\n\n",
            asked->folders[0], asked->steps[0], asked->folders[1],
            asked->steps[1]);
    for (size_t i = 0; i < variables->count; i++) {
        print_variable(&print, &variables->list[i]);
    }
    if (!rps_table_print_end(&print)) {
        return rps_tool_fail(RPS_TOOL_FAILED, TOOL, "no memory");
    }
    for (size_t i = variables->count - variables->problems;
            i < variables->count; i++) {
        printf("%s: %s\n", variables->list[i].name, variables->list[i].problem);
    }
    printf("\n%s", verdict);
    return RPS_TOOL_OK;
}

/* --- for programs ----------------------------------------------------------
 */

static void
add_changes(json_t *object, const struct rps_variable *variable)
{
    const bool changed = variable->changed > 0;

    json_object_set_new(object, "worst",
            changed ? json_pack("{s:o, s:o}", "key",
                              rps_key_json(variable->worst_key), "cosine",
                              rps_json_real(variable->worst_cosine))
                    : json_null());
    json_object_set_new(object, "largest",
            changed ? json_pack("{s:o, s:o, s:I}", "change",
                              rps_json_real(variable->largest), "key",
                              rps_key_json(variable->largest_key), "column",
                              (json_int_t)variable->largest_column)
                    : json_null());
}

static json_t *
variable_json(const struct rps_variable *variable, double threshold)
{
    const bool good = variable->problem == NULL;
    json_t *object = json_pack(
            "{s:s, s:s, s:o, s:b, s:o, s:b, s:I, s:I, s:I, s:I, s:I, s:I, "
            "s:I, s:I, s:I, s:o}",
            "name", variable->name, "table", variable->table, "slot",
            variable->slot != NULL ? json_string(variable->slot) : json_null(),
            "dense", (int)variable->dense, "cosine",
            good ? rps_json_real(variable->cosine) : json_null(), "below",
            (int)rps_variable_is_below(variable, threshold), "rows_a",
            (json_int_t)variable->rows_a, "rows_b",
            (json_int_t)variable->rows_b, "both", (json_int_t)variable->both,
            "only_a", (json_int_t)variable->only_a, "only_b",
            (json_int_t)variable->only_b, "changed",
            (json_int_t)variable->changed, "rows_below",
            (json_int_t)variable->below, "not_finite_a",
            (json_int_t)variable->bad_a, "not_finite_b",
            (json_int_t)variable->bad_b, "problem",
            good ? json_null() : json_string(variable->problem));

    if (good) {
        /* of what is nearly 1 nine digits say nothing */
        json_object_set_new(object, "one_minus_cosine",
                rps_json_real(1.0 - variable->cosine));
        json_object_set_new(object, "norm_a", rps_json_real(variable->norm_a));
        json_object_set_new(object, "norm_b", rps_json_real(variable->norm_b));
    }
    add_changes(object, variable);
    return object;
}

/* Whose work it is; null: there is none. */
static json_t *
first_json(const struct rps_variables *variables)
{
    const struct rps_variable *first = culprit_of(variables);
    struct rps_variable_operator who;

    if (first == NULL) {
        return json_null();
    }
    who = rps_variable_operator_of(first->table, first->dense);
    return json_pack("{s:s, s:s, s:s, s:o, s:o}", "variable", first->name,
            "kind", first->dense ? "dense" : "table", "optimizer",
            first->optimizer, "operator",
            who.known ? json_string(who.gradient) : json_null(), "unfused",
            who.part[0] != '\0' ? json_string(who.part) : json_null());
}

static json_t *
to_json(const struct rps_ckpt_asked *asked, const char *verdict)
{
    const struct rps_variables *variables = &asked->variables;
    json_t *list = json_array();

    for (size_t i = 0; i < variables->count; i++) {
        json_array_append_new(
                list, variable_json(&variables->list[i], variables->threshold));
    }
    return json_pack(
            "{s:s, s:s, s:[I, I], s:o, s:I, s:f, s:I, s:I, s:I, s:o, s:o, s:s}",
            "a", asked->folders[0], "b", asked->folders[1], "steps",
            (json_int_t)asked->steps[0], (json_int_t)asked->steps[1],
            "step_before",
            asked->has_before ? json_integer((json_int_t)asked->before)
                              : json_null(),
            "compared", (json_int_t)asked->compared, "threshold",
            variables->threshold, "below", (json_int_t)variables->below,
            "problems", (json_int_t)variables->problems, "unread",
            (json_int_t)variables->unread, "first", first_json(variables),
            "variables", list, "verdict", verdict);
}

/* --- all of it -------------------------------------------------------------
 */

static int
write_files(const struct rps_ckpt_asked *asked, const char *verdict)
{
    struct rps_error error = {.text = ""};
    rps_status status = RPS_OK;
    int code = RPS_TOOL_OK;

    if (asked->csv != NULL) {
        status = rps_variables_write_csv(&asked->variables, asked->csv, &error);
        if (status != RPS_OK) {
            code = rps_tool_fail_output(TOOL, "--output", status, &error);
        }
    }
    if (asked->html != NULL) {
        char *title = rps_format("recps precision ckpt: %s and %s",
                asked->folders[0], asked->folders[1]);

        status = title == NULL ? rps_fail(&error, RPS_E_NOMEM, "no memory")
                               : rps_variables_write_html(&asked->variables,
                                         title, verdict, asked->html, &error);
        free(title);
        if (status != RPS_OK) {
            code = rps_tool_fail_output(TOOL, "--html", status, &error);
        }
    }
    return code;
}

int
rps_ckpt_answer(const struct rps_ckpt_asked *asked)
{
    const struct rps_variables *variables = &asked->variables;
    struct rps_text verdict = {.bytes = NULL};
    int code;

    add_verdict(&verdict, asked);
    code = verdict.failed ? rps_tool_fail(RPS_TOOL_FAILED, TOOL, "no memory")
                          : RPS_TOOL_OK;
    if (code == RPS_TOOL_OK) {
        code = asked->json ? rps_tool_print_json(to_json(asked, verdict.bytes))
                           : print_text(asked, verdict.bytes);
    }
    /* the verdict is out, whatever becomes of the files */
    if (code == RPS_TOOL_OK && rps_tool_flush()) {
        code = write_files(asked, verdict.bytes);
    }
    rps_text_finish(&verdict);
    if (code == RPS_TOOL_OK && asked->damaged) {
        return RPS_TOOL_CORRUPT;
    }
    return code == RPS_TOOL_OK && (culprit_of(variables) != NULL ||
                                          variables->problems > 0)
                   ? RPS_TOOL_DIFFERS
                   : code;
}
