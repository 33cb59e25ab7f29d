/* SPDX-License-Identifier: Apache-2.0 */
/* A comparison for programs. */
#include "base/text.h"
#include "client/cli/key.h"
#include "client/cli/precision_compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What JSON has no number for is text: "nan", "inf". */
static json_t *
number_json(double number)
{
    if (isnan(number)) {
        return json_string("nan");
    }
    return isinf(number) ? json_string(number > 0 ? "inf" : "-inf")
                         : json_real(number);
}

static json_t *
count_json(uint64_t count)
{
    return json_integer((json_int_t)count);
}

static json_t *
shape_json(const struct rps_dumped_tensor *tensor)
{
    json_t *shape = json_array();

    for (uint32_t d = 0; tensor != NULL && d < tensor->ndim; d++) {
        json_array_append_new(shape, count_json(tensor->shape[d]));
    }
    return shape;
}

/* A path need not be UTF-8. */
static json_t *
text_json(const char *text)
{
    json_t *value = text != NULL ? json_string(text) : json_null();

    return value != NULL ? value : json_string("(not UTF-8)");
}

static void
set_figures(json_t *object, const struct rps_compared_tensor *tensor)
{
    json_object_set_new(object, "cosine", number_json(tensor->cosine));
    json_object_set_new(object, "apart", number_json(1.0 - tensor->cosine));
    json_object_set_new(
            object, "max_absolute", number_json(tensor->max_absolute));
    json_object_set_new(
            object, "max_relative", number_json(tensor->max_relative));
    json_object_set_new(
            object, "mean_absolute", number_json(tensor->mean_absolute));
    json_object_set_new(
            object, "length_ratio", number_json(tensor->length_ratio));
    json_object_set_new(object, "left_nan", count_json(tensor->left_nan));
    json_object_set_new(object, "left_inf", count_json(tensor->left_inf));
    json_object_set_new(object, "right_nan", count_json(tensor->right_nan));
    json_object_set_new(object, "right_inf", count_json(tensor->right_inf));
    json_object_set_new(
            object, "equal_bytes", json_boolean(tensor->equal_bytes));
    json_object_set_new(object, "rows_differ", count_json(tensor->rows_differ));
    if (tensor->has_rows) {
        json_object_set_new(
                object, "row_cosine", number_json(tensor->row_cosine));
        json_object_set_new(object, "row_key", rps_key_json(tensor->row_key));
    }
}

static json_t *
tensor_json(const struct rps_compared_tensor *tensor)
{
    const struct rps_dumped_tensor *left = tensor->left;
    const struct rps_dumped_tensor *right = tensor->right;
    const struct rps_dumped_tensor *one = left != NULL ? left : right;
    json_t *object = json_object();

    json_object_set_new(object, "index", count_json(tensor->index));
    json_object_set_new(
            object, "label", text_json(one != NULL ? one->label : NULL));
    json_object_set_new(
            object, "left_file", text_json(left != NULL ? left->file : NULL));
    json_object_set_new(object, "right_file",
            text_json(right != NULL ? right->file : NULL));
    json_object_set_new(object, "left_shape", shape_json(left));
    json_object_set_new(object, "right_shape", shape_json(right));
    json_object_set_new(object, "agrees", json_boolean(tensor->agrees));
    json_object_set_new(object, "problem", text_json(tensor->problem));
    if (tensor->readable) {
        set_figures(object, tensor);
    }
    return object;
}

static json_t *
keys_json(const struct rps_compared *compared)
{
    json_t *keys = json_array();

    for (uint64_t i = 0; i < compared->keys_differ && i < RPS_COMPARE_KEYS_MAX;
            i++) {
        json_array_append_new(keys, rps_key_json(compared->keys[i]));
    }
    return keys;
}

static json_t *
operator_json(const struct rps_compared *compared)
{
    json_t *object = json_object();
    json_t *tensors[2] = {json_array(), json_array()};

    for (uint32_t i = 0; i < compared->tensor_count; i++) {
        json_array_append_new(tensors[compared->tensors[i].is_output ? 1 : 0],
                tensor_json(&compared->tensors[i]));
    }
    json_object_set_new(object, "left", text_json(compared->left_names));
    json_object_set_new(object, "right", text_json(compared->right_names));
    json_object_set_new(object, "type", text_json(compared->type));
    json_object_set_new(object, "name", text_json(compared->name));
    json_object_set_new(object, "agrees",
            json_boolean(compared->inputs_agree && compared->outputs_agree));
    json_object_set_new(object, "not_compared",
            count_json((uint64_t)compared->unread_inputs +
                       compared->unread_outputs));
    json_object_set_new(
            object, "input_cosine", number_json(compared->input_cosine));
    json_object_set_new(
            object, "output_cosine", number_json(compared->output_cosine));
    json_object_set_new(object, "inputs", tensors[0]);
    json_object_set_new(object, "outputs", tensors[1]);
    if (compared->has_keys) {
        json_object_set_new(
                object, "keys_differ", count_json(compared->keys_differ));
        json_object_set_new(object, "keys", keys_json(compared));
        json_object_set_new(
                object, "keys_left", count_json(compared->keys_left));
        json_object_set_new(
                object, "keys_right", count_json(compared->keys_right));
    }
    return object;
}

static json_t *
step_json(const struct rps_compare_step *step, const char *only)
{
    const struct rps_comparison *comparison = step->comparison;
    json_t *object = json_object();
    json_t *operators = json_array();
    json_t *problems = json_array();
    const char *problem;
    uint64_t at = 0;

    for (uint32_t i = 0; i < comparison->operator_count; i++) {
        if (rps_compared_is(&comparison->operators[i], only)) {
            json_array_append_new(
                    operators, operator_json(&comparison->operators[i]));
        }
    }
    while ((problem = rps_compare_next_problem(step, &at)) != NULL) {
        json_array_append_new(problems, text_json(problem));
    }
    json_object_set_new(object, "step", count_json(step->step));
    json_object_set_new(object, "left", text_json(step->left->folder));
    json_object_set_new(object, "right", text_json(step->right->folder));
    json_object_set_new(object, "verdict",
            json_string(rps_compare_verdict_name(comparison->verdict)));
    json_object_set_new(object, "words", text_json(comparison->words));
    json_object_set_new(object, "only_left", count_json(comparison->only_left));
    json_object_set_new(
            object, "only_right", count_json(comparison->only_right));
    json_object_set_new(
            object, "files", count_json(comparison->compared_files));
    json_object_set_new(
            object, "equal_files", count_json(comparison->equal_files));
    json_object_set_new(object, "operators", operators);
    json_object_set_new(object, "problems", problems);
    return object;
}

static json_t *
alone_json(const uint64_t *steps, uint32_t count)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < count; i++) {
        json_array_append_new(list, count_json(steps[i]));
    }
    return list;
}

json_t *
rps_compare_run_json(
        const struct rps_compare_run *run, const char *only, bool same)
{
    const struct rps_compare_step *first = run->first;
    json_t *object = json_object();
    json_t *steps = json_array();

    for (uint32_t i = 0; i < run->count; i++) {
        json_array_append_new(steps, step_json(&run->steps[i], only));
    }
    json_object_set_new(object, "same", json_boolean(same));
    json_object_set_new(object, "verdict",
            json_string(rps_compare_verdict_name(
                    first != NULL ? first->comparison->verdict
                                  : RPS_VERDICT_SAME)));
    json_object_set_new(object, "step",
            first != NULL ? count_json(first->step) : json_null());
    json_object_set_new(object, "operator",
            first != NULL && first->comparison->operator_count > 0 &&
                            first->comparison->verdict !=
                                    RPS_VERDICT_INCOMPARABLE
                    ? operator_json(
                              &first->comparison
                                       ->operators[first->comparison->first])
                    : json_null());
    json_object_set_new(object, "words",
            first != NULL ? text_json(first->comparison->words) : json_null());
    json_object_set_new(object, "problems", count_json(run->problems));
    json_object_set_new(object, "left_alone",
            alone_json(run->left_alone, run->left_alone_count));
    json_object_set_new(object, "right_alone",
            alone_json(run->right_alone, run->right_alone_count));
    json_object_set_new(object, "steps", steps);
    return object;
}
