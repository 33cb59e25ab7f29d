/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chart has a line a variable, from -1 on the left to 1 on the right, with
 * the threshold as a mark; the least come first and are all that a long list
 * shows.
 */
#include "client/precision/page.h"
#include "client/precision/variables_write.h"

#include <inttypes.h>
#include <math.h>

#define CHART_LINES_MAX 60u
#define LINE_HEIGHT     20
#define NAME_WIDTH      260
#define BAR_WIDTH       560.0
#define CHART_WIDTH     940

/* --- the chart -------------------------------------------------------------
 */

static double
place_of(double cosine)
{
    return NAME_WIDTH + (cosine + 1.0) / 2.0 * BAR_WIDTH;
}

static void
add_axis(struct rps_text *page, double threshold, int height)
{
    static const double ticks[] = {-1.0, -0.5, 0.0, 0.5, 1.0};

    for (size_t i = 0; i < sizeof(ticks) / sizeof(ticks[0]); i++) {
        rps_text_add(page,
                "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"20\" "
                "y2=\"%d\"/><text class=\"quiet\" x=\"%.1f\" y=\"14\" "
                "text-anchor=\"middle\">%g</text>\n",
                place_of(ticks[i]), place_of(ticks[i]), height,
                place_of(ticks[i]), ticks[i]);
    }
    if (threshold > -1.0 && threshold < 1.0) {
        rps_text_add(page,
                "<line class=\"mark\" x1=\"%.1f\" x2=\"%.1f\" y1=\"20\" "
                "y2=\"%d\"><title>threshold %g</title></line>\n",
                place_of(threshold), place_of(threshold), height, threshold);
    }
}

/* From 0 to its cosine; what is not finite is a whole one, and says so. */
static void
add_bar(struct rps_text *page, const struct rps_variable *variable,
        double threshold, int y)
{
    const bool finite = isfinite(variable->cosine);
    char cosine[RPS_COSINE_TEXT_BYTES];
    const double from =
            finite ? place_of(fmin(variable->cosine, 0.0)) : place_of(-1.0);
    const double to =
            finite ? place_of(fmax(variable->cosine, 0.0)) : place_of(1.0);

    (void)rps_cosine_text(variable->cosine, cosine);
    rps_text_add(page, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">",
            NAME_WIDTH - 10, y + 13);
    rps_page_text(page, variable->name);
    rps_text_add(page,
            "</text><rect class=\"%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" "
            "height=\"%d\" rx=\"2\"%s><title>",
            rps_variable_is_below(variable, threshold) ? "bad" : "good", from,
            y + 3, fmax(to - from, 1.0), LINE_HEIGHT - 6,
            finite ? "" : " opacity=\"0.35\"");
    rps_page_text(page, variable->name);
    rps_text_add(page,
            ": %s</title></rect><text class=\"quiet\" x=\"%.1f\" "
            "y=\"%d\">%s</text>\n",
            cosine, NAME_WIDTH + BAR_WIDTH + 10, y + 13, cosine);
}

static void
add_chart(struct rps_text *page, const struct rps_variables *variables)
{
    const size_t all = variables->count - variables->problems;
    const size_t shown = all < CHART_LINES_MAX ? all : CHART_LINES_MAX;
    const int height = 24 + (int)shown * LINE_HEIGHT;

    rps_text_add(page,
            "<h2>Cosine over variables%s</h2>\n<div class=\"card\">"
            "<svg viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-label=\"cosine over variables\">\n",
            shown < all ? ", the least of them" : "", CHART_WIDTH, height + 4);
    add_axis(page, variables->threshold, height);
    for (size_t i = 0; i < shown; i++) {
        add_bar(page, &variables->list[i], variables->threshold,
                22 + (int)i * LINE_HEIGHT);
    }
    rps_text_add(page, "</svg></div>\n");
}

/* --- the table -------------------------------------------------------------
 */

static void
add_row(struct rps_text *page, const struct rps_variable *variable,
        double threshold)
{
    char cosine[RPS_COSINE_TEXT_BYTES];

    rps_text_add(page, "<tr%s><td>",
            rps_variable_is_below(variable, threshold) ? " class=\"below\""
                                                       : "");
    rps_page_text(page, variable->name);
    if (variable->problem == NULL) {
        rps_text_add(page, "</td><td>%s</td>",
                rps_cosine_text(variable->cosine, cosine));
    } else {
        rps_text_add(page, "</td><td>");
        rps_page_text(page, variable->problem);
        rps_text_add(page, "</td>");
    }
    rps_text_add(page,
            "<td>%" PRIu64 "</td><td>%" PRIu64 "</td><td>%" PRIu64
            "</td><td>%" PRIu64 "</td>",
            variable->both, variable->only_a, variable->only_b,
            variable->changed);
    if (variable->changed > 0) {
        rps_text_add(page,
                "<td>%" PRIu64 "</td><td>%s</td><td>%.4g</td></tr>\n",
                variable->worst_key,
                rps_cosine_text(variable->worst_cosine, cosine),
                variable->largest);
    } else {
        rps_text_add(page, "<td></td><td></td><td></td></tr>\n");
    }
}

static void
add_table(struct rps_text *page, const struct rps_variables *variables)
{
    rps_text_add(page,
            "<h2>All variables</h2>\n<div class=\"card\"><table>\n<tr>"
            "<th>variable</th><th>cosine</th><th>rows</th><th>only in A</th>"
            "<th>only in B</th><th>changed</th><th>worst row</th>"
            "<th>its cosine</th><th>largest change</th></tr>\n");
    for (size_t i = 0; i < variables->count; i++) {
        add_row(page, &variables->list[i], variables->threshold);
    }
    rps_text_add(page, "</table></div>\n");
}

rps_status
rps_variables_write_html(const struct rps_variables *variables,
        const char *title, const char *verdict, const char *path,
        struct rps_error *error)
{
    struct rps_text page = {.bytes = NULL};

    rps_page_begin(&page, title, verdict);
    add_chart(&page, variables);
    add_table(&page, variables);
    return rps_page_write(&page, path, error);
}
