/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns a call: the inputs that were loaded, the references of the outputs. The
 * laws stand in replay_*.c.
 */
#include "base/json.h"
#include "client/precision/replay_impl.h"

#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- laws by type -----------------------------------------------------------
 */

static const struct {
    const char *type;
    rps_replay_law *law;
    /* labels by position, for a dump that has none */
    const char *inputs[4];
} laws[] = {
        {"linear", rps_replay_linear, {"x", "weight", "bias"}},
        {"linear_relu", rps_replay_linear, {"x", "weight", "bias"}},
        {"linear_gelu", rps_replay_linear, {"x", "weight", "bias"}},
        {"bias", rps_replay_bias, {"bias"}},
        {"linear_backward", rps_replay_linear_backward, {NULL}},
        {"linear_dbias", rps_replay_linear_backward, {NULL}},
        {"linear_dweight", rps_replay_linear_backward, {NULL}},
        {"linear_dx", rps_replay_linear_backward, {NULL}},
        {"relu", rps_replay_function, {"x"}},
        {"gelu", rps_replay_function, {"x"}},
        {"tanh", rps_replay_function, {"x"}},
        {"sigmoid", rps_replay_function, {"x"}},
        {"relu_backward", rps_replay_function_backward, {"kept", "dy"}},
        {"gelu_backward", rps_replay_function_backward, {"kept", "dy"}},
        {"tanh_backward", rps_replay_function_backward, {"kept", "dy"}},
        {"sigmoid_backward", rps_replay_function_backward, {"kept", "dy"}},
        {"add", rps_replay_add, {"a", "b"}},
        {"scale", rps_replay_scale, {NULL}},
        {"fill", rps_replay_fill, {NULL}},
        {"cast", rps_replay_move, {"x"}},
        {"copy", rps_replay_move, {"x"}},
        {"contiguous", rps_replay_move, {"x"}},
        {"concat", rps_replay_concat, {NULL}},
        {"split", rps_replay_split, {NULL}},
        {"dots", rps_replay_dots, {"v"}},
        {"dots_backward", rps_replay_dots_backward, {NULL}},
        {"pooling", rps_replay_pooling, {NULL}},
        {"pooling_backward", rps_replay_pooling_backward, {NULL}},
        {"scatter", rps_replay_scatter, {NULL}},
        {"bce", rps_replay_bce, {NULL}},
        {"bce_loss", rps_replay_bce, {NULL}},
        {"bce_gradient", rps_replay_bce, {NULL}},
        {"dropout", rps_replay_dropout, {NULL}},
        {"unscale", rps_replay_unscale, {NULL}},
        {"finite", rps_replay_unscale, {NULL}},
        {"count", rps_replay_count, {NULL}},
        {"sgd", rps_replay_optimizer, {NULL}},
        {"adam", rps_replay_optimizer, {NULL}},
        {"adamw", rps_replay_optimizer, {NULL}},
};
#define LAWS (sizeof(laws) / sizeof(laws[0]))

static size_t
law_of(const char *type)
{
    size_t i = 0;

    while (i < LAWS && strcmp(laws[i].type, type) != 0) {
        i++;
    }
    return i;
}

/* --- what is wrong ----------------------------------------------------------
 */

void
rps_replay_stop(struct rps_replay_call *call, enum rps_replay_verdict verdict,
        const char *format, ...)
{
    va_list list;

    if (rps_replay_stopped(call)) {
        return;
    }
    call->verdict = verdict;
    va_start(list, format);
    (void)vsnprintf(call->words, sizeof(call->words), format, list);
    va_end(list);
}

double *
rps_replay_array(struct rps_replay_call *call, uint64_t count)
{
    double *array = NULL;

    if (count < SIZE_MAX / sizeof(*array)) {
        array = calloc(count + 1, sizeof(*array));
    }
    call->no_memory = call->no_memory || array == NULL;
    return array;
}

/* --- inputs and outputs -----------------------------------------------------
 */

/* Is it one of "a|b"? */
static bool
is_among(const char *label, const char *labels)
{
    const size_t length = strlen(label);

    for (const char *at = labels; at != NULL;) {
        const char *end = strchr(at, '|');
        const size_t n = end != NULL ? (size_t)(end - at) : strlen(at);

        if (n == length && memcmp(at, label, n) == 0) {
            return true;
        }
        at = end != NULL ? end + 1 : NULL;
    }
    return false;
}

static bool
has_labels(const struct rps_dumped_operator *op)
{
    for (uint32_t i = 0; i < op->input_count; i++) {
        if (op->inputs[i].label != NULL) {
            return true;
        }
    }
    for (uint32_t i = 0; i < op->output_count; i++) {
        if (op->outputs[i].label != NULL) {
            return true;
        }
    }
    return false;
}

static const char *
label_of(const struct rps_dumped_operator *op, uint32_t input)
{
    const size_t law = law_of(op->type);

    if (op->inputs[input].label != NULL || has_labels(op)) {
        return op->inputs[input].label;
    }
    return law < LAWS && input < 4 ? laws[law].inputs[input] : NULL;
}

static struct rps_operand
load(struct rps_replay_call *call, uint32_t index)
{
    const struct rps_dumped_tensor *tensor = &call->op->inputs[index];
    struct rps_dumped_values *values = &call->inputs[index];
    struct rps_error error = {.text = ""};

    if (!call->loaded[index]) {
        const rps_status status = rps_dumped_load(tensor, values, &error);

        call->loaded[index] = status == RPS_OK;
        call->no_memory = call->no_memory || status == RPS_E_NOMEM;
        if (status != RPS_OK) {
            rps_replay_stop(call, RPS_REPLAY_UNREADABLE, "%s", error.text);
            return (struct rps_operand){0};
        }
    }
    return (struct rps_operand){
            .tensor = tensor, .n = values->numbers, .count = values->count};
}

struct rps_operand
rps_replay_nth(struct rps_replay_call *call, uint32_t index)
{
    if (rps_replay_stopped(call) || index >= call->op->input_count) {
        return (struct rps_operand){0};
    }
    return load(call, index);
}

struct rps_operand
rps_replay_input(struct rps_replay_call *call, const char *labels)
{
    for (uint32_t i = 0; i < call->op->input_count; i++) {
        const char *label = label_of(call->op, i);

        if (label != NULL && is_among(label, labels)) {
            return rps_replay_nth(call, i);
        }
    }
    return (struct rps_operand){0};
}

struct rps_operand
rps_replay_need(
        struct rps_replay_call *call, const char *labels, uint64_t count)
{
    const struct rps_operand operand = rps_replay_input(call, labels);

    if (operand.tensor == NULL) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "its input %s is not in the dump, or not said to be it",
                labels);
    } else if (count != UINT64_MAX && operand.count != count) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "its input %s has %" PRIu64 " elements; the law needs %" PRIu64,
                labels, operand.count, count);
    }
    return operand;
}

/* As many elements as its file has: a manifest may say anything. */
static struct rps_reference *
begin_output(struct rps_replay_call *call, uint32_t index)
{
    struct rps_reference *reference = &call->outputs[index];
    struct rps_dumped_stream stream;
    struct rps_error error = {.text = ""};

    if (reference->tensor != NULL) {
        return reference;
    }
    if (rps_dumped_stream_open(&stream, &call->op->outputs[index], &error) !=
            RPS_OK) {
        rps_replay_stop(call, RPS_REPLAY_UNREADABLE, "%s", error.text);
        return NULL;
    }
    reference->count = stream.count;
    rps_dumped_stream_close(&stream);
    reference->value = rps_replay_array(call, reference->count);
    reference->tolerance = rps_replay_array(call, reference->count);
    reference->tensor = &call->op->outputs[index];
    return call->no_memory ? NULL : reference;
}

struct rps_reference *
rps_replay_nth_output(struct rps_replay_call *call, uint32_t index)
{
    if (rps_replay_stopped(call) || index >= call->op->output_count) {
        return NULL;
    }
    return begin_output(call, index);
}

struct rps_reference *
rps_replay_output(struct rps_replay_call *call, const char *labels)
{
    for (uint32_t i = 0; i < call->op->output_count; i++) {
        const char *label = call->op->outputs[i].label;

        if (label != NULL && is_among(label, labels)) {
            return rps_replay_nth_output(call, i);
        }
    }
    return NULL;
}

struct rps_reference *
rps_replay_result(
        struct rps_replay_call *call, const char *labels, uint64_t count)
{
    struct rps_reference *reference = rps_replay_output(call, labels);

    if (reference == NULL && call->op->output_count == 1) {
        reference = rps_replay_nth_output(call, 0);
    }
    if (reference == NULL) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "its output %s is not in the dump, or not said to be it",
                labels);
    } else if (count != UINT64_MAX && reference->count != count) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "its output %s has %" PRIu64
                " elements; the law gives %" PRIu64,
                labels, reference->count, count);
        return NULL;
    }
    return reference;
}

uint64_t
rps_replay_columns(const struct rps_dumped_tensor *tensor)
{
    return tensor->ndim > 0 ? tensor->shape[tensor->ndim - 1] : 1;
}

struct rps_operand
rps_replay_old(struct rps_replay_call *call, const char *labels, uint64_t count)
{
    const json_t *said = json_object_get(call->op->attributes, "accumulate");

    if (json_is_false(said)) {
        return (struct rps_operand){0};
    }
    return json_is_true(said) ? rps_replay_need(call, labels, count)
                              : rps_replay_input(call, labels);
}

/* --- attributes -------------------------------------------------------------
 */

bool
rps_replay_has_word(
        const struct rps_replay_call *call, const char *key, const char *word)
{
    const json_t *value = json_object_get(call->op->attributes, key);

    return json_is_string(value) && strcmp(json_string_value(value), word) == 0;
}

double
rps_replay_number(struct rps_replay_call *call, const char *key)
{
    const json_t *value = json_object_get(call->op->attributes, key);

    if (json_is_string(value)) { /* JSON has no infinity and no NaN */
        const char *word = json_string_value(value);

        if (strcmp(word, "nan") == 0) {
            return (double)NAN;
        }
        if (strcmp(word, "inf") == 0 || strcmp(word, "-inf") == 0) {
            return word[0] == '-' ? -(double)INFINITY : (double)INFINITY;
        }
    }
    if (!json_is_number(value)) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "its attribute \"%s\" is not in the dump", key);
        return 0.0;
    }
    return json_number_value(value);
}

uint64_t
rps_replay_whole(struct rps_replay_call *call, const char *key)
{
    uint64_t whole = 0;

    if (!rps_json_whole(json_object_get(call->op->attributes, key), &whole)) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "its attribute \"%s\" is not in the dump", key);
    }
    return whole;
}

/* The operator's own flag, else the run's word. */
static bool
has_mode(const struct rps_replay_call *call, const char *flag,
        const json_t *run, const char *key, const char *word)
{
    const json_t *own = json_object_get(call->op->attributes, flag);
    const json_t *value = json_object_get(run, key);

    if (json_is_boolean(own)) {
        return json_is_true(own);
    }
    return json_is_string(value) && strcmp(json_string_value(value), word) == 0;
}

/* --- comparing --------------------------------------------------------------
 */

/* Beyond it an f32 (or bf16, whose exponents are the same) is an infinity. */
static bool
may_overflow(
        const struct rps_reference *reference, double value, double tolerance)
{
    return reference->tensor->dtype != RPS_DUMP_F64 &&
           fabs(value) + tolerance >= (double)FLT_MAX;
}

static bool
agrees(const struct rps_reference *reference, double got, double value,
        double tolerance)
{
    if (isinf(tolerance) && isfinite(value)) {
        return true;
    }
    if (isnan(value) || isnan(got)) {
        return isnan(value) && isnan(got);
    }
    if (isinf(value)) {
        return got == value;
    }
    if (isinf(got)) {
        return may_overflow(reference, value, tolerance) &&
               (got > 0.0) == (value > 0.0);
    }
    return fabs(got - value) <= tolerance;
}

static void
compare(const struct rps_reference *reference, const double *got,
        struct rps_replayed_output *output)
{
    output->checked = true;
    for (uint64_t i = 0; i < reference->count; i++) {
        const double value = reference->value[i];
        const double tolerance = reference->tolerance[i];
        const double off = fabs(got[i] - value);

        if (!agrees(reference, got[i], value, tolerance)) {
            if (output->elements++ == 0) {
                output->first = i;
                output->got = got[i];
                output->expected = value;
                output->tolerance = tolerance;
            }
        }
        if (isfinite(off) && isfinite(tolerance)) {
            const double share = off > 0.0 ? off / tolerance : 0.0;

            output->worst = share > output->worst ? share : output->worst;
            output->error = off > output->error ? off : output->error;
        }
    }
}

/* "output 0 (y): 3 of 128 elements; the first one, 17, is 2.5, should be 1
 * within 1e-06" */
static void
say_difference(struct rps_replay_call *call, uint32_t index,
        const struct rps_replayed_output *output)
{
    const struct rps_dumped_tensor *tensor = &call->op->outputs[index];
    const char *label = tensor->label != NULL ? tensor->label : "";

    rps_replay_stop(call, RPS_REPLAY_DIFFERS,
            "output %u%s%s%s: %" PRIu64 " of %" PRIu64
            " elements are not what its inputs give; the first one, %" PRIu64
            ", is %.9g and should be %.9g within %.2g",
            tensor->index, *label != '\0' ? " (" : "", label,
            *label != '\0' ? ")" : "", output->elements,
            call->outputs[index].count, output->first, output->got,
            output->expected, output->tolerance);
}

static void
compare_output(struct rps_replay_call *call, uint32_t index,
        struct rps_replayed *replayed)
{
    struct rps_dumped_values got = {0};
    struct rps_error error = {.text = ""};
    const struct rps_reference *reference = &call->outputs[index];
    const rps_status status = rps_dumped_load(reference->tensor, &got, &error);

    if (status != RPS_OK) {
        call->no_memory = call->no_memory || status == RPS_E_NOMEM;
        rps_replay_stop(call, RPS_REPLAY_UNREADABLE, "%s", error.text);
        return;
    }
    if (got.count == reference->count) {
        compare(reference, got.numbers, &replayed->outputs[index]);
    }
    rps_dumped_values_free(&got);
}

static void
compare_all(struct rps_replay_call *call, struct rps_replayed *replayed)
{
    for (uint32_t i = 0; i < call->op->output_count; i++) {
        if (call->outputs[i].tensor == NULL || rps_replay_stopped(call)) {
            continue;
        }
        compare_output(call, i, replayed);
    }
    for (uint32_t i = 0; i < call->op->output_count; i++) {
        if (replayed->outputs[i].elements > 0) {
            say_difference(call, i, &replayed->outputs[i]);
        }
    }
}

/* --- one operator -----------------------------------------------------------
 */

static void
finish(struct rps_replay_call *call)
{
    for (uint32_t i = 0; i < RPS_DUMP_TENSORS_MAX; i++) {
        if (call->loaded[i]) {
            rps_dumped_values_free(&call->inputs[i]);
        }
        free(call->outputs[i].value);
        free(call->outputs[i].tolerance);
    }
    free(call);
}

static void
follow_law(struct rps_replay_call *call, struct rps_replayed *replayed)
{
    const size_t law = law_of(call->op->type);

    if (law == LAWS) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "there is no reference for operators of type \"%s\"",
                call->op->type);
    } else if (call->op->input_count > RPS_DUMP_TENSORS_MAX ||
               call->op->output_count > RPS_DUMP_TENSORS_MAX) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "it has more than %u inputs or outputs", RPS_DUMP_TENSORS_MAX);
    } else {
        laws[law].law(call);
        compare_all(call, replayed);
    }
}

rps_status
rps_replay(const struct rps_dumped *dumped, uint32_t index,
        struct rps_replayed *replayed, struct rps_error *error)
{
    struct rps_replay_call *call = calloc(1, sizeof(*call));
    bool failed = call == NULL;

    *replayed = (struct rps_replayed){0};
    if (call != NULL) {
        call->op = &dumped->operators[index];
        call->mixed =
                has_mode(call, "mixed", dumped->run, "precision_mode", "mixed");
        call->precise = has_mode(
                call, "precise", dumped->run, "implmode", "high_precision");
        follow_law(call, replayed);
        replayed->verdict = call->verdict;
        replayed->output_count = call->op->output_count < RPS_DUMP_TENSORS_MAX
                                         ? call->op->output_count
                                         : RPS_DUMP_TENSORS_MAX;
        failed = call->no_memory;
        if (!failed && call->verdict != RPS_REPLAY_AGREES) {
            replayed->words = strdup(call->words);
            failed = replayed->words == NULL;
        }
        finish(call);
    }
    if (failed) {
        rps_replayed_free(replayed);
        return rps_fail(error, RPS_E_NOMEM, "%s %s: no memory to replay it",
                dumped->operators[index].type, dumped->operators[index].name);
    }
    return RPS_OK;
}

void
rps_replayed_free(struct rps_replayed *replayed)
{
    free(replayed->words);
    *replayed = (struct rps_replayed){0};
}
