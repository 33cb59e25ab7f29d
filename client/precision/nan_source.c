/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Endings outside of the step's operators: tables, servers, the host, the step
 * before. Owns a step's dump that it looks into.
 */
#include "base/text.h"
#include "client/precision/graph_place.h"
#include "client/precision/nan_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "keys 4, 17 and 3 more"; free(). NULL: no memory. */
static char *
key_words(const struct rps_nan_report *report)
{
    const uint64_t shown = 8;
    struct rps_text text = {.bytes = NULL};

    rps_text_add(&text, report->key_count == 1 ? "key" : "keys");
    for (uint64_t i = 0; i < report->key_count && i < shown; i++) {
        rps_text_add(&text, "%s %" PRIu64, i > 0 ? "," : "", report->keys[i]);
    }
    if (report->key_count > shown) {
        rps_text_add(&text, " and %" PRIu64 " more", report->key_count - shown);
    }
    if (text.failed) {
        rps_text_finish(&text);
        return NULL;
    }
    return text.bytes;
}

/* --- tables -----------------------------------------------------------------
 */

void
rps_nan_say_keys(struct rps_nan_search *search, const char *before)
{
    struct rps_nan_report *report = search->report;
    char *keys = key_words(report);

    search->failed = search->failed || keys == NULL;
    if (keys != NULL && report->key_count > 0) {
        rps_nan_say(search, &report->words, "%s table \"%s\", %s", before,
                report->table, keys);
    } else if (keys != NULL) {
        rps_nan_say(search, &report->words,
                "%s \"%s\", whose keys are not in the dump", before,
                report->table);
    }
    free(keys);
}

static void
end_at_variables(struct rps_nan_search *search, const struct rps_nan_spot *spot)
{
    struct rps_nan_report *report = search->report;
    const struct rps_dumped_operator *op = &report->dumped->operators[spot->op];

    report->ending = RPS_NAN_HOST;
    rps_nan_say(search, &report->words,
            "the servers returned it for the dense variable %s: its start "
            "value, or what an earlier step pushed",
            op->name);
}

void
rps_nan_end_at_lookup(
        struct rps_nan_search *search, const struct rps_nan_spot *spot)
{
    struct rps_nan_report *report = search->report;

    report->cause = *spot;
    rps_nan_note_elements(search, spot);
    if (!rps_nan_is_lookup(&report->dumped->operators[spot->op])) {
        end_at_variables(search, spot);
        return;
    }
    report->ending = RPS_NAN_EMBEDDING;
    rps_nan_note_keys(search, spot);
    rps_nan_say_keys(search, "the lookup returned rows that are not finite:");
    if (report->key_count > 0) {
        rps_nan_say(search, &report->words,
                "look at a row with `recps lookup %s %" PRIu64
                "`; earlier steps' pushes of it, where they are dumped, say "
                "who made it so",
                report->table, report->keys[0]);
    }
}

/* Of a table, with its keys; or of a dense variable, which has none. */
static void
end_at_push(struct rps_nan_search *search, const struct rps_nan_spot *spot)
{
    struct rps_nan_report *report = search->report;

    report->ending = RPS_NAN_PUSH;
    rps_nan_note_keys(search, spot);
    rps_nan_say_keys(search,
            "the gradients that are pushed are not finite, and no operator "
            "wrote them so:");
    rps_nan_say(search, &report->words,
            "they changed between the last operator and the push: their copy "
            "to the host, or the sum of a key's gradients");
}

/* A lookup of this step whose rows are not finite. */
static bool
find_lookup(struct rps_nan_search *search, struct rps_nan_spot *spot_out)
{
    const struct rps_dumped *dumped = search->report->dumped;

    for (uint32_t i = 0; i < dumped->operator_count; i++) {
        const struct rps_dumped_operator *op = &dumped->operators[i];

        for (uint32_t o = 0; rps_nan_is_lookup(op) && o < op->output_count;
                o++) {
            struct rps_nan_spot spot = {.op = i, .is_output = true, .index = o};

            if (rps_nan_look(
                        search, &op->outputs[o], &spot.element, &spot.value)) {
                *spot_out = spot;
                return true;
            }
        }
    }
    return false;
}

/* --- the step before --------------------------------------------------------
 */

/* The newest output of a step that was at an address. */
static bool
find_at_place(const struct rps_dumped *dumped, uint64_t address,
        struct rps_nan_spot *spot_out)
{
    for (uint32_t i = dumped->operator_count; i-- > 0;) {
        for (uint32_t o = 0; o < dumped->operators[i].output_count; o++) {
            const struct rps_place place =
                    rps_place_of(&dumped->operators[i].outputs[o]);
            const struct rps_place_found found =
                    rps_place_find(&place, address);

            if (found.is_there) {
                *spot_out = (struct rps_nan_spot){.op = i,
                        .is_output = true,
                        .index = o,
                        .element = found.element};
                return true;
            }
        }
    }
    return false;
}

static bool
end_between_steps(struct rps_nan_search *search,
        const struct rps_nan_spot *spot, const struct rps_dumped *before)
{
    struct rps_nan_report *report = search->report;
    const struct rps_place place = rps_place_of(rps_nan_tensor(report, spot));
    struct rps_dumped_values values = {.count = 0};
    struct rps_nan_spot writer;
    bool ended = false;

    if (place.count == 0 ||
            !find_at_place(before, rps_place_address(&place, spot->element),
                    &writer)) {
        return false;
    }
    if (rps_nan_load(search,
                &before->operators[writer.op].outputs[writer.index], &values) &&
            writer.element < values.count &&
            !rps_nan_is_dirty(search, values.numbers[writer.element])) {
        report->before_words = rps_nan_spot_words(before, &writer);
        search->failed = search->failed || report->before_words == NULL;
        report->before_step = before->step;
        report->ending = RPS_NAN_OVERWRITTEN;
        ended = !search->failed;
    }
    if (ended) {
        rps_nan_say(search, &report->words,
                "memory was overwritten between step %" PRIu64
                ", where %s was written as %.9g, and %s %s of step %" PRIu64,
                before->step, report->before_words,
                values.numbers[writer.element],
                report->dumped->operators[spot->op].type,
                report->dumped->operators[spot->op].name, report->dumped->step);
    }
    rps_dumped_values_free(&values);
    return ended;
}

/* true: an ending was found there. */
static bool
look_at_step_before(
        struct rps_nan_search *search, const struct rps_nan_spot *spot)
{
    struct rps_dumped *before = NULL;
    bool ended = false;

    if (search->step == 0 || search->steps->steps[search->step - 1] + 1 !=
                                     search->steps->steps[search->step]) {
        return false;
    }
    if (rps_dumped_open(search->steps->folders[search->step - 1], &before,
                NULL) == RPS_OK) {
        ended = end_between_steps(search, spot, before);
        rps_dumped_close(before);
    }
    return ended;
}

/* --- by contents ------------------------------------------------------------
 */

/* Two tensors differ in what is not finite alone; in less than half, unless
 * they are known to be one. */
static bool
is_overwritten(const struct rps_nan_search *search,
        const struct rps_dumped_values *read,
        const struct rps_dumped_values *wrote, bool known,
        uint64_t *element_out)
{
    uint64_t differ = 0;

    for (uint64_t i = 0; i < read->count; i++) {
        if (read->numbers[i] == wrote->numbers[i]) {
            continue;
        }
        if (!rps_nan_is_dirty(search, read->numbers[i]) ||
                rps_nan_is_dirty(search, wrote->numbers[i])) {
            return false;
        }
        *element_out = differ++ == 0 ? i : *element_out;
    }
    return differ > 0 && (known || differ < read->count - differ);
}

/* "bot.0.weight", of "bot.0/linear"'s input "weight". */
static bool
is_its_variable(const struct rps_dumped_operator *variables,
        const struct rps_dumped_operator *reader, const char *label)
{
    const char *slash = strrchr(reader->name, '/');
    const size_t part = slash != NULL ? (size_t)(slash - reader->name) : 0;

    return label != NULL && part > 0 &&
           strncmp(variables->name, reader->name, part) == 0 &&
           variables->name[part] == '.' &&
           strcmp(variables->name + part + 1, label) == 0;
}

/* Was an output, perhaps, what the spot's input should be? A device has copies
 * of the servers' variables, in memory of its own. */
static bool
may_be_one(const struct rps_dumped_operator *writer,
        const struct rps_dumped_tensor *output,
        const struct rps_dumped_tensor *input)
{
    return output->ndim == input->ndim &&
           memcmp(output->shape, input->shape,
                   input->ndim * sizeof(input->shape[0])) == 0 &&
           (rps_nan_is_variables(writer) ||
                   (input->place == 0 && output->place == 0));
}

/* Looks at one output; false: it is none. */
static bool
is_alike(struct rps_nan_search *search, struct rps_nan_spot *spot,
        const struct rps_dumped_values *read, struct rps_nan_spot *before)
{
    const struct rps_dumped *dumped = search->report->dumped;
    const struct rps_dumped_operator *writer = &dumped->operators[before->op];
    const struct rps_dumped_tensor *output = &writer->outputs[before->index];
    const struct rps_dumped_tensor *input =
            rps_nan_tensor(search->report, spot);
    struct rps_dumped_values wrote = {.count = 0};
    bool found = false;

    if (may_be_one(writer, output, input) &&
            rps_nan_load(search, output, &wrote) &&
            wrote.count == read->count) {
        found = is_overwritten(search, read, &wrote,
                rps_nan_is_variables(writer) &&
                        is_its_variable(writer, &dumped->operators[spot->op],
                                input->label),
                &spot->element);
    }
    if (found) {
        spot->value = read->numbers[spot->element];
        before->element = spot->element;
        before->value = wrote.numbers[spot->element];
    }
    rps_dumped_values_free(&wrote);
    return found;
}

static bool
find_alike(struct rps_nan_search *search, struct rps_nan_spot *spot,
        const struct rps_dumped_values *read, struct rps_nan_spot *before_out)
{
    const struct rps_dumped *dumped = search->report->dumped;

    for (uint32_t i = spot->op; i-- > 0;) {
        for (uint32_t o = 0; o < dumped->operators[i].output_count; o++) {
            *before_out = (struct rps_nan_spot){
                    .op = i, .is_output = true, .index = o};
            if (is_alike(search, spot, read, before_out)) {
                return true;
            }
        }
    }
    return false;
}

static bool
look_for_alike(struct rps_nan_search *search, const struct rps_nan_spot *given)
{
    struct rps_nan_spot spot = *given, before;
    struct rps_dumped_values read = {.count = 0};
    bool found = false;

    if (rps_nan_load(search, rps_nan_tensor(search->report, given), &read)) {
        found = find_alike(search, &spot, &read, &before);
    }
    rps_dumped_values_free(&read);
    if (found) {
        rps_nan_end_overwritten(search, &spot, &before);
        rps_nan_say(search, &search->report->words,
                "where it lay says nothing of the two: they are taken for one "
                "because all other elements are equal");
    }
    return found;
}

/* --- the host ---------------------------------------------------------------
 */

static void
end_at_host(struct rps_nan_search *search, const struct rps_nan_spot *spot)
{
    struct rps_nan_report *report = search->report;
    const uint64_t step = report->dumped->step;
    char *words = rps_nan_spot_words(report->dumped, spot);

    report->ending = RPS_NAN_HOST;
    search->failed = search->failed || words == NULL;
    if (words == NULL) {
        return;
    }
    if (step == 0) {
        rps_nan_say(search, &report->words,
                "%s: no operator wrote it, it came from the host: data, or a "
                "start value",
                words);
    } else {
        rps_nan_say(search, &report->words,
                "%s: no operator of this step wrote it, it came from the host "
                "(data, a start value) or from the step before; dump that one, "
                "too: --dump-step '%" PRIu64 "|%" PRIu64 "'",
                words, step - 1, step);
    }
    if (rps_nan_tensor(report, spot)->place == 0) {
        rps_nan_say(search, &report->words,
                "the dump does not say where tensors lay: no earlier output "
                "has its contents, and whether memory was overwritten cannot "
                "be told");
    }
    free(words);
}

void
rps_nan_end_at_source(
        struct rps_nan_search *search, const struct rps_nan_spot *spot)
{
    struct rps_nan_report *report = search->report;
    struct rps_nan_spot lookup;

    if (!rps_nan_is_push(&report->dumped->operators[spot->op]) &&
            find_lookup(search, &lookup)) {
        rps_nan_end_at_lookup(search, &lookup);
        return;
    }
    report->cause = *spot;
    rps_nan_note_elements(search, spot);
    if (look_for_alike(search, spot) || look_at_step_before(search, spot)) {
        return;
    }
    if (rps_nan_is_push(&report->dumped->operators[spot->op])) {
        end_at_push(search, spot);
    } else {
        end_at_host(search, spot);
    }
}

/* --- where numbers that grow come from --------------------------------------
 */

/* A device reads tables' rows from memory that the host filled: the row that
 * has such a number. */
static void
find_row(struct rps_nan_search *search)
{
    struct rps_nan_report *report = search->report;
    const struct rps_dumped *dumped = report->dumped;
    const double value = report->cause.value;

    for (uint32_t i = 0; i < dumped->operator_count; i++) {
        const struct rps_dumped_operator *op = &dumped->operators[i];
        struct rps_dumped_values rows = {.count = 0};

        if (!rps_nan_is_lookup(op) || op->output_count == 0 ||
                !rps_nan_load(search, &op->outputs[0], &rows)) {
            continue;
        }
        for (uint64_t e = 0; e < rows.count; e++) {
            if (rows.numbers[e] == value) {
                report->cause = (struct rps_nan_spot){.op = i,
                        .is_output = true,
                        .element = e,
                        .value = value};
                rps_dumped_values_free(&rows);
                return;
            }
        }
        rps_dumped_values_free(&rows);
    }
}

void
rps_nan_end_at_growth(struct rps_nan_search *search)
{
    struct rps_nan_report *report = search->report;
    const struct rps_dumped_operator *op = NULL;

    if (!report->cause.is_output) {
        find_row(search);
    }
    op = &report->dumped->operators[report->cause.op];
    if (rps_nan_is_lookup(op)) {
        char before[64];

        (void)snprintf(before, sizeof(before),
                "the largest number, %.9g, is of", report->cause.value);
        rps_nan_note_keys(search, &report->cause);
        rps_nan_say_keys(search, before);
    } else if (op->input_count > 0 && !report->cause.is_output) {
        char *words = rps_nan_spot_words(report->dumped, &report->cause);

        search->failed = search->failed || words == NULL;
        rps_nan_say(search, &report->words,
                "the largest number, %.9g, came in as %s", report->cause.value,
                words != NULL ? words : "");
        free(words);
    }
    rps_nan_say(search, &report->words,
            "a smaller learning rate, or a smaller loss scale, keeps numbers "
            "small; dump the steps before to see them grow");
}
