/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the report; looks at files by time. What is found is followed by
 * nan_follow.c.
 */
#include "base/text.h"
#include "client/precision/nan_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 4096u /* elements */

/* --- words ------------------------------------------------------------------
 */

void
rps_nan_say(struct rps_nan_search *search, struct rps_nan_words *words,
        const char *format, ...)
{
    char **lines = realloc(
            words->lines, ((size_t)words->count + 1) * sizeof(lines[0]));
    char *line = NULL;
    va_list list;

    if (lines != NULL) {
        words->lines = lines;
        va_start(list, format);
        if (vasprintf(&line, format, list) < 0) {
            line = NULL;
        }
        va_end(list);
    }
    if (line == NULL) {
        search->failed = true;
        return;
    }
    words->lines[words->count++] = line;
}

static void
words_free(struct rps_nan_words *words)
{
    for (uint32_t i = 0; i < words->count; i++) {
        free(words->lines[i]);
    }
    free(words->lines);
}

char *
rps_nan_tensor_words(bool is_output, const struct rps_dumped_tensor *tensor)
{
    const char *side = is_output ? "output" : "input";

    return tensor->label != NULL ? rps_format("%s %u (%s)", side, tensor->index,
                                           tensor->label)
                                 : rps_format("%s %u", side, tensor->index);
}

char *
rps_nan_element_words(const struct rps_dumped_tensor *tensor, uint64_t element)
{
    struct rps_text text = {.bytes = NULL};
    uint64_t below = 1;

    for (uint32_t d = 1; d < tensor->ndim; d++) {
        below *= tensor->shape[d];
    }
    rps_text_add(&text, "[");
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        rps_text_add(&text, "%s%" PRIu64, d > 0 ? ", " : "",
                below > 0 ? element / below : 0);
        element = below > 0 ? element % below : 0;
        below = d + 1 < tensor->ndim && tensor->shape[d + 1] > 0
                        ? below / tensor->shape[d + 1]
                        : 1;
    }
    rps_text_add(&text, "]");
    if (text.failed) {
        rps_text_finish(&text);
        return NULL;
    }
    return text.bytes;
}

static const struct rps_dumped_tensor *
tensor_of(const struct rps_dumped *dumped, const struct rps_nan_spot *spot)
{
    const struct rps_dumped_operator *op = &dumped->operators[spot->op];

    return spot->is_output ? &op->outputs[spot->index]
                           : &op->inputs[spot->index];
}

const struct rps_dumped_tensor *
rps_nan_tensor(
        const struct rps_nan_report *report, const struct rps_nan_spot *spot)
{
    return tensor_of(report->dumped, spot);
}

char *
rps_nan_spot_words(
        const struct rps_dumped *dumped, const struct rps_nan_spot *spot)
{
    const struct rps_dumped_operator *op = &dumped->operators[spot->op];
    const struct rps_dumped_tensor *tensor = tensor_of(dumped, spot);
    char *side = rps_nan_tensor_words(spot->is_output, tensor);
    char *element = rps_nan_element_words(tensor, spot->element);
    char *words = NULL;

    if (side != NULL && element != NULL) {
        words = rps_format(
                "%s %s, %s, element %s", op->type, op->name, side, element);
    }
    free(side);
    free(element);
    return words;
}

const char *
rps_nan_ending_name(enum rps_nan_ending ending)
{
    static const char *const names[] = {
            [RPS_NAN_CLEAN] = "clean",
            [RPS_NAN_OPERATOR] = "operator",
            [RPS_NAN_OVERWRITTEN] = "overwritten",
            [RPS_NAN_EMBEDDING] = "embedding",
            [RPS_NAN_PUSH] = "push",
            [RPS_NAN_HOST] = "host",
            [RPS_NAN_ARITHMETIC] = "arithmetic",
            [RPS_NAN_UNKNOWN] = "unknown",
    };

    return names[ending];
}

/* --- looking into files -----------------------------------------------------
 */

/* Whole numbers are none. */
static bool
may_be_dirty(const struct rps_dumped_tensor *tensor)
{
    return tensor->dtype == RPS_DUMP_F32 || tensor->dtype == RPS_DUMP_BF16 ||
           tensor->dtype == RPS_DUMP_F64;
}

static void
note_problem(struct rps_nan_search *search, rps_status status,
        const struct rps_error *error)
{
    search->failed = search->failed || status == RPS_E_NOMEM;
    for (uint32_t i = 0; i < search->report->problems.count; i++) {
        if (strcmp(search->report->problems.lines[i], error->text) == 0) {
            return;
        }
    }
    rps_nan_say(search, &search->report->problems, "%s", error->text);
}

bool
rps_nan_load(struct rps_nan_search *search,
        const struct rps_dumped_tensor *tensor,
        struct rps_dumped_values *values)
{
    struct rps_error error = {.text = ""};
    const rps_status status = rps_dumped_load(tensor, values, &error);

    if (status != RPS_OK) {
        note_problem(search, status, &error);
    }
    return status == RPS_OK;
}

struct look {
    uint64_t first; /* UINT64_MAX: none */
    double value;
    struct rps_nan_count counted;
};

static void
look_block(struct rps_nan_search *search, const double *numbers, uint64_t n,
        uint64_t at, struct look *look)
{
    for (uint64_t i = 0; i < n; i++) {
        const double x = numbers[i];

        look->counted.nan += isnan(x) ? 1 : 0;
        look->counted.infinite += isinf(x) ? 1 : 0;
        if (look->first == UINT64_MAX && rps_nan_is_dirty(search, x)) {
            look->first = at + i;
            look->value = x;
        }
    }
    look->counted.count += n;
}

/* False: it cannot be read to its end. */
static bool
look_into(struct rps_nan_search *search, const struct rps_dumped_tensor *tensor,
        struct look *look)
{
    double numbers[BLOCK];
    struct rps_dumped_stream stream;
    struct rps_error error = {.text = ""};
    rps_status status = RPS_OK;

    *look = (struct look){.first = UINT64_MAX};
    if (tensor->file == NULL ||
            (tensor->shape_known && !may_be_dirty(tensor))) {
        return true;
    }
    status = rps_dumped_stream_open(&stream, tensor, &error);
    while (status == RPS_OK && stream.at < stream.count) {
        const uint64_t at = stream.at;
        const uint64_t left = stream.count - at;
        const uint64_t n = left < BLOCK ? left : BLOCK;

        status = rps_dumped_stream_read(&stream, n, numbers, NULL, &error);
        if (status == RPS_OK) {
            look_block(search, numbers, n, at, look);
        }
    }
    rps_dumped_stream_close(&stream);
    if (status != RPS_OK) {
        note_problem(search, status, &error);
    }
    return status == RPS_OK;
}

bool
rps_nan_look(struct rps_nan_search *search,
        const struct rps_dumped_tensor *tensor, uint64_t *element_out,
        double *value_out)
{
    struct look look;

    if (!look_into(search, tensor, &look) || look.first == UINT64_MAX) {
        return false;
    }
    *element_out = look.first;
    *value_out = look.value;
    return true;
}

/* --- a step, by time --------------------------------------------------------
 */

struct file {
    uint64_t timestamp;
    uint32_t rank; /* in the order of the manifest, where times are equal */
    struct rps_nan_spot spot;
};

static int
by_time(const void *left, const void *right)
{
    const struct file *a = left, *b = right;

    if (a->timestamp != b->timestamp) {
        return a->timestamp < b->timestamp ? -1 : 1;
    }
    return a->rank < b->rank ? -1 : a->rank > b->rank ? 1 : 0;
}

static void
add_files(struct file *files, uint32_t *count, uint32_t op,
        const struct rps_dumped_tensor *tensors, uint32_t n, bool is_output)
{
    for (uint32_t i = 0; i < n; i++) {
        if (tensors[i].file != NULL) {
            files[*count] = (struct file){
                    .timestamp = tensors[i].timestamp,
                    .rank = *count,
                    .spot = {.op = op, .is_output = is_output, .index = i},
            };
            *count += 1;
        }
    }
}

static struct file *
files_of(const struct rps_dumped *dumped, uint32_t *count_out)
{
    struct file *files = NULL;
    size_t count = 1;

    *count_out = 0;
    for (uint32_t i = 0; i < dumped->operator_count; i++) {
        count += dumped->operators[i].input_count;
        count += dumped->operators[i].output_count;
    }
    files = calloc(count, sizeof(files[0]));
    for (uint32_t i = 0; files != NULL && i < dumped->operator_count; i++) {
        const struct rps_dumped_operator *op = &dumped->operators[i];

        add_files(files, count_out, i, op->inputs, op->input_count, false);
        add_files(files, count_out, i, op->outputs, op->output_count, true);
    }
    if (files != NULL) {
        qsort(files, *count_out, sizeof(files[0]), by_time);
    }
    return files;
}

/* Look at a step's files until a NaN is found: true, where anything was. */
static bool
look_at_step(struct rps_nan_search *search, const struct rps_dumped *dumped)
{
    struct rps_nan_report *report = search->report;
    uint32_t count = 0;
    struct file *files = files_of(dumped, &count);

    search->failed = search->failed || files == NULL;
    for (uint32_t i = 0; files != NULL && i < count && !search->failed; i++) {
        struct rps_nan_spot spot = files[i].spot;
        struct look look;

        if (look_into(search, tensor_of(dumped, &spot), &look)) {
            report->files++;
        } else {
            report->unread++;
        }
        if (look.first == UINT64_MAX) {
            continue;
        }
        spot.element = look.first;
        spot.value = look.value;
        if (report->first.op == RPS_NAN_NOWHERE) {
            report->first = spot;
            report->counted = look.counted;
        }
        if (look.counted.nan > 0) {
            report->nan = spot;
            break;
        }
    }
    free(files);
    return report->first.op != RPS_NAN_NOWHERE;
}

static void
note_problems(struct rps_nan_search *search, const struct rps_dumped *dumped)
{
    for (uint32_t i = 0; i < dumped->problem_count; i++) {
        rps_nan_say(
                search, &search->report->problems, "%s", dumped->problems[i]);
    }
    if (dumped->has_manifest && !dumped->complete) {
        rps_nan_say(search, &search->report->problems,
                "%s: its step did not end, files are missing", dumped->folder);
    }
}

/* One step; *done: something was found, and followed. */
static rps_status
search_step(struct rps_nan_search *search, bool *done, struct rps_error *error)
{
    struct rps_dumped *dumped = NULL;
    rps_status status = rps_dumped_open(
            search->steps->folders[search->step], &dumped, error);

    if (status != RPS_OK) {
        return status;
    }
    search->report->steps++;
    note_problems(search, dumped);
    if (!look_at_step(search, dumped)) {
        rps_dumped_close(dumped);
        return RPS_OK;
    }
    *done = true;
    search->report->dumped = dumped;
    status = rps_graph_make(dumped, &search->graph, error);
    if (status == RPS_OK) {
        rps_nan_follow(search);
    }
    rps_graph_free(search->graph);
    search->graph = NULL;
    return status;
}

rps_status
rps_nan_find(const char *path, const struct rps_nan_options *options,
        struct rps_nan_report **report_out, struct rps_error *error)
{
    struct rps_dumped_steps steps = {.count = 0};
    struct rps_nan_report *report = calloc(1, sizeof(*report));
    struct rps_nan_search search = {
            .report = report, .steps = &steps, .nan_alone = options->nan_alone};
    rps_status status = RPS_OK;
    bool done = false;

    *report_out = NULL;
    if (report == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
    report->first.op = RPS_NAN_NOWHERE;
    report->nan.op = RPS_NAN_NOWHERE;
    report->cause.op = RPS_NAN_NOWHERE;
    report->before.op = RPS_NAN_NOWHERE;
    status = rps_dumped_find(path, &steps, error);
    for (; status == RPS_OK && !done && search.step < steps.count;
            search.step += done ? 0 : 1) {
        status = search_step(&search, &done, error);
        if (search.failed && status == RPS_OK) {
            status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
        }
    }
    rps_dumped_steps_free(&steps);
    if (status != RPS_OK) {
        rps_nan_report_free(report);
        return status;
    }
    *report_out = report;
    return RPS_OK;
}

void
rps_nan_report_free(struct rps_nan_report *report)
{
    if (report != NULL) {
        rps_dumped_close(report->dumped);
        words_free(&report->trail);
        words_free(&report->words);
        words_free(&report->problems);
        free(report->before_words);
        free(report->table);
        free(report);
    }
}
