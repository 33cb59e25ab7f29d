/* SPDX-License-Identifier: Apache-2.0 */
/* The endings: what the report says of each, and what to do. */
#include "base/text.h"
#include "client/precision/graph_place.h"
#include "client/precision/nan_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool
rps_nan_is_lookup(const struct rps_dumped_operator *op)
{
    return strcmp(op->type, "lookup") == 0;
}

bool
rps_nan_is_push(const struct rps_dumped_operator *op)
{
    return strcmp(op->type, "push") == 0;
}

bool
rps_nan_is_variables(const struct rps_dumped_operator *op)
{
    return strcmp(op->type, "variables") == 0;
}

static const struct rps_dumped_operator *
operator_of(
        const struct rps_nan_search *search, const struct rps_nan_spot *spot)
{
    return &search->report->dumped->operators[spot->op];
}

/* --- elements and keys ------------------------------------------------------
 */

void
rps_nan_note_elements(
        struct rps_nan_search *search, const struct rps_nan_spot *spot)
{
    struct rps_nan_report *report = search->report;
    struct rps_dumped_values values = {.count = 0};

    report->element_count = 0;
    if (!rps_nan_load(search, rps_nan_tensor(report, spot), &values)) {
        return;
    }
    for (uint64_t i = 0; i < values.count; i++) {
        if (rps_nan_is_dirty(search, values.numbers[i])) {
            if (report->element_count < RPS_NAN_ELEMENTS_MAX) {
                report->elements[report->element_count] = i;
            }
            report->element_count++;
        }
    }
    rps_dumped_values_free(&values);
}

/* The input that has keys; NULL: none. */
static const struct rps_dumped_tensor *
keys_of(const struct rps_dumped_operator *op)
{
    for (uint32_t i = 0; i < op->input_count; i++) {
        if (op->inputs[i].dtype == RPS_DUMP_U64 ||
                op->inputs[i].dtype == RPS_DUMP_I64) {
            return &op->inputs[i];
        }
    }
    return NULL;
}

static bool
is_row_dirty(
        const struct rps_nan_search *search, const double *row, uint64_t dim)
{
    for (uint64_t k = 0; k < dim; k++) {
        if (rps_nan_is_dirty(search, row[k])) {
            return true;
        }
    }
    return false;
}

static int
by_key(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;

    return *a < *b ? -1 : *a > *b ? 1 : 0;
}

/* A push may have a key once for each of its tokens. */
static void
note_distinct(struct rps_nan_report *report, uint64_t *keys, uint64_t count)
{
    qsort(keys, count, sizeof(keys[0]), by_key);
    for (uint64_t i = 0; i < count; i++) {
        if (i > 0 && keys[i] == keys[i - 1]) {
            continue;
        }
        if (report->key_count < RPS_NAN_KEYS_MAX) {
            report->keys[report->key_count] = keys[i];
        }
        report->key_count++;
    }
}

void
rps_nan_note_keys(
        struct rps_nan_search *search, const struct rps_nan_spot *spot)
{
    struct rps_nan_report *report = search->report;
    const struct rps_dumped_operator *op = operator_of(search, spot);
    const struct rps_dumped_tensor *keyed = keys_of(op);
    struct rps_dumped_values keys = {.count = 0}, rows = {.count = 0};

    free(report->table);
    report->table = strdup(op->name);
    search->failed = search->failed || report->table == NULL;
    report->key_count = 0;
    if (keyed != NULL && rps_nan_load(search, keyed, &keys) &&
            rps_nan_load(search, rps_nan_tensor(report, spot), &rows) &&
            keys.keys != NULL && keys.count > 0) {
        const uint64_t dim = rows.count / keys.count;
        const bool alone = report->ending == RPS_NAN_ARITHMETIC;
        uint64_t count = 0;

        for (uint64_t i = 0; dim > 0 && i < keys.count; i++) {
            if (alone ? spot->element / dim == i
                      : is_row_dirty(search, rows.numbers + i * dim, dim)) {
                keys.keys[count++] = keys.keys[i];
            }
        }
        note_distinct(report, keys.keys, count);
    }
    rps_dumped_values_free(&keys);
    rps_dumped_values_free(&rows);
}

/* --- endings ----------------------------------------------------------------
 */

/* Would --fusion off show its parts? It keeps the dots and what is beside them
 * together (docs/NPU_OPERATORS.md). */
static bool
may_be_parted(
        const struct rps_dumped *dumped, const struct rps_dumped_operator *op)
{
    const json_t *fusion = json_object_get(dumped->run, "fusion");

    return op->holds != NULL && strstr(op->holds, " + ") != NULL &&
           strcmp(op->type, "dots") != 0 &&
           !(json_is_string(fusion) &&
                   strcmp(json_string_value(fusion), "off") == 0);
}

void
rps_nan_end_at_operator(struct rps_nan_search *search,
        const struct rps_nan_spot *spot, const char *why)
{
    struct rps_nan_report *report = search->report;
    const struct rps_dumped_operator *op = operator_of(search, spot);

    report->ending = RPS_NAN_OPERATOR;
    report->cause = *spot;
    rps_nan_note_elements(search, spot);
    rps_nan_say(search, &report->words, "the operator %s %s is wrong: %s",
            op->type, op->name, why);
    if (may_be_parted(report->dumped, op)) {
        rps_nan_say(search, &report->words,
                "it is a fused one (%s): dump again with --fusion off to see "
                "which part",
                op->holds);
    }
}

void
rps_nan_end_unknown(struct rps_nan_search *search,
        const struct rps_nan_spot *spot, const char *why)
{
    struct rps_nan_report *report = search->report;
    const struct rps_dumped_operator *op = operator_of(search, spot);

    report->ending = RPS_NAN_UNKNOWN;
    report->cause = *spot;
    rps_nan_note_elements(search, spot);
    rps_nan_say(search, &report->words,
            "%s %s is where it begins, and whether it is wrong cannot be "
            "told: %s",
            op->type, op->name, why);
    if (!report->dumped->has_manifest) {
        rps_nan_say(search, &report->words,
                "the dump has no manifest: attributes of operators and where "
                "tensors lay are not known");
    }
}

/* What else ran in between: whose streams, which operators. */
static void
say_between(struct rps_nan_search *search, uint32_t from, uint32_t to)
{
    const struct rps_dumped *dumped = search->report->dumped;
    const uint32_t shown = 6;
    struct rps_text text = {.bytes = NULL};
    uint32_t count = 0;

    for (uint32_t i = from + 1; i < to; i++, count++) {
        if (count < shown) {
            rps_text_add(&text, "%s%s %s (stream %" PRIu64 ")",
                    count > 0 ? ", " : "", dumped->operators[i].type,
                    dumped->operators[i].name, dumped->operators[i].stream);
        }
    }
    if (text.failed) {
        search->failed = true;
    } else if (count == 0) {
        rps_nan_say(search, &search->report->words,
                "no operator ran between the two: a copy or the host did it");
    } else {
        rps_nan_say(search, &search->report->words,
                "between the two ran %u operators: %s%s", count, text.bytes,
                count > shown ? ", …" : "");
    }
    rps_text_finish(&text);
}

void
rps_nan_end_overwritten(struct rps_nan_search *search,
        const struct rps_nan_spot *spot, const struct rps_nan_spot *before)
{
    struct rps_nan_report *report = search->report;
    const struct rps_place place = rps_place_of(rps_nan_tensor(report, spot));
    char *read = rps_nan_spot_words(report->dumped, spot);
    char *wrote = rps_nan_spot_words(report->dumped, before);

    report->ending = RPS_NAN_OVERWRITTEN;
    report->cause = *spot;
    report->before = *before;
    report->before_step = report->dumped->step;
    rps_nan_note_elements(search, spot);
    if (report->element_count == 0) { /* finite, and another number */
        report->elements[report->element_count++] = spot->element;
    }
    search->failed = search->failed || read == NULL || wrote == NULL;
    if (read != NULL && wrote != NULL) {
        rps_nan_say(search, &report->words,
                "memory was overwritten between %s %s and %s %s",
                report->dumped->operators[before->op].type,
                report->dumped->operators[before->op].name,
                report->dumped->operators[spot->op].type,
                report->dumped->operators[spot->op].name);
        rps_nan_say(search, &report->words, "%s was written as %.9g", wrote,
                before->value);
        rps_nan_say(search, &report->words, "%s is %.9g when it is read", read,
                spot->value);
        if (place.count > 0) {
            rps_nan_say(search, &report->words,
                    "it lies at 0x%" PRIx64 "; %" PRIu64
                    " of its elements are not finite",
                    rps_place_address(&place, spot->element),
                    report->element_count);
        }
    }
    say_between(search, before->op, spot->op);
    if (rps_nan_is_push(operator_of(search, spot))) {
        rps_nan_note_keys(search, spot);
        rps_nan_say_keys(search, "these gradients are of");
    }
    free(read);
    free(wrote);
}
