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

/* Columns of a terminal: UTF-8's characters, not its bytes. */
static size_t
columns_of(const char *text)
{
    size_t columns = 0;

    for (; *text != '\0'; text++) {
        columns += ((unsigned char)*text & 0xc0) != 0x80 ? 1 : 0;
    }
    return columns;
}

static size_t
width_of(const struct rps_table_print *table, size_t column)
{
    size_t width = columns_of(table->titles[column]);

    for (size_t i = column; i < table->cell_count; i += table->columns) {
        size_t length = columns_of(table->cells[i]);

        width = length > width ? length : width;
    }
    return width;
}

/* *blanks: before the next text of the line. A line does not end in any. */
static void
print_cell(const struct rps_table_print *table, size_t column, const char *text,
        size_t width, size_t *blanks)
{
    const size_t pad = width - columns_of(text);

    *blanks += table->right[column] ? pad : 0;
    if (text[0] != '\0') {
        printf("%*s%s", (int)*blanks, "", text);
        *blanks = 0;
    }
    *blanks += table->right[column] ? 2 : pad + 2;
    if (column + 1 == table->columns) {
        printf("\n");
        *blanks = 0;
    }
}

bool
rps_table_print_end(struct rps_table_print *table)
{
    size_t widths[RPS_COLUMNS_MAX];
    size_t blanks = 0;
    bool good = !table->failed;

    if (good) {
        for (size_t i = 0; i < table->columns; i++) {
            widths[i] = width_of(table, i);
        }
        for (size_t i = 0; i < table->columns; i++) {
            print_cell(table, i, table->titles[i], widths[i], &blanks);
        }
        for (size_t i = 0; i < table->cell_count; i++) {
            size_t column = i % table->columns;

            print_cell(table, column, table->cells[i], widths[column], &blanks);
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
