/* SPDX-License-Identifier: Apache-2.0 */
/* recps precision runs A… -- B…: do two sets of runs end differently? */
#include "base/file.h"
#include "base/text.h"
#include "client/cli/precision.h"
#include "client/cli/table_print.h"
#include "client/precision/csv.h"
#include "client/precision/losses.h"
#include "client/precision/spread.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOOL          "precision runs"
#define ALPHA_DEFAULT 0.05

static const char usage[] =
        "usage: recps precision runs [OPTION]... A.json... -- B.json...\n"
        "\n"
        "Mean and spread of the final metric of two sets of runs, and whether "
        "the\n"
        "sets differ by more than runs of one set do among themselves "
        "(Welch's t\n"
        "test; of one run against several, whether it is one more of them). "
        "The\n"
        "files are JSON logs: of recps-train --json-log, or of another program "
        "with a\n"
        "last line such as {\"event\": \"done\", \"auc\": 0.79}. The metric is "
        "the first\n"
        "that every run has: auc, log_loss, final_loss, or the loss of the "
        "last step\n"
        "(loss). Exit code 0: they do not differ; 1: they do, or that cannot "
        "be said.\n";

enum {
    FLAG_METRIC,
    FLAG_ALPHA,
    FLAG_OUTPUT
};

static struct rps_tool_flag flags[] = {
        [FLAG_METRIC] = {.name = "metric",
                .argument = "NAME",
                .help = "this field of the last line, or loss"},
        [FLAG_ALPHA] = {.name = "alpha",
                .argument = "P",
                .help = "they differ where the odds of chance are less than "
                        "this (0.05)"},
        [FLAG_OUTPUT] = {.name = "output",
                .is_output = true,
                .argument = "FILE",
                .letter = "o",
                .help = "write each run's metric as CSV"},
        {.name = NULL},
};

struct side {
    const char *const *paths; /* [count] */
    size_t count;
    struct rps_losses *runs; /* [count], owned */
    double *values;          /* [count], owned */
    struct rps_spread spread;
};

struct comparing {
    struct side sides[2];
    const char *metric;
    double alpha;
    struct rps_spread_test test;
};

/* --- the metric ------------------------------------------------------------
 */

/* false: this run does not have it, or it is not finite. */
static bool
metric_of(const struct rps_losses *run, const char *metric, double *out)
{
    const json_t *value = json_object_get(run->done, metric);

    if (strcmp(metric, "loss") == 0 && value == NULL) {
        *out = run->count > 0 ? run->list[run->count - 1].value : (double)NAN;
    } else {
        *out = json_is_number(value) ? json_number_value(value) : (double)NAN;
    }
    return isfinite(*out);
}

/* Which run does not have the metric; NULL: all have. */
static const char *
run_without(const struct comparing *c, const char *metric)
{
    for (int s = 0; s < 2; s++) {
        for (size_t i = 0; i < c->sides[s].count; i++) {
            if (!metric_of(
                        &c->sides[s].runs[i], metric, &c->sides[s].values[i])) {
                return c->sides[s].paths[i];
            }
        }
    }
    return NULL;
}

/* Fill the values of all runs. An exit code. */
static int
choose_metric(struct comparing *c)
{
    static const char *const names[] = {
            "auc", "log_loss", "final_loss", "loss"};
    const char *lacking = NULL;

    if (c->metric != NULL) {
        lacking = run_without(c, c->metric);
        return lacking == NULL
                       ? RPS_TOOL_OK
                       : rps_tool_fail_status(TOOL, RPS_E_CORRUPT,
                                 "%s: its last line has no finite \"%s\"",
                                 lacking, c->metric);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        lacking = run_without(c, names[i]);
        if (lacking == NULL) {
            c->metric = names[i];
            return RPS_TOOL_OK;
        }
    }
    return rps_tool_fail_status(TOOL, RPS_E_CORRUPT,
            "the runs have no metric in common: %s has no finite loss at its "
            "end",
            lacking);
}

/* --- reading ---------------------------------------------------------------
 */

static int
read_side(struct side *side)
{
    side->runs = calloc(side->count, sizeof(*side->runs));
    side->values = calloc(side->count, sizeof(*side->values));
    if (side->runs == NULL || side->values == NULL) {
        return rps_tool_fail(RPS_TOOL_FAILED, TOOL, "no memory");
    }
    for (size_t i = 0; i < side->count; i++) {
        struct rps_error error = {.text = ""};
        const rps_status status =
                rps_losses_read(&side->runs[i], side->paths[i], &error);

        if (status != RPS_OK) {
            return rps_tool_fail_input(TOOL, status, &error);
        }
    }
    return RPS_TOOL_OK;
}

static void
finish(struct comparing *c)
{
    for (int s = 0; s < 2; s++) {
        struct side *side = &c->sides[s];

        for (size_t i = 0; side->runs != NULL && i < side->count; i++) {
            rps_losses_finish(&side->runs[i]);
        }
        free(side->runs);
        free(side->values);
    }
}

/* --- answers ---------------------------------------------------------------
 */

static bool
do_differ(const struct comparing *c)
{
    return c->test.known && c->test.p < c->alpha;
}

static void
print_verdict(const struct comparing *c)
{
    const double by = c->sides[0].spread.mean - c->sides[1].spread.mean;
    const struct rps_spread_test *test = &c->test;

    printf("\nA - B: %+.6g", by);
    if (test->df > 0) {
        printf(", t %.3f, df %.1f, p %.4g", test->t, test->df, test->p);
    }
    printf("\n");
    if (!test->known) {
        printf("one run a side has no spread to measure this by: give two at "
               "least of one side\n");
    } else if (do_differ(c)) {
        printf("they differ by more than their spread (p < %g)\n", c->alpha);
    } else {
        printf("they do not differ by more than their spread (p >= %g)\n",
                c->alpha);
    }
}

static int
print_text(const struct comparing *c)
{
    struct rps_table_print print = {.columns = 6,
            .titles = {c->metric, "runs", "mean", "deviation", "least", "most"},
            .right = {false, true, true, true, true, true}};

    for (int s = 0; s < 2; s++) {
        const struct rps_spread *spread = &c->sides[s].spread;

        rps_table_print_cell(&print, "%c", 'A' + s);
        rps_table_print_cell(&print, "%zu", spread->count);
        rps_table_print_cell(&print, "%.6g", spread->mean);
        if (spread->count > 1) {
            rps_table_print_cell(&print, "%.3g", spread->deviation);
        } else {
            rps_table_print_cell(&print, "-");
        }
        rps_table_print_cell(&print, "%.6g", spread->least);
        rps_table_print_cell(&print, "%.6g", spread->most);
    }
    if (!rps_table_print_end(&print)) {
        return rps_tool_fail(RPS_TOOL_FAILED, TOOL, "no memory");
    }
    print_verdict(c);
    return RPS_TOOL_OK;
}

static json_t *
side_json(const struct side *side)
{
    const struct rps_spread *spread = &side->spread;
    json_t *values = json_array();

    for (size_t i = 0; i < side->count; i++) {
        json_array_append_new(
                values, json_pack("{s:s, s:f}", "log", side->paths[i], "value",
                                side->values[i]));
    }
    return json_pack("{s:I, s:f, s:o, s:f, s:f, s:o}", "count",
            (json_int_t)spread->count, "mean", spread->mean, "deviation",
            spread->count > 1 ? json_real(spread->deviation) : json_null(),
            "least", spread->least, "most", spread->most, "runs", values);
}

static json_t *
to_json(const struct comparing *c)
{
    const struct rps_spread_test *test = &c->test;
    const bool measured = test->df > 0;

    return json_pack("{s:s, s:o, s:o, s:f, s:o, s:o, s:o, s:f, s:o}", "metric",
            c->metric, "a", side_json(&c->sides[0]), "b",
            side_json(&c->sides[1]), "difference",
            c->sides[0].spread.mean - c->sides[1].spread.mean, "t",
            measured ? json_real(test->t) : json_null(), "df",
            measured ? json_real(test->df) : json_null(), "p",
            test->known ? json_real(test->p) : json_null(), "alpha", c->alpha,
            "differ", test->known ? json_boolean(do_differ(c)) : json_null());
}

/* set,log,METRIC */
static int
write_csv(const struct comparing *c, const char *path)
{
    struct rps_text text = {.bytes = NULL};
    struct rps_error error = {.text = ""};
    rps_status status;

    rps_text_add(&text, "set,log,%s\n", c->metric);
    for (int s = 0; s < 2; s++) {
        for (size_t i = 0; i < c->sides[s].count; i++) {
            rps_text_add(&text, "%c,", 'A' + s);
            rps_csv_word(&text, c->sides[s].paths[i]);
            rps_text_add(&text, ",%.17g\n", c->sides[s].values[i]);
        }
    }
    status = text.failed
                     ? rps_fail(&error, RPS_E_NOMEM, "no memory")
                     : rps_file_replace(path, text.bytes, text.length, &error);
    rps_text_finish(&text);
    return status == RPS_OK
                   ? RPS_TOOL_OK
                   : rps_tool_fail_output(TOOL, "--output", status, &error);
}

static int
answer(struct comparing *c, const char *csv, bool json)
{
    int code;

    for (int s = 0; s < 2; s++) {
        c->sides[s].spread =
                rps_spread_of(c->sides[s].values, c->sides[s].count);
    }
    c->test = rps_spread_compare(&c->sides[0].spread, &c->sides[1].spread);
    code = json ? rps_tool_print_json(to_json(c)) : print_text(c);
    /* the verdict is out, whatever becomes of the file */
    if (code == RPS_TOOL_OK && csv != NULL && rps_tool_flush()) {
        code = write_csv(c, csv);
    }
    return code == RPS_TOOL_OK && (!c->test.known || do_differ(c))
                   ? RPS_TOOL_DIFFERS
                   : code;
}

static int
read_arguments(struct comparing *c, const struct rps_tool_call *call)
{
    const char *alpha = call->flags[FLAG_ALPHA].value;

    c->metric = call->flags[FLAG_METRIC].value;
    c->alpha = ALPHA_DEFAULT;
    if (alpha != NULL && (!rps_parse_double(alpha, &c->alpha) ||
                                 c->alpha <= 0 || c->alpha >= 1)) {
        return rps_tool_fail(RPS_TOOL_USAGE, TOOL,
                "--alpha %s: must be between 0 and 1", alpha);
    }
    c->sides[0].paths = call->operands;
    c->sides[0].count = (size_t)call->operand_count;
    c->sides[1].paths = (const char *const *)call->command;
    while (call->command != NULL && call->command[c->sides[1].count] != NULL) {
        c->sides[1].count++;
    }
    return c->sides[0].count > 0 && c->sides[1].count > 0
                   ? RPS_TOOL_OK
                   : rps_tool_fail(RPS_TOOL_USAGE, TOOL,
                             "give the logs of two sets of runs: recps " TOOL
                             " A.json … -- B.json …");
}

static int
run(const struct rps_tool_call *call)
{
    struct comparing c = {.metric = NULL};
    int code = read_arguments(&c, call);

    for (int s = 0; s < 2 && code == RPS_TOOL_OK; s++) {
        code = read_side(&c.sides[s]);
    }
    if (code == RPS_TOOL_OK) {
        code = choose_metric(&c);
    }
    if (code == RPS_TOOL_OK) {
        code = answer(&c, call->flags[FLAG_OUTPUT].value, call->options->json);
    }
    finish(&c);
    return code;
}

const struct rps_tool rps_tool_precision_runs = {
        .name = TOOL,
        .usage = usage,
        .summary = "do two sets of runs end differently",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = RPS_TOOL_OPERANDS_MAX,
        .takes_file = true,
        .runs_command = true,
        .run = run,
};
