/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libfm: "label key:1 key:1 …", separated by blanks. The position is the
 * field, the key is taken as it is. The longest row sets the field count.
 */
#include "base/text.h"
#include "client/worker/text_dataset.h"

#include <stdlib.h>
#include <string.h>

static rps_status
parse_label(const struct rps_line *line, const char *text, float *label,
        struct rps_error *error)
{
    double value;

    if (text == NULL) {
        return rps_bad_row(error, line, 1, "the row is empty");
    }
    if (!rps_parse_double(text[0] == '+' ? text + 1 : text, &value) ||
            (value != 1.0 && value != 0.0 && value != -1.0)) {
        return rps_bad_row(
                error, line, 1, "label \"%.80s\" is not 1, -1 or 0", text);
    }
    *label = value == 1.0 ? 1.0f : 0.0f;
    return RPS_OK;
}

static rps_status
parse_token(const struct rps_line *line, size_t column, char *text,
        uint64_t *key, struct rps_error *error)
{
    char *value = strchr(text, ':');
    double number;

    if (value == NULL) {
        return rps_bad_row(error, line, column,
                "\"%.80s\" is not of the form key:1", text);
    }
    *value++ = '\0';
    if (!rps_parse_double(value, &number)) {
        return rps_bad_row(error, line, column,
                "value \"%.80s\" is not a finite number", value);
    }
    if (number != 1.0) {
        return rps_bad_row(error, line, column,
                "value \"%.80s\": only 1 is supported (a key is there or "
                "not); leave a zero out, and make a weight a key of its own",
                value);
    }
    return rps_line_key(line, column, text, key, error);
}

/* Label and keys of a line, whatever their number. */
static rps_status
collect(struct rps_dataset *dataset, struct rps_line *line,
        struct rps_error *error)
{
    struct rps_row_builder *row = &dataset->row;
    rps_status status = rps_line_check_nul(line, ' ', error);
    char *rest = NULL;
    char *word;
    float label = 0.0f;

    if (status != RPS_OK) {
        return status;
    }
    row->key_count = 0;
    word = strtok_r(line->text, " \t", &rest);
    status = parse_label(line, word, &label, error);
    while (status == RPS_OK && (word = strtok_r(NULL, " \t", &rest)) != NULL) {
        if (row->key_count == RPS_FIELD_LIMIT) {
            return rps_bad_row(error, line, row->key_count + 2,
                    "more than %u keys in a row", RPS_FIELD_LIMIT);
        }
        status = rps_row_builder_reserve(row, row->key_count + 1, error);
        if (status == RPS_OK) {
            status = parse_token(line, row->key_count + 2, word,
                    &row->keys[row->key_count], error);
            row->key_count++;
        }
    }
    if (status == RPS_OK && row->labels != NULL) {
        row->labels[0] = label;
    }
    return status;
}

static rps_status
scan(struct rps_dataset *dataset, struct rps_line *line,
        struct rps_error *error)
{
    rps_status status = collect(dataset, line, error);

    if (status == RPS_OK && dataset->row.key_count > dataset->shape.fields) {
        dataset->shape.fields = (uint32_t)dataset->row.key_count;
    }
    return status;
}

static rps_status
parse(struct rps_dataset *dataset, struct rps_line *line,
        struct rps_error *error)
{
    struct rps_row_builder *row = &dataset->row;
    rps_status status = collect(dataset, line, error);
    uint32_t field;

    if (status != RPS_OK) {
        return status;
    }
    if (row->key_count > dataset->shape.fields) {
        return rps_bad_row(error, line, row->key_count + 1,
                "the row has %zu keys, the whole input had at most %u when "
                "it was opened: the file has changed",
                row->key_count, dataset->shape.fields);
    }
    for (field = 0; field <= dataset->shape.fields; field++) {
        row->offsets[field] =
                (uint32_t)(field < row->key_count ? field : row->key_count);
    }
    return RPS_OK;
}

static const struct rps_dataset_ops ops = {
        .next = rps_text_dataset_next,
        .rewind = rps_text_dataset_rewind,
        .count = rps_text_dataset_count,
        .key = rps_dataset_plain_key,
        .close = rps_text_dataset_close,
};

rps_status
rps_dataset_open_libfm(
        struct rps_dataset *dataset, const char *path, struct rps_error *error)
{
    rps_status status =
            rps_text_dataset_open(dataset, "libfm", path, parse, error);

    if (status != RPS_OK) {
        return status;
    }
    dataset->ops = &ops;
    dataset->shape.labels = 1;
    status = rps_text_dataset_scan(dataset, scan, error);
    if (status == RPS_OK) {
        status = rps_text_dataset_scan_also(dataset, "libfm", scan, error);
    }
    if (status == RPS_OK && dataset->shape.fields == 0) {
        status = rps_fail(
                error, RPS_E_INVAL, "libfm: %.400s: no row has a key", path);
    }
    return status == RPS_OK ? rps_row_builder_init(dataset, error) : status;
}
