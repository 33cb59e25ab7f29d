/* SPDX-License-Identifier: Apache-2.0 */
/* A comparison as a table: a line an operator, in order of execution. Figures
 * of several tensors stand in one cell, by index: "0:1;1:0.5". */
#include "base/file.h"
#include "client/precision/compare_impl.h"
#include "client/precision/csv.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char head[] = "Left,Right,type,Input,Output,";
static const char rest[] =
        "Agrees,Input max absolute,Output max absolute,Input max relative,"
        "Output max relative,Input mean absolute,Output mean absolute,"
        "Input length ratio,Output length ratio,Input not finite,"
        "Output not finite,Input shape,Output shape,Equal files,Files,"
        "Keys that differ,Problems\n";

enum figure {
    COSINE,
    MAX_ABSOLUTE,
    MAX_RELATIVE,
    MEAN_ABSOLUTE,
    LENGTH_RATIO,
    NOT_FINITE,
    SHAPE
};

static void
add_number(struct rps_text *cell, double number)
{
    if (isnan(number)) {
        rps_text_add(cell, "nan");
    } else {
        rps_text_add(cell, "%.17g", number);
    }
}

/* [128, 64] as 128x64; a scalar: 1 */
static void
add_shape(struct rps_text *cell, const struct rps_dumped_tensor *tensor)
{
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        rps_text_add(cell, "%s%" PRIu64, d > 0 ? "x" : "", tensor->shape[d]);
    }
    rps_text_add(cell, "%s", tensor->ndim == 0 ? "1" : "");
}

static void
add_figure(struct rps_text *cell, const struct rps_compared_tensor *tensor,
        enum figure figure)
{
    switch (figure) {
    case COSINE:
        add_number(cell, tensor->cosine);
        break;
    case MAX_ABSOLUTE:
        add_number(cell, tensor->max_absolute);
        break;
    case MAX_RELATIVE:
        add_number(cell, tensor->max_relative);
        break;
    case MEAN_ABSOLUTE:
        add_number(cell, tensor->mean_absolute);
        break;
    case LENGTH_RATIO:
        add_number(cell, tensor->length_ratio);
        break;
    case NOT_FINITE: /* NaN+Inf of both sides */
        rps_text_add(cell, "%" PRIu64 "+%" PRIu64 "/%" PRIu64 "+%" PRIu64,
                tensor->left_nan, tensor->left_inf, tensor->right_nan,
                tensor->right_inf);
        break;
    case SHAPE:
        add_shape(cell, tensor->left);
        break;
    }
}

/* The inputs' or outputs' figures, those that there are. */
static void
add_cell(struct rps_text *line, const struct rps_compared *compared,
        bool is_output, enum figure figure)
{
    struct rps_text cell = {.bytes = NULL};

    for (uint32_t i = 0; i < compared->tensor_count; i++) {
        const struct rps_compared_tensor *tensor = &compared->tensors[i];

        if (tensor->is_output == is_output && tensor->readable) {
            rps_text_add(&cell, "%s%" PRIu32 ":", cell.length > 0 ? ";" : "",
                    tensor->index);
            add_figure(&cell, tensor, figure);
        }
    }
    if (cell.bytes != NULL) {
        rps_csv_word(line, cell.bytes);
    }
    line->failed = line->failed || cell.failed;
    rps_text_add(line, ",");
    rps_text_finish(&cell);
}

static void
add_keys(struct rps_text *line, const struct rps_compared *compared)
{
    if (compared->has_keys && compared->keys_differ > 0) {
        rps_text_add(line, "%" PRIu64 ":", compared->keys_differ);
        for (uint64_t i = 0;
                i < compared->keys_differ && i < RPS_COMPARE_KEYS_MAX; i++) {
            rps_text_add(line, " %" PRIu64, compared->keys[i]);
        }
    }
    rps_text_add(line, ",");
}

static void
add_problems(struct rps_text *line, const struct rps_compared *compared)
{
    struct rps_text cell = {.bytes = NULL};

    for (uint32_t i = 0; i < compared->tensor_count; i++) {
        if (compared->tensors[i].problem != NULL) {
            rps_text_add(&cell, "%s%s", cell.length > 0 ? "; " : "",
                    compared->tensors[i].problem);
        }
    }
    if (cell.bytes != NULL) {
        rps_csv_word(line, cell.bytes);
    }
    line->failed = line->failed || cell.failed;
    rps_text_finish(&cell);
}

static void
add_counts(struct rps_text *line, const struct rps_compared *compared)
{
    uint32_t equal = 0, files = 0;

    for (uint32_t i = 0; i < compared->tensor_count; i++) {
        files += compared->tensors[i].readable ? 1 : 0;
        equal += compared->tensors[i].equal_bytes ? 1 : 0;
    }
    rps_text_add(line, "%" PRIu32 ",%" PRIu32 ",", equal, files);
}

/* What could not be read may differ. */
static const char *
agrees_of(const struct rps_compared *compared)
{
    if (compared->left == NULL || compared->right == NULL) {
        return "";
    }
    if (!compared->inputs_agree || !compared->outputs_agree) {
        return "no";
    }
    return compared->unread_inputs + compared->unread_outputs > 0
                   ? "not compared"
                   : "yes";
}

static void
add_line(struct rps_text *line, const struct rps_compared *compared,
        const uint64_t *step)
{
    rps_csv_word(line, compared->left_names);
    rps_text_add(line, ",");
    rps_csv_word(line, compared->right_names);
    rps_text_add(line, ",");
    rps_csv_word(line, compared->type);
    rps_text_add(line, ",");
    add_cell(line, compared, false, COSINE);
    add_cell(line, compared, true, COSINE);
    if (step != NULL) {
        rps_text_add(line, "%" PRIu64 ",", *step);
    }
    rps_text_add(line, "%s,", agrees_of(compared));
    for (enum figure figure = MAX_ABSOLUTE; figure <= SHAPE; figure++) {
        add_cell(line, compared, false, figure);
        add_cell(line, compared, true, figure);
    }
    add_counts(line, compared);
    add_keys(line, compared);
    add_problems(line, compared);
    rps_text_add(line, "\n");
}

static rps_status
write_table(struct rps_text *table, const char *path, struct rps_error *error)
{
    const rps_status status =
            table->failed ? rps_fail(error, RPS_E_NOMEM, "%s: no memory", path)
                          : rps_file_replace(
                                    path, table->bytes, table->length, error);

    rps_text_finish(table);
    return status;
}

rps_status
rps_compare_write_csv(const struct rps_comparison *comparison, const char *path,
        struct rps_error *error)
{
    struct rps_text table = {.bytes = NULL};

    rps_text_add(&table, "%s%s", head, rest);
    for (uint32_t i = 0; i < comparison->operator_count; i++) {
        add_line(&table, &comparison->operators[i], NULL);
    }
    return write_table(&table, path, error);
}

rps_status
rps_compare_run_write_csv(const struct rps_compare_run *run, const char *path,
        struct rps_error *error)
{
    struct rps_text table = {.bytes = NULL};

    rps_text_add(&table, "%sStep,%s", head, rest);
    for (uint32_t s = 0; s < run->count; s++) {
        const struct rps_comparison *comparison = run->steps[s].comparison;

        for (uint32_t i = 0; i < comparison->operator_count; i++) {
            add_line(&table, &comparison->operators[i], &run->steps[s].step);
        }
    }
    return write_table(&table, path, error);
}
