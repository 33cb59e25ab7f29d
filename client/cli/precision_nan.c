/* SPDX-License-Identifier: Apache-2.0 */
/* recps precision nan DIR: the first NaN of a dump, and where it comes from. */
#include "base/text.h"
#include "client/cli/precision.h"
#include "client/precision/nan.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOOL "precision nan"

static const char usage[] =
        "usage: recps precision nan DIR [--nan-only] [--json]\n"
        "\n"
        "The first file of a dump, by time, that has a NaN or an infinity, "
        "and\n"
        "where it comes from. An operator's output is computed again from its\n"
        "inputs; if they do not give it, it is that operator; else what it\n"
        "read is followed upstream, to an operator, a table's keys, the host,\n"
        "or memory that was overwritten between two operators. DIR is a dump\n"
        "(precision_data/npu/debug_0) or a folder of one; steps are looked at\n"
        "one after the other. Exit: 0 there is none, 1 there is, 65 files are\n"
        "damaged or missing (they are named, the rest is looked at).\n";

enum {
    FLAG_NAN_ONLY
};

static struct rps_tool_flag flags[] = {
        [FLAG_NAN_ONLY] = {.name = "nan-only",
                .help = "look over infinities, as find_nan.py does"},
        {.name = NULL},
};

static const char *
base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* --- for programs --------------------------------------------------------- */

static json_t *
spot_json(const struct rps_nan_report *report, const struct rps_nan_spot *spot)
{
    const struct rps_dumped_operator *op;
    const struct rps_dumped_tensor *tensor;
    char *element;
    json_t *value = NULL;

    if (spot->op == RPS_NAN_NOWHERE) {
        return json_null();
    }
    op = &report->dumped->operators[spot->op];
    if ((spot->is_output ? op->output_count : op->input_count) <= spot->index) {
        return json_pack("{s:s, s:s, s:I}", "type", op->type, "name", op->name,
                "operator", (json_int_t)spot->op);
    }
    tensor = rps_nan_tensor(report, spot);
    element = rps_nan_element_words(tensor, spot->element);
    value = json_pack("{s:s, s:s, s:I, s:s, s:I, s:s?, s:s?, s:I, s:s?}",
            "type", op->type, "name", op->name, "operator",
            (json_int_t)spot->op, "side", spot->is_output ? "output" : "input",
            "index", (json_int_t)tensor->index, "label", tensor->label, "file",
            tensor->file != NULL ? base_of(tensor->file) : NULL, "element",
            (json_int_t)spot->element, "at", element);
    free(element);
    return value;
}

static json_t *
words_json(const struct rps_nan_words *words)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < words->count; i++) {
        (void)json_array_append_new(list, json_string(words->lines[i]));
    }
    return list;
}

static json_t *
numbers_json(const uint64_t *numbers, uint64_t count, uint64_t max)
{
    json_t *list = json_array();

    for (uint64_t i = 0; i < count && i < max; i++) {
        (void)json_array_append_new(list, json_integer((json_int_t)numbers[i]));
    }
    return list;
}

/* Keys go to 2^64 - 1: strings. */
static json_t *
keys_json(const struct rps_nan_report *report)
{
    json_t *list = json_array();

    for (uint64_t i = 0; i < report->key_count && i < RPS_NAN_KEYS_MAX; i++) {
        (void)json_array_append_new(
                list, json_sprintf("%" PRIu64, report->keys[i]));
    }
    return list;
}

static const char *
nan_file(const struct rps_nan_report *report)
{
    return report->nan.op != RPS_NAN_NOWHERE
                   ? rps_nan_tensor(report, &report->nan)->file
                   : NULL;
}

static json_t *
found_json(const struct rps_nan_report *report)
{
    return json_pack("{s:I, s:s, s:s?, s:o, s:I, s:I, s:o, s:o, s:I, s:s?, "
                     "s:o, s:I, s:s?, s:o, s:I, s:o, s:o}",
            "step", (json_int_t)report->dumped->step, "file",
            rps_nan_tensor(report, &report->first)->file, "nan_file",
            nan_file(report), "first", spot_json(report, &report->first), "nan",
            (json_int_t)report->counted.nan, "infinite",
            (json_int_t)report->counted.infinite, "cause",
            spot_json(report, &report->cause), "before",
            spot_json(report, &report->before), "before_step",
            (json_int_t)report->before_step, "before_words",
            report->before_words, "elements",
            numbers_json(report->elements, report->element_count,
                    RPS_NAN_ELEMENTS_MAX),
            "element_count", (json_int_t)report->element_count, "table",
            report->table, "keys", keys_json(report), "key_count",
            (json_int_t)report->key_count, "trail", words_json(&report->trail),
            "words", words_json(&report->words));
}

static int
print_json(const struct rps_nan_report *report)
{
    json_t *all = json_pack("{s:s, s:I, s:I, s:I, s:o}", "ending",
            rps_nan_ending_name(report->ending), "files",
            (json_int_t)report->files, "unread", (json_int_t)report->unread,
            "steps", (json_int_t)report->steps, "problems",
            words_json(&report->problems));
    json_t *found = report->dumped != NULL ? found_json(report) : json_object();

    if (all != NULL) {
        (void)json_object_update(all, found);
    }
    json_decref(found);
    return rps_tool_print_json(all);
}

/* --- for people ----------------------------------------------------------- */

static void
print_words(const char *title, const struct rps_nan_words *words)
{
    for (uint32_t i = 0; i < words->count; i++) {
        (void)printf("%-8s%s\n", i == 0 ? title : "", words->lines[i]);
    }
}

static void
print_shape(const struct rps_dumped_tensor *tensor)
{
    (void)printf("[");
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        (void)printf("%s%" PRIu64, d > 0 ? ", " : "", tensor->shape[d]);
    }
    (void)printf("]");
}

static void
print_first(const struct rps_nan_report *report)
{
    const struct rps_nan_spot *first = &report->first;
    const struct rps_dumped_operator *op =
            &report->dumped->operators[first->op];
    const struct rps_dumped_tensor *tensor = rps_nan_tensor(report, first);
    char *side = rps_nan_tensor_words(first->is_output, tensor);
    char *element = rps_nan_element_words(tensor, first->element);

    (void)printf("first   %s\n", tensor->file);
    (void)printf("        step %" PRIu64 ", operator %u of %u: %s %s, %s ",
            report->dumped->step, first->op + 1, report->dumped->operator_count,
            op->type, op->name, side != NULL ? side : "");
    print_shape(tensor);
    (void)printf("\n        %" PRIu64 " NaN and %" PRIu64
                 " infinities of %" PRIu64 " elements, the first at %s\n",
            report->counted.nan, report->counted.infinite,
            report->counted.count, element != NULL ? element : "");
    free(side);
    free(element);
    if (report->counted.nan == 0 && nan_file(report) != NULL) {
        (void)printf("        the first NaN: %s\n", nan_file(report));
    } else if (report->counted.nan == 0) {
        (void)printf("        no file has a NaN\n");
    }
}

static int
print_text(const struct rps_nan_report *report)
{
    if (report->dumped == NULL) {
        (void)printf("no NaN and no infinity%s: %" PRIu64 " files of %u %s",
                report->unread > 0 ? " in what could be read" : "",
                report->files, report->steps,
                report->steps == 1 ? "step" : "steps");
        if (report->unread > 0) {
            (void)printf("; %" PRIu64 " could not be read", report->unread);
        }
        (void)printf("\n");
    } else {
        print_first(report);
        print_words("way", &report->trail);
        (void)printf("ending  %s\n", rps_nan_ending_name(report->ending));
        print_words("", &report->words);
    }
    return rps_tool_flush() ? RPS_TOOL_OK : RPS_TOOL_IO;
}

static int
run(const struct rps_tool_call *call)
{
    const struct rps_nan_options options = {
            .nan_alone = call->flags[FLAG_NAN_ONLY].value != NULL};
    struct rps_nan_report *report = NULL;
    struct rps_error error = {.text = ""};
    rps_status status = RPS_OK;
    int code;

    if (call->operand_count != 1) {
        return rps_tool_fail(RPS_TOOL_USAGE, TOOL,
                "give the dump's folder, such as precision_data/npu/debug_0");
    }
    status = rps_nan_find(call->operands[0], &options, &report, &error);
    if (status != RPS_OK) {
        return rps_tool_fail_input(TOOL, status, &error);
    }
    for (uint32_t i = 0; i < report->problems.count; i++) {
        rps_tool_fail(0, TOOL, "%s", report->problems.lines[i]);
    }
    code = call->options->json ? print_json(report) : print_text(report);
    if (code == RPS_TOOL_OK && report->problems.count > 0) {
        code = RPS_TOOL_CORRUPT;
    } else if (code == RPS_TOOL_OK && report->dumped != NULL) {
        code = RPS_TOOL_DIFFERS;
    }
    rps_nan_report_free(report);
    return code;
}

const struct rps_tool rps_tool_precision_nan = {
        .name = TOOL,
        .usage = usage,
        .summary = "the first NaN of a dump, and where it comes from",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 1,
        .takes_folder = true,
        .run = run,
};
