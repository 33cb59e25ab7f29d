/* SPDX-License-Identifier: Apache-2.0 */
/* What recps precision ni says of an operator: rows of words, a column a
 * side. */
#include "base/json.h"
#include "base/text.h"
#include "client/cli/precision_ni.h"
#include "client/cli/table_print.h"
#include "client/cli/tool.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOOL         "precision ni"
#define FIRST_BESIDE 2u /* numbers of a row with two sides */

/* A tensor of a side. */
struct seen {
    const struct rps_dumped_tensor *tensor; /* NULL: that side has it not */
    struct rps_ni_figures figures;
    bool good; /* they are known */
};

/* --- tensors -------------------------------------------------------------- */

static uint32_t
count_of(const struct rps_dumped_operator *op, bool is_output)
{
    return op == NULL ? 0 : is_output ? op->output_count : op->input_count;
}

static uint32_t
most_of(const struct rps_ni_pair *pair, bool is_output)
{
    const uint32_t left = count_of(pair->op[0], is_output);
    const uint32_t right = count_of(pair->op[1], is_output);

    return left > right ? left : right;
}

static struct seen
see(struct rps_ni *ni, const struct rps_dumped_operator *op, bool is_output,
        uint32_t index)
{
    struct seen seen = {.tensor = NULL};
    struct rps_error error = {.text = ""};

    if (index >= count_of(op, is_output)) {
        return seen;
    }
    seen.tensor = is_output ? &op->outputs[index] : &op->inputs[index];
    seen.good = rps_ni_figures(seen.tensor, &seen.figures, &error) == RPS_OK;
    if (!seen.good) {
        rps_tool_fail(0, TOOL, "%s", error.text);
        ni->damaged = true;
    }
    return seen;
}

static void
add_number(struct rps_text *text, double number)
{
    if (isnan(number)) {
        rps_text_add(text, "nan");
    } else {
        rps_text_add(text, "%.9g", number);
    }
}

/* As i64 has them, too. */
static void
add_key(struct rps_text *text, const struct seen *seen, uint64_t key)
{
    if (seen->tensor->dtype == RPS_DUMP_I64) {
        rps_text_add(text, "%" PRId64, (int64_t)key);
    } else {
        rps_text_add(text, "%" PRIu64, key);
    }
}

/* Of the first numbers `count` from `from` on; ... behind the last of them. */
static void
add_first(struct rps_text *text, const struct seen *seen, uint32_t from,
        uint32_t count)
{
    const struct rps_ni_figures *figures = &seen->figures;
    const uint32_t end = figures->first_count < from + count
                                 ? figures->first_count
                                 : from + count;

    for (uint32_t i = from; i < end; i++) {
        rps_text_add(text, "%s", i > from ? " " : "");
        if (figures->is_key) {
            add_key(text, seen, figures->first_keys[i]);
        } else {
            rps_text_add(text, "%.6g", figures->first[i]);
        }
    }
    if (end > from && end == figures->first_count &&
            figures->count > figures->first_count) {
        rps_text_add(text, " ...");
    }
}

enum figure {
    SHAPE,
    DTYPE,
    LEAST,
    LARGEST,
    MEAN,
    NOT_FINITE,
    FIRST,
    FIGURES
};

static const char *const figure_names[FIGURES] = {
        "shape", "dtype", "min", "max", "mean", "NaN+Inf", "first"};

static void
add_extreme(struct rps_text *text, const struct seen *seen, bool is_largest)
{
    const struct rps_ni_figures *figures = &seen->figures;

    if (figures->count == 0) {
        rps_text_add(text, "-");
    } else if (figures->is_key) {
        add_key(text, seen, is_largest ? figures->key_max : figures->key_min);
    } else {
        add_number(text, is_largest ? figures->max : figures->min);
    }
}

static void
add_figure(struct rps_text *text, const struct seen *seen, enum figure figure,
        uint32_t first_a_row)
{
    if (seen->tensor == NULL) {
        rps_text_add(text, "-");
        return;
    }
    if (figure == SHAPE && seen->tensor->shape_known) {
        rps_dumped_add_shape(text, seen->tensor);
        return;
    }
    if (figure == DTYPE) {
        rps_text_add(text, "%s", rps_dump_dtype_name(seen->tensor->dtype));
        return;
    }
    if (!seen->good) {
        rps_text_add(text, "?");
        return;
    }
    switch (figure) {
    case LEAST:
    case LARGEST:
        add_extreme(text, seen, figure == LARGEST);
        break;
    case MEAN:
        if (seen->figures.count == 0) {
            rps_text_add(text, "-");
        } else {
            add_number(text, seen->figures.mean);
        }
        break;
    case NOT_FINITE:
        rps_text_add(text, "%" PRIu64 "+%" PRIu64, seen->figures.nan,
                seen->figures.infinite);
        break;
    default:
        add_first(text, seen, 0, first_a_row);
    }
}

/* --- rows ------------------------------------------------------------------
 */

/* One row: what, and of each side its words. NULL: the side is not shown. */
static void
add_row(struct rps_ni *ni, struct rps_table_print *print, const char *of,
        const char *what, const char *left, const char *right)
{
    const bool differs =
            left != NULL && right != NULL && strcmp(left, right) != 0;

    rps_table_print_cell(print, "%s", of);
    rps_table_print_cell(print, "%s", what);
    if (left != NULL) {
        rps_table_print_cell(print, "%s", left);
    }
    if (right != NULL) {
        rps_table_print_cell(print, "%s", right);
    }
    if (left != NULL && right != NULL) {
        rps_table_print_cell(print, "%s", differs ? "differs" : "");
    }
    ni->differs = ni->differs || differs;
}

/* Side by side the first numbers take several rows: one would be too wide. */
static void
add_more_first(struct rps_ni *ni, struct rps_table_print *print,
        const struct seen seen[2])
{
    for (uint32_t from = FIRST_BESIDE; from < RPS_NI_FIRST;
            from += FIRST_BESIDE) {
        struct rps_text words[2] = {{.bytes = NULL}, {.bytes = NULL}};

        for (int i = 0; i < 2; i++) {
            if (seen[i].good) {
                add_first(&words[i], &seen[i], from, FIRST_BESIDE);
            }
            rps_text_add(&words[i], "%s", "");
            print->failed = print->failed || words[i].failed;
        }
        if (!print->failed &&
                (words[0].bytes[0] != '\0' || words[1].bytes[0] != '\0')) {
            add_row(ni, print, "", "", words[0].bytes, words[1].bytes);
        }
        rps_text_finish(&words[0]);
        rps_text_finish(&words[1]);
    }
}

static void
add_tensor(struct rps_ni *ni, struct rps_table_print *print,
        const struct rps_ni_pair *pair, bool is_output, uint32_t index)
{
    const struct seen seen[2] = {see(ni, pair->op[0], is_output, index),
            see(ni, pair->op[1], is_output, index)};
    const struct rps_dumped_tensor *one =
            seen[0].tensor != NULL ? seen[0].tensor : seen[1].tensor;
    const bool both = pair->op[0] != NULL && pair->op[1] != NULL;
    const uint32_t first_a_row = both ? FIRST_BESIDE : RPS_NI_FIRST;
    char *of = rps_format("%s %" PRIu32 "%s%s", is_output ? "output" : "input",
            one->index, one->label != NULL ? " " : "",
            one->label != NULL ? one->label : "");

    for (enum figure figure = SHAPE; figure < FIGURES; figure++) {
        struct rps_text words[2] = {{.bytes = NULL}, {.bytes = NULL}};

        for (int i = 0; i < 2; i++) {
            add_figure(&words[i], &seen[i], figure, first_a_row);
            rps_text_add(&words[i], "%s", "");
            print->failed = print->failed || words[i].failed || of == NULL;
        }
        if (!print->failed) {
            add_row(ni, print, figure == SHAPE ? of : "", figure_names[figure],
                    pair->op[0] != NULL ? words[0].bytes : NULL,
                    pair->op[1] != NULL ? words[1].bytes : NULL);
        }
        rps_text_finish(&words[0]);
        rps_text_finish(&words[1]);
    }
    if (both) {
        add_more_first(ni, print, seen);
    }
    free(of);
}

/* --- attributes ------------------------------------------------------------
 */

static bool
is_asked(const struct rps_ni *ni, const char *key)
{
    return ni->attribute == NULL || strcasestr(key, ni->attribute) != NULL;
}

static const json_t *
attribute_of(const struct rps_dumped_operator *op, const char *key)
{
    return op == NULL ? NULL : json_object_get(op->attributes, key);
}

static char *
attribute_words(const json_t *value)
{
    const char *string = json_string_value(value);

    if (value == NULL || string != NULL) {
        return strdup(string != NULL ? string : "-");
    }
    return json_dumps(
            value, JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_REAL_PRECISION(9));
}

/* May be printed: a manifest may say anything. */
static void
make_plain(char *text)
{
    for (; text != NULL && *text != '\0'; text++) {
        *text = (unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text;
    }
}

static void
add_attribute(struct rps_ni *ni, struct rps_table_print *print,
        const struct rps_ni_pair *pair, const char *key, bool is_first)
{
    char *words[2] = {attribute_words(attribute_of(pair->op[0], key)),
            attribute_words(attribute_of(pair->op[1], key))};
    char *name = strdup(key);

    make_plain(words[0]);
    make_plain(words[1]);
    make_plain(name);
    if (words[0] == NULL || words[1] == NULL || name == NULL) {
        print->failed = true;
    } else {
        add_row(ni, print, is_first ? "attribute" : "", name,
                pair->op[0] != NULL ? words[0] : NULL,
                pair->op[1] != NULL ? words[1] : NULL);
    }
    free(words[0]);
    free(words[1]);
    free(name);
}

static void
add_attributes(struct rps_ni *ni, struct rps_table_print *print,
        const struct rps_ni_pair *pair)
{
    bool is_first = true;

    for (int i = 0; i < 2; i++) {
        json_t *attributes =
                pair->op[i] != NULL ? pair->op[i]->attributes : NULL;
        const char *key;
        json_t *value;

        json_object_foreach(attributes, key, value)
        {
            const bool shown = i == 1 && attribute_of(pair->op[0], key) != NULL;

            if (is_asked(ni, key) && !shown) {
                add_attribute(ni, print, pair, key, is_first);
                is_first = false;
            }
        }
    }
    if (is_first && ni->attribute != NULL) {
        rps_tool_fail(0, TOOL, "no attribute of it has %s in its name",
                ni->attribute);
    }
}

/* --- for people ------------------------------------------------------------
 */

static void
print_head(const struct rps_ni *ni, const struct rps_dumped_operator *one)
{
    printf("Op %s %s%s%s%s", one->type, one->name,
            one->holds != NULL ? " (" : "",
            one->holds != NULL ? one->holds : "",
            one->holds != NULL ? ")" : "");
    if (one->occurrence > 0) {
        printf(", once more (%" PRIu32 ")", one->occurrence + 1);
    }
    printf("\n");
    for (int i = 0; i < 2; i++) {
        const struct rps_ni_side *side = &ni->sides[i];

        if (side->dumped != NULL) {
            printf("%s: step %" PRIu64, side->title, side->dumped->step);
            if (side->step_count > 1) {
                printf(", one of %" PRIu32 " that are dumped",
                        side->step_count);
            }
            printf(": %s\n", side->dumped->folder);
        }
    }
    if (ni->sides[0].dumped != NULL && ni->sides[1].dumped != NULL &&
            ni->sides[0].dumped->step != ni->sides[1].dumped->step) {
        printf("The two are different steps.\n");
    }
}

bool
rps_ni_pair_print(struct rps_ni *ni, const struct rps_ni_pair *pair)
{
    const struct rps_dumped_operator *one =
            pair->op[0] != NULL ? pair->op[0] : pair->op[1];
    const bool both = pair->op[0] != NULL && pair->op[1] != NULL;
    struct rps_table_print print = {
            .columns = both ? 5 : 3, .titles = {"tensor", "figure"}};

    print_head(ni, one);
    if (!both && ni->sides[1].dumped != NULL) {
        printf("%s has no such operator\n",
                ni->sides[pair->op[0] != NULL ? 1 : 0].title);
        ni->differs = true;
    }
    printf("\n");
    if (both) {
        print.titles[2] = ni->sides[0].title;
        print.titles[3] = ni->sides[1].title;
        print.titles[4] = "";
    } else {
        print.titles[2] = ni->sides[pair->op[0] != NULL ? 0 : 1].title;
    }
    add_attributes(ni, &print, pair);
    for (int way = 0; way < 2; way++) {
        for (uint32_t i = 0; i < most_of(pair, way == 1); i++) {
            add_tensor(ni, &print, pair, way == 1, i);
        }
    }
    return rps_table_print_end(&print);
}

/* --- for programs ----------------------------------------------------------
 */

/* What is not finite has no JSON. */
static json_t *
number_json(double number)
{
    return isfinite(number) ? json_sprintf("%.17g", number) : json_null();
}

static json_t *
extreme_json(const struct seen *seen, bool is_largest)
{
    const struct rps_ni_figures *figures = &seen->figures;
    struct rps_text text = {.bytes = NULL};
    json_t *value;

    if (!figures->is_key) {
        return number_json(is_largest ? figures->max : figures->min);
    }
    add_key(&text, seen, is_largest ? figures->key_max : figures->key_min);
    value = json_string(text.bytes != NULL ? text.bytes : "");
    rps_text_finish(&text);
    return value;
}

static json_t *
first_json(const struct seen *seen)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < seen->figures.first_count; i++) {
        struct rps_text text = {.bytes = NULL};

        if (seen->figures.is_key) {
            add_key(&text, seen, seen->figures.first_keys[i]);
        } else {
            rps_text_add(&text, "%.17g", seen->figures.first[i]);
        }
        (void)json_array_append_new(
                list, json_string(text.bytes != NULL ? text.bytes : ""));
        rps_text_finish(&text);
    }
    return list;
}

static json_t *
shape_json(const struct rps_dumped_tensor *tensor)
{
    json_t *list = json_array();

    for (uint32_t d = 0; d < tensor->ndim; d++) {
        (void)json_array_append_new(
                list, json_integer((json_int_t)tensor->shape[d]));
    }
    return list;
}

static json_t *
tensor_json(struct rps_ni *ni, const struct rps_dumped_operator *op,
        bool is_output, uint32_t index)
{
    const struct seen seen = see(ni, op, is_output, index);
    const struct rps_dumped_tensor *tensor = seen.tensor;
    json_t *value = json_pack("{s:I, s:s?, s:s?, s:o, s:s, s:b}", "index",
            (json_int_t)tensor->index, "label", tensor->label, "file",
            tensor->file, "shape", shape_json(tensor), "dtype",
            rps_dump_dtype_name(tensor->dtype), "readable", seen.good);
    json_t *figures;

    if (!seen.good || value == NULL) {
        return value;
    }
    figures = json_pack("{s:o, s:o, s:o, s:I, s:I, s:o}", "min",
            extreme_json(&seen, false), "max", extreme_json(&seen, true),
            "mean", number_json(seen.figures.mean), "nan",
            (json_int_t)seen.figures.nan, "infinite",
            (json_int_t)seen.figures.infinite, "first", first_json(&seen));
    (void)json_object_update(value, figures);
    json_decref(figures);
    return value;
}

static json_t *
attributes_json(const struct rps_ni *ni, const struct rps_dumped_operator *op)
{
    json_t *all = json_object();
    const char *key;
    json_t *value;

    json_object_foreach(op->attributes, key, value)
    {
        if (is_asked(ni, key)) {
            (void)json_object_set(all, key, value);
        }
    }
    return all;
}

static json_t *
side_json(struct rps_ni *ni, const struct rps_ni_side *side,
        const struct rps_dumped_operator *op)
{
    json_t *inputs = json_array(), *outputs = json_array();

    for (uint32_t i = 0; i < op->input_count; i++) {
        (void)json_array_append_new(inputs, tensor_json(ni, op, false, i));
    }
    for (uint32_t i = 0; i < op->output_count; i++) {
        (void)json_array_append_new(outputs, tensor_json(ni, op, true, i));
    }
    return json_pack("{s:s, s:s, s:I, s:s?, s:o, s:o, s:o}", "side",
            side->title, "folder", side->dumped->folder, "step",
            (json_int_t)side->dumped->step, "holds", op->holds, "attributes",
            attributes_json(ni, op), "inputs", inputs, "outputs", outputs);
}

/* Figures of both sides: files' names are apart, anyway. */
static bool
is_equal(const json_t *left, const json_t *right, const char *key)
{
    const json_t *a = json_object_get(left, key);
    const json_t *b = json_object_get(right, key);
    bool equal = json_array_size(a) == json_array_size(b);

    for (size_t i = 0; equal && i < json_array_size(a); i++) {
        json_t *x = json_copy(json_array_get(a, i));
        json_t *y = json_copy(json_array_get(b, i));

        (void)json_object_del(x, "file");
        (void)json_object_del(y, "file");
        equal = json_equal(x, y);
        json_decref(x);
        json_decref(y);
    }
    return equal;
}

json_t *
rps_ni_pair_json(struct rps_ni *ni, const struct rps_ni_pair *pair)
{
    const struct rps_dumped_operator *one =
            pair->op[0] != NULL ? pair->op[0] : pair->op[1];
    json_t *sides = json_array();

    for (int i = 0; i < 2; i++) {
        if (pair->op[i] != NULL) {
            (void)json_array_append_new(
                    sides, side_json(ni, &ni->sides[i], pair->op[i]));
        }
    }
    if (ni->sides[1].dumped != NULL) {
        const json_t *left = json_array_get(sides, 0);
        const json_t *right = json_array_get(sides, 1);

        ni->differs = ni->differs || right == NULL ||
                      !is_equal(left, right, "inputs") ||
                      !is_equal(left, right, "outputs") ||
                      !json_equal(json_object_get(left, "attributes"),
                              json_object_get(right, "attributes"));
    }
    return json_pack("{s:s, s:s, s:I, s:o}", "type", one->type, "name",
            one->name, "occurrence", (json_int_t)one->occurrence, "sides",
            sides);
}
