/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/table_print.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
rps_table_print_cell(struct rps_table_print *table, const char *format, ...)
{
    char **cells = realloc(
            table->cells, (table->cell_count + 1) * sizeof(*table->cells));
    va_list arguments;
    char *cell = NULL;
    int rc;

    if (cells == NULL) {
        table->failed = true;
        return;
    }
    table->cells = cells;
    va_start(arguments, format);
    rc = vasprintf(&cell, format, arguments);
    va_end(arguments);
    if (rc < 0) {
        table->failed = true;
        return;
    }
    cells[table->cell_count++] = cell;
}

static size_t
width_of(const struct rps_table_print *table, size_t column)
{
    size_t width = strlen(table->titles[column]);

    for (size_t i = column; i < table->cell_count; i += table->columns) {
        size_t length = strlen(table->cells[i]);

        width = length > width ? length : width;
    }
    return width;
}

static void
print_cell(const struct rps_table_print *table, size_t column, const char *text,
        size_t width)
{
    bool last = column + 1 == table->columns;
    int pad = (int)width;

    if (table->right[column]) {
        printf("%*s", pad, text);
    } else if (last) {
        printf("%s", text);
    } else {
        printf("%-*s", pad, text);
    }
    printf("%s", last ? "\n" : "  ");
}

bool
rps_table_print_end(struct rps_table_print *table)
{
    size_t widths[RPS_COLUMNS_MAX];
    bool good = !table->failed;

    if (good) {
        for (size_t i = 0; i < table->columns; i++) {
            widths[i] = width_of(table, i);
        }
        for (size_t i = 0; i < table->columns; i++) {
            print_cell(table, i, table->titles[i], widths[i]);
        }
        for (size_t i = 0; i < table->cell_count; i++) {
            size_t column = i % table->columns;

            print_cell(table, column, table->cells[i], widths[column]);
        }
    }
    for (size_t i = 0; i < table->cell_count; i++) {
        free(table->cells[i]);
    }
    free(table->cells);
    table->cells = NULL;
    table->cell_count = 0;
    return good;
}
