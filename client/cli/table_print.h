/* SPDX-License-Identifier: Apache-2.0 */
/* Columns of text, each as wide as its widest cell. */
#ifndef RPS_CLIENT_CLI_TABLE_PRINT_H
#define RPS_CLIENT_CLI_TABLE_PRINT_H

#include <stdbool.h>
#include <stddef.h>

#define RPS_COLUMNS_MAX 12

/** Zeroed with columns and titles set it is an empty table. */
struct rps_table_print {
    size_t columns;
    const char *titles[RPS_COLUMNS_MAX];
    bool right[RPS_COLUMNS_MAX]; /* numbers */
    char **cells;                /* [rows * columns], owned */
    size_t cell_count;
    bool failed; /* no memory for a cell */
};

/** Add the next cell, left to right, row after row. */
void rps_table_print_cell(struct rps_table_print *table, const char *format,
        ...) __attribute__((format(printf, 2, 3)));

/** Print to stdout and release. false: no memory, or stdout is gone. */
bool rps_table_print_end(struct rps_table_print *table);

#endif /* RPS_CLIENT_CLI_TABLE_PRINT_H */
