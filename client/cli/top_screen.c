/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two lists, servers and tables, each of columns with a rank: where the
 * screen is narrow those of the highest rank go first.
 */
#include "client/cli/top_screen.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define COLUMNS_MAX 16u
#define ROWS_MAX    64u /* of a list; what is beyond is counted */
#define CELL_BYTES  40u
#define GAP         2u
#define MISSING_MAX 3u /* servers whose reason is told */

struct column {
    const char *title;
    bool left;
    uint32_t rank; /* 0: always there */
};

struct list {
    const struct column *columns;
    uint32_t column_count;
    char cells[ROWS_MAX][COLUMNS_MAX][CELL_BYTES];
    uint32_t row_count;
    uint32_t at; /* the column of the next cell */
};

/* ---- numbers ---- */

char *
rps_top_rate(double rate, char out[32])
{
    static const char units[] = {0, 'k', 'M', 'G', 'T'};
    size_t unit = 0;

    if (isnan(rate)) {
        return strcpy(out, "-");
    }
    while (rate >= 999.95 && unit + 1 < sizeof(units)) {
        rate /= 1000;
        unit++;
    }
    if (unit == 0) {
        snprintf(out, 32, rate > 0 && rate < 9.95 ? "%.1f" : "%.0f", rate);
    } else {
        snprintf(out, 32, "%.1f%c", rate, units[unit]);
    }
    return out;
}

char *
rps_top_time(double ns, char out[32])
{
    if (isnan(ns)) {
        return strcpy(out, "-");
    }
    if (ns < 999.5e3) {
        snprintf(out, 32, "%.0fus", ns / 1e3);
    } else if (ns < 999.5e6) {
        snprintf(out, 32, "%.1fms", ns / 1e6);
    } else {
        snprintf(out, 32, "%.1fs", ns / 1e9);
    }
    return out;
}

static const char *
bytes_text(double bytes, char out[32])
{
    return isnan(bytes) ? strcpy(out, "-")
                        : rps_format_bytes((uint64_t)bytes, out);
}

/* A server may say anything; the terminal must not do it. */
static void
make_plain(char *words)
{
    for (; *words != '\0'; words++) {
        if ((unsigned char)*words < 0x20 || *words == 0x7f) {
            *words = '?';
        }
    }
}

/* ---- lists ---- */

static void __attribute__((format(printf, 2, 3)))
cell(struct list *list, const char *format, ...)
{
    va_list arguments;

    if (list->row_count < ROWS_MAX) {
        va_start(arguments, format);
        vsnprintf(list->cells[list->row_count][list->at], CELL_BYTES, format,
                arguments);
        va_end(arguments);
        make_plain(list->cells[list->row_count][list->at]);
    }
    list->at++;
}

static void
end_row(struct list *list)
{
    list->at = 0;
    list->row_count += list->row_count < ROWS_MAX;
}

static uint32_t
width_of(const struct list *list, uint32_t column)
{
    size_t width = strlen(list->columns[column].title);

    for (uint32_t row = 0; row < list->row_count; row++) {
        const size_t length = strlen(list->cells[row][column]);

        width = length > width ? length : width;
    }
    return (uint32_t)width;
}

/* Widths of the columns that are shown, 0 of the others. */
static void
choose(const struct list *list, uint32_t columns, uint32_t widths[COLUMNS_MAX])
{
    uint32_t total = 0;

    for (uint32_t i = 0; i < list->column_count; i++) {
        widths[i] = width_of(list, i);
        total += widths[i] + (i > 0 ? GAP : 0);
    }
    while (columns > 0 && total > columns) {
        uint32_t worst = 0;

        for (uint32_t i = 1; i < list->column_count; i++) {
            if (widths[i] > 0 &&
                    (widths[worst] == 0 || list->columns[i].rank >
                                                   list->columns[worst].rank)) {
                worst = i;
            }
        }
        if (list->columns[worst].rank == 0) {
            return; /* cut at the margin */
        }
        total -= widths[worst] + GAP;
        widths[worst] = 0;
    }
}

/* One line, cut at the margin; `row` is list->row_count for the titles. */
static void
add_line(struct rps_text *text, const struct list *list, uint32_t row,
        const uint32_t widths[COLUMNS_MAX], const struct rps_top_form *form)
{
    const bool titles = row == list->row_count;
    char line[COLUMNS_MAX * (CELL_BYTES + GAP) + 1] = "";
    int used = 0;
    int end;

    for (uint32_t i = 0; i < list->column_count; i++) {
        const char *words =
                titles ? list->columns[i].title : list->cells[row][i];
        const int width = (int)widths[i];

        if (width > 0) {
            used += snprintf(line + used, sizeof(line) - (size_t)used,
                    list->columns[i].left ? "%s%-*s" : "%s%*s",
                    used > 0 ? "  " : "", width, words);
        }
    }
    while (used > 0 && line[used - 1] == ' ' && !(titles && form->ansi)) {
        used--;
    }
    end = form->columns > 0 && used > (int)form->columns ? (int)form->columns
                                                         : used;
    rps_text_add(text, "%s%.*s%s%s", titles && form->ansi ? "\033[7m" : "", end,
            line, titles && form->ansi ? "\033[m" : "",
            form->ansi ? "\033[K\r\n" : "\n");
}

static void __attribute__((format(printf, 3, 4)))
add_words(struct rps_text *text, const struct rps_top_form *form,
        const char *format, ...)
{
    char line[1024];
    va_list arguments;
    int length;

    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    make_plain(line);
    length = (int)strlen(line);
    if (form->columns > 0 && length > (int)form->columns) {
        length = (int)form->columns;
    }
    rps_text_add(
            text, "%.*s%s", length, line, form->ansi ? "\033[K\r\n" : "\n");
}

/* Titles and at most `lines` rows; the last of them counts what is not shown.
 */
static void
add_list(struct rps_text *text, const struct list *list, size_t all,
        uint32_t lines, const struct rps_top_form *form)
{
    uint32_t widths[COLUMNS_MAX];
    uint32_t shown = list->row_count < lines ? list->row_count : lines;

    choose(list, form->columns, widths);
    add_line(text, list, list->row_count, widths, form);
    if (shown > 1 && shown < all) {
        shown--; /* for the line that counts the others */
    }
    for (uint32_t i = 0; i < shown; i++) {
        add_line(text, list, i, widths, form);
    }
    if (shown < all && shown < lines) {
        add_words(text, form, "... %zu more", all - shown);
    }
}

/* ---- servers ---- */

static const struct column ps_columns[] = {{"ps", false, 0},
        {"address", true, 4}, {"lookups/s", false, 0}, {"updates/s", false, 1},
        {"requests/s", false, 6}, {"errors/s", false, 5}, {"p50", false, 3},
        {"p99", false, 1}, {"push p99", false, 7}, {"ping", false, 9},
        {"in/s", false, 10}, {"out/s", false, 8}, {"conns", false, 6},
        {"memory", false, 1}, {"of limit", false, 2}};
#define PS_COLUMNS (sizeof(ps_columns) / sizeof(ps_columns[0]))

static void
add_rate_cells(struct list *list, const struct rps_top_rates *rates)
{
    char a[32];

    cell(list, "%s", rps_top_rate(rates->lookups, a));
    cell(list, "%s", rps_top_rate(rates->updates, a));
    cell(list, "%s", rps_top_rate(rates->requests, a));
    cell(list, "%s", rps_top_rate(rates->errors, a));
}

static void
add_memory_cells(struct list *list, uint64_t used, uint64_t limit)
{
    char a[32];

    cell(list, "%s", rps_format_bytes(used, a));
    if (limit > 0) {
        cell(list, "%.0f%%", 100.0 * (double)used / (double)limit);
    } else {
        cell(list, "no limit");
    }
}

static void
add_ps_row(struct list *list, const struct rps_top_ps *ps, uint32_t index,
        const char *address)
{
    char a[32];

    cell(list, "%" PRIu32 "%s", index, ps->here ? "" : "!");
    cell(list, "%s", address != NULL ? address : "?");
    add_rate_cells(list, &ps->rates);
    cell(list, "%s", rps_top_time(ps->lookup_p50_ns, a));
    cell(list, "%s", rps_top_time(ps->lookup_p99_ns, a));
    cell(list, "%s", rps_top_time(ps->push_p99_ns, a));
    cell(list, "%s", rps_top_time(ps->ping_ms * 1e6, a));
    cell(list, "%s", bytes_text(ps->rates.received, a));
    cell(list, "%s", bytes_text(ps->rates.sent, a));
    cell(list, "%" PRIu64, ps->connections);
    add_memory_cells(list, ps->memory_used, ps->memory_limit);
    end_row(list);
}

/* Where there are several: what they do together. */
static void
add_sum_row(struct list *list, const struct rps_top *top)
{
    uint64_t connections = 0, used = 0, limit = 0;
    bool bounded = true;
    char a[32];

    for (uint32_t i = 0; i < top->ps_count; i++) {
        connections += top->ps[i].connections;
        used += top->ps[i].memory_used;
        limit += top->ps[i].memory_limit;
        bounded = bounded && top->ps[i].memory_limit > 0;
    }
    cell(list, "all");
    cell(list, "%s", "");
    add_rate_cells(list, &top->sum);
    for (uint32_t i = 0; i < 4; i++) {
        cell(list, "%s", "");
    }
    cell(list, "%s", bytes_text(top->sum.received, a));
    cell(list, "%s", bytes_text(top->sum.sent, a));
    cell(list, "%" PRIu64, connections);
    add_memory_cells(list, used, bounded ? limit : 0);
    end_row(list);
}

static void
add_servers(struct rps_text *text, const struct rps_top *top,
        const rps_cluster *cluster, uint32_t lines,
        const struct rps_top_form *form)
{
    struct list list = {.columns = ps_columns, .column_count = PS_COLUMNS};
    const bool several = top->ps_count > 1;

    if (several) {
        add_sum_row(&list, top);
    }
    for (uint32_t i = 0; i < top->ps_count; i++) {
        add_ps_row(&list, &top->ps[i], i, cluster->ps[i].address);
    }
    add_list(text, &list, top->ps_count + several, lines, form);
}

/* ---- workers ---- */

static const struct column worker_columns[] = {{"worker", true, 0},
        {"address", true, 7}, {"step", false, 1}, {"loss", false, 2},
        {"samples/s", false, 0}, {"cpu", false, 1}, {"memory", false, 3},
        {"of limit", false, 4}, {"npu", false, 3}, {"npu memory", false, 4},
        {"disk in/s", false, 6}, {"disk out/s", false, 6},
        {"most of its time", true, 5}};
#define WORKER_COLUMNS (sizeof(worker_columns) / sizeof(worker_columns[0]))

static void
add_share_cell(struct list *list, double share)
{
    if (isnan(share)) {
        cell(list, "-");
    } else {
        cell(list, "%.0f%%", 100.0 * share);
    }
}

/* "worker:1", and where it came from an answer: what comes may be anything. */
static void
add_worker_name(struct list *list, const struct rps_top_worker *worker)
{
    const char *role = json_string_value(json_object_get(worker->stat, "role"));

    if (role == NULL) {
        cell(list, "?%s", worker->here ? "" : "!");
        return;
    }
    cell(list, "%.16s:%" PRId64 "%s", role,
            (int64_t)json_integer_value(json_object_get(worker->stat, "index")),
            worker->here ? "" : "!");
}

static void
add_worker_row(struct list *list, const struct rps_top_worker *worker)
{
    const double loss = rps_top_worker_number(worker, "loss");
    double share;
    const char *stage = rps_top_worker_stage(worker, &share);
    char a[32];

    add_worker_name(list, worker);
    cell(list, "%s", worker->address);
    cell(list, "%" PRId64,
            (int64_t)json_integer_value(json_object_get(worker->stat, "step")));
    if (isnan(loss)) {
        cell(list, "-");
    } else {
        cell(list, "%.4g", loss);
    }
    cell(list, "%s",
            rps_top_rate(
                    rps_top_worker_number(worker, "samples_per_second"), a));
    add_share_cell(list, rps_top_worker_number(worker, "cpu_usage"));
    cell(list, "%s",
            bytes_text(rps_top_worker_number(worker, "resident_bytes"), a));
    add_share_cell(list, rps_top_worker_number(worker, "mem_usage"));
    add_share_cell(list, rps_top_worker_number(worker, "npu_util"));
    add_share_cell(list, rps_top_worker_number(worker, "npu_mem_usage"));
    cell(list, "%s",
            bytes_text(rps_top_worker_number(worker, "disk_read_rate"), a));
    cell(list, "%s",
            bytes_text(rps_top_worker_number(worker, "disk_write_rate"), a));
    if (stage != NULL) {
        cell(list, "%.20s %.0f%%", stage, 100.0 * share);
    } else {
        cell(list, "-");
    }
    end_row(list);
}

static void
add_workers(struct rps_text *text, const struct rps_top *top, uint32_t lines,
        const struct rps_top_form *form)
{
    struct list list = {
            .columns = worker_columns, .column_count = WORKER_COLUMNS};

    for (size_t i = 0; i < top->workers->count; i++) {
        add_worker_row(&list, &top->workers->list[i]);
    }
    add_list(text, &list, top->workers->count, lines, form);
    add_words(text, form, "%s", "");
}

/* ---- tables ---- */

static const struct column table_columns[] = {{"table", true, 0},
        {"dim", false, 5}, {"rows", false, 0}, {"bytes", false, 1},
        {"of limit", false, 7}, {"lookups/s", false, 0}, {"missing", false, 3},
        {"updates/s", false, 1}, {"new/s", false, 4}, {"evicted/s", false, 6}};
#define TABLE_COLUMNS (sizeof(table_columns) / sizeof(table_columns[0]))

static void
add_table_row(struct list *list, const struct rps_top_table *table)
{
    const struct rps_top_rates *rates = &table->rates;
    char a[32];

    cell(list, "%s", table->name);
    cell(list, "%" PRIu64, table->dim);
    cell(list, "%" PRIu64, table->rows);
    add_memory_cells(list, table->bytes, table->memory_limit);
    cell(list, "%s", rps_top_rate(rates->lookups, a));
    if (isnan(rates->missing)) {
        cell(list, "-");
    } else {
        cell(list, "%.1f%%", 100.0 * rates->missing);
    }
    cell(list, "%s", rps_top_rate(rates->updates, a));
    cell(list, "%s", rps_top_rate(rates->inserted, a));
    cell(list, "%s", rps_top_rate(rates->evicted, a));
    end_row(list);
}

static void
add_tables(struct rps_text *text, const struct rps_top *top, uint32_t lines,
        const struct rps_top_form *form)
{
    struct list list = {
            .columns = table_columns, .column_count = TABLE_COLUMNS};

    for (size_t i = 0; i < top->table_count; i++) {
        add_table_row(&list, &top->tables[i]);
    }
    add_list(text, &list, top->table_count, lines, form);
}

/* ---- the frame ---- */

static void
add_hot(struct rps_text *text, const struct rps_top *top,
        const struct rps_top_form *form)
{
    struct rps_text keys = {.bytes = NULL};
    char a[32];

    if (top->hot_table == NULL) {
        return;
    }
    for (size_t i = 0; i < top->hot_count; i++) {
        rps_text_add(&keys, "  %" PRIu64 " (%s)", top->hot[i].key,
                rps_top_rate((double)top->hot[i].count, a));
    }
    add_words(text, form, "hot keys of %s (pushes):%s", top->hot_table,
            keys.length > 0 ? keys.bytes : "  none seen");
    rps_text_finish(&keys);
}

static size_t
worker_count(const struct rps_top *top)
{
    return top->workers != NULL ? top->workers->count : 0;
}

static void
add_missing(struct rps_text *text, const struct rps_top *top,
        const struct rps_top_form *form)
{
    uint32_t said = 0;

    for (uint32_t i = 0; i < top->ps_count && said < MISSING_MAX; i++) {
        if (!top->ps[i].here) {
            said++;
            add_words(text, form, "! ps %" PRIu32 ", silent for %.1f s: %s", i,
                    (double)top->ps[i].age_ms / 1e3, top->ps[i].why);
        }
    }
}

static void
add_missing_workers(struct rps_text *text, const struct rps_top *top,
        const struct rps_top_form *form)
{
    uint32_t said = 0;

    for (size_t i = 0; i < worker_count(top) && said < MISSING_MAX; i++) {
        const struct rps_top_worker *worker = &top->workers->list[i];

        if (!worker->here) {
            said++;
            add_words(text, form, "! worker at %s: %s", worker->address,
                    worker->why);
        }
    }
}

static uint32_t
missing_workers(const struct rps_top *top)
{
    uint32_t missing = 0;

    for (size_t i = 0; i < worker_count(top); i++) {
        missing += !top->workers->list[i].here;
    }
    return missing < MISSING_MAX ? missing : MISSING_MAX;
}

static uint32_t
missing_count(const struct rps_top *top)
{
    uint32_t missing = 0;

    for (uint32_t i = 0; i < top->ps_count; i++) {
        missing += !top->ps[i].here;
    }
    return missing;
}

/* A window of few lines has the first of them; the last one stays free, for
 * its end would scroll. */
static void
cut_lines(struct rps_text *text, size_t begun, uint32_t lines)
{
    size_t at = begun;

    for (uint32_t i = 1; i < lines && at < text->length; i++) {
        const char *end = memchr(text->bytes + at, '\n', text->length - at);

        at = end != NULL ? (size_t)(end - text->bytes) + 1 : text->length;
    }
    if (lines > 0 && at < text->length) {
        text->bytes[at] = '\0';
        text->length = at;
    }
}

/* Lines for the servers: all where the tables leave room, else half. */
static uint32_t
share(uint32_t servers, size_t tables, uint32_t room)
{
    const uint32_t half = room / 2;
    const uint32_t of_tables =
            tables < room - half ? (uint32_t)tables : room - half;
    const uint32_t most = room - of_tables;

    return servers < most ? servers : most;
}

void
rps_top_draw(struct rps_text *text, const struct rps_top *top,
        const rps_cluster *cluster, const struct rps_top_form *form)
{
    const uint32_t away = missing_count(top);
    const uint32_t missing =
            (away < MISSING_MAX ? away : MISSING_MAX) + missing_workers(top);
    const uint32_t servers = top->ps_count + (top->ps_count > 1);
    /* head, titles of two lists, two blank lines, hot keys, the last line,
     * missing ones, the workers' title and blank line */
    const uint32_t others = 7 + missing + (worker_count(top) > 0 ? 2 : 0);
    const uint32_t all_room = form->lines == 0       ? 2 * ROWS_MAX
                              : form->lines > others ? form->lines - others
                                                     : 2;
    /* a third at most */
    const uint32_t third = (all_room + 2) / 3;
    const uint32_t of_workers =
            worker_count(top) < third ? (uint32_t)worker_count(top) : third;
    const uint32_t room = all_room > of_workers ? all_room - of_workers : 1;
    const size_t begun = text->length;
    const uint32_t of_servers = share(servers, top->table_count, room);

    rps_text_add(text, "%s", form->ansi ? "\033[H" : "");
    add_words(text, form, "recps top%s", form->head);
    add_missing(text, top, form);
    add_missing_workers(text, top, form);
    add_servers(text, top, cluster, of_servers, form);
    add_words(text, form, "%s", "");
    if (worker_count(top) > 0) {
        add_workers(text, top, of_workers, form);
    }
    add_tables(text, top, room - of_servers, form);
    add_words(text, form, "%s", "");
    add_hot(text, top, form);
    cut_lines(text, begun, form->lines);
    rps_text_add(text, "%s", form->ansi ? "\033[J" : "");
}
