/* SPDX-License-Identifier: Apache-2.0 */
/*
 * criteo: label, I1..I13 (numbers, may be empty), C1..C26 (hex hashes, may
 * be empty), separated by TAB; no header.
 */
#include "base/text.h"
#include "client/worker/text_dataset.h"

#include <endian.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DENSE_COUNT  13u
#define FIELD_COUNT  26u
#define COLUMN_COUNT (1u + DENSE_COUNT + FIELD_COUNT)

static rps_status
parse_label(const struct rps_line *line, const char *text, float *label,
        struct rps_error *error)
{
    double value;

    if (!rps_parse_double(text, &value) || (value != 0.0 && value != 1.0)) {
        return rps_bad_row(
                error, line, 1, "label \"%.80s\" is not 0 or 1", text);
    }
    *label = (float)value;
    return RPS_OK;
}

/* Most are counts: as strtod reads them. "-0" is left to it. */
static bool
parse_count(const char *text, double *value)
{
    const bool negative = text[0] == '-';
    int32_t n = 0;
    size_t i = negative;

    for (; text[i] >= '0' && text[i] <= '9' && i < 10; i++) {
        n = 10 * n + (text[i] - '0');
        if (n > 100000000) {
            return false;
        }
    }
    if (text[i] != '\0' || i == negative || (n == 0 && negative)) {
        return false;
    }
    *value = negative ? -n : n;
    return true;
}

/* The logarithm in double, rounded once: the smallest count of the data set
 * is -2, so the argument is at least 1. */
static rps_status
parse_dense(const struct rps_line *line, size_t column, const char *text,
        float *dense, struct rps_error *error)
{
    double value = 0.0;

    if (text[0] != '\0' && !parse_count(text, &value) &&
            !rps_parse_double(text, &value)) {
        return rps_bad_row(error, line, column,
                "I%zu \"%.80s\" is not a finite number", column - 1, text);
    }
    *dense = (float)log(fmax(value, -2.0) + 3.0);
    return RPS_OK;
}

#define EACH_BYTE(b) (UINT64_C(0x0101010101010101) * (b))

/*
 * Eight hex digits at once, all eight bytes side by side; false: not all are.
 * Adding to a byte below 0x80 sets its top bit from some value on and never
 * reaches the next byte.
 */
static bool
parse_hex8(const char *text, uint64_t *token)
{
    uint64_t x, low, digits, letters, n;

    memcpy(&x, text, sizeof(x));
    x = be64toh(x); /* the first digit is the highest */
    low = x | EACH_BYTE(0x20);
    digits = (x + EACH_BYTE(0x80 - '0')) & ~(x + EACH_BYTE(0x7f - '9'));
    letters = (low + EACH_BYTE(0x80 - 'a')) & ~(low + EACH_BYTE(0x7f - 'f'));
    letters &= EACH_BYTE(0x80);
    if ((x & EACH_BYTE(0x80)) != 0 ||
            ((digits | letters) & EACH_BYTE(0x80)) != EACH_BYTE(0x80)) {
        return false;
    }
    n = (x & EACH_BYTE(0x0f)) + 9 * (letters >> 7);
    n = (n | n >> 4) & UINT64_C(0x00ff00ff00ff00ff);
    n = (n | n >> 8) & UINT64_C(0x0000ffff0000ffff);
    *token = (n | n >> 16) & UINT64_C(0xffffffff);
    return true;
}

/* Hex digits alone: no sign, no 0x, at most 12 digits behind the zeros. */
static bool
parse_hex(const char *text, uint64_t *token)
{
    uint64_t value = 0;
    size_t i;

    for (i = 0; text[i] != '\0'; i++) {
        unsigned char c = (unsigned char)text[i];
        uint64_t digit;

        if (c >= '0' && c <= '9') {
            digit = (uint64_t)(c - '0');
        } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
            digit = (uint64_t)((c | 0x20) - 'a' + 10);
        } else {
            return false;
        }
        value = value << 4 | digit;
        if (value >= RPS_TOKEN_LIMIT) {
            return false;
        }
    }
    *token = value;
    return i > 0;
}

static rps_status
missing_key(const struct rps_dataset *dataset, uint32_t field, uint64_t *key,
        struct rps_error *error)
{
    const struct rps_token_entry *other = NULL;
    rps_status status =
            rps_tokens_peek(&dataset->tokens, field, "", key, &other);

    if (other != NULL) {
        return rps_fail(error, RPS_E_MISMATCH,
                "criteo: the missing values of fields %u and %u have the "
                "same key",
                field, other->field);
    }
    return status;
}

static rps_status
parse_field(struct rps_dataset *dataset, const struct rps_line *line,
        uint32_t field, const char *text, size_t length,
        struct rps_error *error)
{
    uint64_t *key = &dataset->row.keys[field];
    uint64_t token;

    if (text[0] == '\0') {
        return missing_key(dataset, field, key, error);
    }
    if (!(length == 8 && parse_hex8(text, &token)) &&
            !parse_hex(text, &token)) {
        return rps_bad_row(error, line, 2 + DENSE_COUNT + field,
                "C%u \"%.80s\" is not a hex number below 2^48", field + 1,
                text);
    }
    *key = rps_token_pack(field, token);
    return RPS_OK;
}

static rps_status
check_columns(const struct rps_line *line, struct rps_error *error)
{
    size_t columns = 1;
    size_t i;
    rps_status status = rps_line_check_nul(line, '\t', error);

    for (i = 0; i < line->length; i++) {
        columns += line->text[i] == '\t';
    }
    if (status == RPS_OK && columns != COLUMN_COUNT) {
        status = rps_bad_row(error, line, columns,
                "the row has %zu columns, not %u (label, I1..I13, C1..C26, "
                "separated by TAB)",
                columns, COLUMN_COUNT);
    }
    return status;
}

static rps_status
parse(struct rps_dataset *dataset, struct rps_line *line,
        struct rps_error *error)
{
    char *rest = line->text;
    rps_status status = check_columns(line, error);
    size_t i;

    if (status != RPS_OK) {
        return status;
    }
    status = parse_label(
            line, rps_line_column(&rest, '\t'), dataset->row.labels, error);
    for (i = 0; status == RPS_OK && i < DENSE_COUNT; i++) {
        status = parse_dense(line, 2 + i, rps_line_column(&rest, '\t'),
                &dataset->row.dense[i], error);
    }
    for (i = 0; status == RPS_OK && i < FIELD_COUNT; i++) {
        const char *text = rps_line_column(&rest, '\t');
        const char *end = rest != NULL ? rest - 1 : line->text + line->length;

        status = parse_field(
                dataset, line, (uint32_t)i, text, (size_t)(end - text), error);
    }
    return status;
}

static rps_status
key_of(const struct rps_dataset *dataset, uint32_t field, const char *token,
        uint64_t *key_out, struct rps_error *error)
{
    uint64_t value;

    if (strcmp(token, "-1") == 0) {
        return missing_key(dataset, field, key_out, error);
    }
    if (!rps_token_integer(token, &value)) {
        return rps_fail(error, RPS_E_INVAL,
                "field %u: token \"%.80s\" is neither a decimal number below "
                "2^48 nor -1 (a missing value)",
                field, token);
    }
    *key_out = rps_token_pack(field, value);
    return RPS_OK;
}

static const struct rps_dataset_ops ops = {
        .next = rps_text_dataset_next,
        .rewind = rps_text_dataset_rewind,
        .count = rps_text_dataset_count,
        .key = key_of,
        .close = rps_text_dataset_close,
};

rps_status
rps_dataset_open_criteo(
        struct rps_dataset *dataset, const char *path, struct rps_error *error)
{
    rps_status status =
            rps_text_dataset_open(dataset, "criteo", path, parse, error);
    uint32_t field;

    if (status != RPS_OK) {
        return status;
    }
    dataset->ops = &ops;
    dataset->shape = (struct rps_dataset_shape){
            .labels = 1, .dense = DENSE_COUNT, .fields = FIELD_COUNT};
    status = rps_row_builder_init(dataset, error);
    for (field = 0; field <= FIELD_COUNT && status == RPS_OK; field++) {
        dataset->row.offsets[field] = field; /* one token a field, always */
    }
    /* The only hashed tokens there are: one missing value a field. */
    for (field = 0; field < FIELD_COUNT && status == RPS_OK; field++) {
        const struct rps_token_entry *other = NULL;
        uint64_t key;

        status = rps_tokens_key(&dataset->tokens, field, "", &key, &other);
        if (status != RPS_OK) {
            status = rps_fail(error, status,
                    "criteo: the key of field %u's missing value cannot be "
                    "entered",
                    field);
        }
    }
    return status;
}
