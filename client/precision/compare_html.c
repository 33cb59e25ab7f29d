/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A comparison as one page. The chart has a bar an operator, in order of
 * execution, from the bottom to its least cosine; its axis is of 1 - cosine,
 * in decades, so that 0.999999 and 0.98 are apart.
 */
#include "client/precision/compare_impl.h"
#include "client/precision/page.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define CHART_WIDTH  1100
#define CHART_LEFT   90
#define CHART_TOP    16
#define CHART_HEIGHT 220
#define MARK         6.0
#define DECADE_LEAST (-12.0) /* 1 - cosine below 1e-12 is on top */
#define DECADE_MOST  0.30103 /* of 2, which is cosine -1 */

/* What is shown: one comparison, or those of all steps. */
struct shown {
    const struct rps_comparison *comparison;
    uint64_t step;
    bool with_step;
};

static double
y_of(double cosine)
{
    const double apart = 1.0 - cosine;
    double decade = apart > 0.0 ? log10(apart) : DECADE_LEAST;

    decade = fmin(fmax(decade, DECADE_LEAST), DECADE_MOST);
    return CHART_TOP + CHART_HEIGHT * (decade - DECADE_LEAST) /
                               (DECADE_MOST - DECADE_LEAST);
}

static void
add_tick(struct rps_text *page, double cosine, const char *words,
        const char *class)
{
    const double y = y_of(cosine);

    rps_text_add(page,
            "<line class=\"%s\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
            "<text class=\"quiet\" x=\"%d\" y=\"%.1f\" "
            "text-anchor=\"end\">%s</text>\n",
            class, CHART_LEFT, CHART_WIDTH, y, y, CHART_LEFT - 8, y + 4, words);
}

static void
add_axis(struct rps_text *page, double threshold)
{
    char words[32];

    (void)snprintf(words, sizeof(words), "%.9g", threshold);
    add_tick(page, 1.0, "1", "grid");
    add_tick(page, 1.0 - 1e-9, "1 - 10⁻⁹", "grid");
    add_tick(page, 1.0 - 1e-6, "0.999999", "grid");
    add_tick(page, 0.999, "0.999", "grid");
    add_tick(page, threshold, words, "mark");
    add_tick(page, 0.0, "0", "grid");
}

static double
least_of(const struct rps_compared *compared)
{
    return isnan(compared->output_cosine) || isnan(compared->input_cosine)
                   ? (double)NAN
                   : fmin(compared->output_cosine, compared->input_cosine);
}

static bool
is_both(const struct rps_compared *compared)
{
    return compared->left != NULL && compared->right != NULL;
}

static bool
does_agree(const struct rps_compared *compared)
{
    return compared->inputs_agree && compared->outputs_agree;
}

/* Nothing that could be read differs, but not all of it could be. */
static bool
is_unread(const struct rps_compared *compared)
{
    return does_agree(compared) &&
           compared->unread_inputs + compared->unread_outputs > 0;
}

static void
add_least(struct rps_text *text, double cosine, uint32_t unread)
{
    if (unread > 0) {
        rps_text_add(text, "not compared");
    } else {
        rps_text_add(text, "%.12g", cosine);
    }
}

static void
add_bar(struct rps_text *page, const struct shown *shown,
        const struct rps_compared *compared, double x, double width)
{
    const double cosine = least_of(compared);
    const double bottom = CHART_TOP + CHART_HEIGHT;
    const bool unread = is_unread(compared);
    /* at least a mark; what is not finite is a whole one, and pale; what is not
     * compared, an empty one */
    const double y = isnan(cosine) || unread
                             ? CHART_TOP
                             : fmin(y_of(cosine), bottom - MARK);

    if (!is_both(compared)) {
        return;
    }
    rps_text_add(page,
            "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
            "height=\"%.2f\"%s><title>",
            unread                 ? "unread"
            : does_agree(compared) ? "good"
                                   : "bad",
            x, y, width, bottom - y, isnan(cosine) ? " opacity=\"0.35\"" : "");
    if (shown->with_step) {
        rps_text_add(page, "step %" PRIu64 ": ", shown->step);
    }
    rps_page_text(page, compared->type);
    rps_text_add(page, " ");
    rps_page_text(page, compared->name);
    rps_text_add(page, ": output ");
    add_least(page, compared->output_cosine, compared->unread_outputs);
    rps_text_add(page, ", input ");
    add_least(page, compared->input_cosine, compared->unread_inputs);
    rps_text_add(page, "</title></rect>\n");
}

static void
add_chart(struct rps_text *page, const struct shown *shown, uint32_t count)
{
    uint64_t bars = 0, at = 0;
    double slot;

    for (uint32_t s = 0; s < count; s++) {
        bars += shown[s].comparison->operator_count;
    }
    slot = (double)(CHART_WIDTH - CHART_LEFT) / (double)(bars > 0 ? bars : 1);
    rps_text_add(page,
            "<h2>Least cosine over operators, in order of execution</h2>"
            "\n<div class=\"card\"><svg viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-label=\"cosine over operators\">\n",
            CHART_WIDTH + 10, CHART_TOP + CHART_HEIGHT + 24);
    add_axis(page,
            count > 0 ? shown[0].comparison->threshold : RPS_COMPARE_THRESHOLD);
    for (uint32_t s = 0; s < count; s++) {
        if (shown[s].with_step) {
            rps_text_add(page,
                    "<text class=\"quiet\" x=\"%.1f\" y=\"%d\">step %" PRIu64
                    "</text>\n",
                    CHART_LEFT + (double)at * slot,
                    CHART_TOP + CHART_HEIGHT + 16, shown[s].step);
        }
        for (uint32_t i = 0; i < shown[s].comparison->operator_count; i++) {
            add_bar(page, &shown[s], &shown[s].comparison->operators[i],
                    CHART_LEFT + (double)at++ * slot,
                    fmax(slot * 0.8, fmin(slot, 1.0)));
        }
    }
    rps_text_add(page, "</svg></div>\n");
}

/* --- the table ----------------------------------------------------------- */

static void
add_number(struct rps_text *page, double number, uint32_t unread)
{
    if (unread > 0) {
        rps_text_add(page, "<td>not compared</td>");
    } else if (isnan(number)) {
        rps_text_add(page, "<td>nan</td>");
    } else {
        rps_text_add(page, "<td>%.9g</td>", number);
    }
}

static void
add_most(struct rps_text *page, const struct rps_compared *compared)
{
    double absolute = 0.0, relative = 0.0;
    uint64_t left = 0, right = 0;

    for (uint32_t i = 0; i < compared->tensor_count; i++) {
        const struct rps_compared_tensor *tensor = &compared->tensors[i];

        if (tensor->is_output && tensor->readable) {
            absolute = fmax(absolute, tensor->max_absolute);
            relative = fmax(relative, tensor->max_relative);
            left += tensor->left_nan + tensor->left_inf;
            right += tensor->right_nan + tensor->right_inf;
        }
    }
    rps_text_add(page,
            "<td>%.4g</td><td>%.4g</td><td>%" PRIu64 " / %" PRIu64 "</td>",
            absolute, relative, left, right);
}

static void
add_row(struct rps_text *page, const struct shown *shown,
        const struct rps_compared *compared)
{
    rps_text_add(page, "<tr%s><td>",
            is_both(compared) && !does_agree(compared) ? " class=\"below\""
                                                       : "");
    if (shown->with_step) {
        rps_text_add(page, "%" PRIu64 "</td><td class=\"name\">", shown->step);
    }
    rps_page_text(page, compared->left_names);
    rps_text_add(page, "</td><td class=\"name\">");
    rps_page_text(page, compared->right_names);
    rps_text_add(page, "</td><td class=\"name\">");
    rps_page_text(page, compared->type);
    rps_text_add(page, "</td>");
    if (is_both(compared)) {
        add_number(page, compared->input_cosine, compared->unread_inputs);
        add_number(page, compared->output_cosine, compared->unread_outputs);
        add_most(page, compared);
    } else {
        rps_text_add(page, "<td></td><td></td><td></td><td></td><td></td>");
    }
    rps_text_add(page, "</tr>\n");
}

static void
add_table(struct rps_text *page, const struct shown *shown, uint32_t count)
{
    rps_text_add(page,
            "<h2>All operators</h2>\n<div class=\"card\"><table>\n<tr>%s"
            "<th class=\"name\">left</th><th class=\"name\">right</th>"
            "<th class=\"name\">type</th><th>input cosine</th>"
            "<th>output cosine</th><th>max absolute</th><th>max relative</th>"
            "<th>not finite, left / right</th></tr>\n",
            count > 0 && shown[0].with_step ? "<th>step</th>" : "");
    for (uint32_t s = 0; s < count; s++) {
        for (uint32_t i = 0; i < shown[s].comparison->operator_count; i++) {
            add_row(page, &shown[s], &shown[s].comparison->operators[i]);
        }
    }
    rps_text_add(page, "</table></div>\n");
}

static void
add_problems(struct rps_text *page, const struct rps_comparison *comparison)
{
    for (uint32_t i = 0; i < comparison->operator_count; i++) {
        const struct rps_compared *compared = &comparison->operators[i];

        for (uint32_t k = 0; k < compared->tensor_count; k++) {
            if (compared->tensors[k].damaged) {
                rps_text_add(page, "<li>");
                rps_page_text(page, compared->tensors[k].problem != NULL
                                            ? compared->tensors[k].problem
                                            : "no memory");
                rps_text_add(page, "</li>\n");
            }
        }
    }
}

static void
add_folders_problems(struct rps_text *page, const struct rps_dumped *dumped)
{
    for (uint32_t i = 0; i < dumped->problem_count; i++) {
        rps_text_add(page, "<li>");
        rps_page_text(page, dumped->problems[i]);
        rps_text_add(page, "</li>\n");
    }
}

static rps_status
write_page(struct rps_text *page, const struct shown *shown, uint32_t count,
        const char *path, struct rps_error *error)
{
    add_chart(page, shown, count);
    add_table(page, shown, count);
    return rps_page_write(page, path, error);
}

rps_status
rps_compare_write_html(const struct rps_comparison *comparison,
        const char *title, const char *path, struct rps_error *error)
{
    const struct shown shown = {.comparison = comparison};
    struct rps_text page = {.bytes = NULL};

    rps_page_begin(&page, title, comparison->words);
    if (comparison->problems > 0) {
        rps_text_add(&page, "<h2>Files</h2>\n<ul>\n");
        add_problems(&page, comparison);
        rps_text_add(&page, "</ul>\n");
    }
    return write_page(&page, &shown, 1, path, error);
}

/* The words of what decides: the first step that differs, else each. */
static char *
verdict_of(const struct rps_compare_run *run)
{
    struct rps_text words = {.bytes = NULL};

    for (uint32_t i = 0; i < run->count; i++) {
        if (run->first == NULL || run->first == &run->steps[i]) {
            rps_text_add(&words, "%s", run->steps[i].comparison->words);
        }
    }
    return words.failed ? NULL : words.bytes;
}

static void
add_run_problems(struct rps_text *page, const struct rps_compare_run *run)
{
    if (run->problems == 0) {
        return;
    }
    rps_text_add(page, "<h2>Files</h2>\n<ul>\n");
    for (uint32_t i = 0; i < run->count; i++) {
        add_folders_problems(page, run->steps[i].left);
        add_folders_problems(page, run->steps[i].right);
        add_problems(page, run->steps[i].comparison);
    }
    rps_text_add(page, "</ul>\n");
}

rps_status
rps_compare_run_write_html(const struct rps_compare_run *run, const char *title,
        const char *path, struct rps_error *error)
{
    struct rps_text page = {.bytes = NULL};
    struct shown *shown = calloc((size_t)run->count + 1, sizeof(*shown));
    char *verdict = verdict_of(run);
    rps_status status;

    if (shown == NULL || verdict == NULL) {
        free(shown);
        free(verdict);
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
    for (uint32_t i = 0; i < run->count; i++) {
        shown[i] = (struct shown){.comparison = run->steps[i].comparison,
                .step = run->steps[i].step,
                .with_step = true};
    }
    rps_page_begin(&page, title, verdict);
    add_run_problems(&page, run);
    status = write_page(&page, shown, run->count, path, error);
    free(shown);
    free(verdict);
    return status;
}
