/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/text_dataset.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

rps_status
rps_text_dataset_open(struct rps_dataset *dataset, const char *format,
        const char *path, rps_line_fn parse, struct rps_error *error)
{
    struct rps_text_dataset *text = calloc(1, sizeof(*text));
    rps_status status;

    if (text == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "data: no memory");
    }
    status = rps_file_list_find(&text->files, format, path, error);
    if (status != RPS_OK) {
        free(text);
        return status;
    }
    rps_line_reader_init(&text->lines, &text->files);
    text->parse = parse;
    dataset->reader = text;
    return RPS_OK;
}

struct scan_counts {
    uint64_t rows;
    uint64_t bad;
};

static rps_status
scan_files(struct rps_dataset *dataset, const struct rps_file_list *files,
        rps_line_fn fn, struct scan_counts *counts, struct rps_error *error)
{
    struct rps_line_reader lines;
    struct rps_line line;
    rps_status status;

    rps_line_reader_init(&lines, files);
    while ((status = rps_line_reader_next(&lines, &line, error)) == RPS_OK) {
        status = fn(dataset, &line, error);
        if (status == RPS_E_INVAL && dataset->options.skip_bad_rows) {
            counts->bad++;
        } else if (status != RPS_OK) {
            break;
        } else {
            counts->rows++;
        }
    }
    rps_line_reader_finish(&lines);
    return status == RPS_E_NOT_FOUND ? RPS_OK : status;
}

rps_status
rps_text_dataset_scan(
        struct rps_dataset *dataset, rps_line_fn fn, struct rps_error *error)
{
    struct rps_text_dataset *text = dataset->reader;
    struct scan_counts counts = {0};
    rps_status status = scan_files(dataset, &text->files, fn, &counts, error);

    if (status != RPS_OK) {
        return status;
    }
    dataset->rows = counts.rows;
    dataset->rows_known = true;
    if (counts.bad > dataset->bad_rows_max) {
        dataset->bad_rows_max = counts.bad;
    }
    return RPS_OK;
}

rps_status
rps_text_dataset_scan_also(struct rps_dataset *dataset, const char *format,
        rps_line_fn fn, struct rps_error *error)
{
    const char *also = dataset->options.also;
    size_t length = strlen(format);
    struct rps_file_list files = {0};
    struct scan_counts counts = {0};
    rps_status status;

    if (also == NULL || strncmp(also, format, length) != 0 ||
            also[length] != ':') {
        return RPS_OK;
    }
    status = rps_file_list_find(&files, format, also + length + 1, error);
    if (status == RPS_OK) {
        status = scan_files(dataset, &files, fn, &counts, error);
    }
    rps_file_list_finish(&files);
    return status;
}

rps_status
rps_text_dataset_next(struct rps_dataset *dataset, struct rps_error *error)
{
    struct rps_text_dataset *text = dataset->reader;
    struct rps_line line;
    rps_status status = rps_line_reader_next(&text->lines, &line, error);

    return status == RPS_OK ? text->parse(dataset, &line, error) : status;
}

rps_status
rps_text_dataset_rewind(struct rps_dataset *dataset, struct rps_error *error)
{
    struct rps_text_dataset *text = dataset->reader;

    rps_line_reader_rewind(&text->lines);
    return RPS_OK;
}

rps_status
rps_text_dataset_count(struct rps_dataset *dataset, struct rps_error *error)
{
    struct rps_text_dataset *text = dataset->reader;

    return rps_text_dataset_scan(dataset, text->parse, error);
}

void
rps_text_dataset_close(struct rps_dataset *dataset)
{
    struct rps_text_dataset *text = dataset->reader;

    if (text == NULL) {
        return;
    }
    rps_line_reader_finish(&text->lines);
    rps_file_list_finish(&text->files);
    free(text->slots);
    free(text->token_keys);
    free(text->token_slots);
    free(text);
    dataset->reader = NULL;
}

char *
rps_line_column(char **rest, char separator)
{
    char *column = *rest;
    char *end;

    if (column == NULL) {
        return NULL;
    }
    end = strchr(column, separator);
    if (end == NULL) {
        *rest = NULL;
    } else {
        *end = '\0';
        *rest = end + 1;
    }
    return column;
}

rps_status
rps_line_key(const struct rps_line *line, size_t column, const char *text,
        uint64_t *key_out, struct rps_error *error)
{
    if (!rps_parse_u64(text, key_out)) {
        return rps_bad_row(error, line, column,
                "key \"%.80s\" is not a decimal number below 2^64", text);
    }
    return RPS_OK;
}
