/* SPDX-License-Identifier: Apache-2.0 */
/*
 * feasign: "0:1" or "1:1" (the label), then "feasign:slot" tokens, separated
 * by blanks. A feasign is a key as it is, all 64 bits; the slots of the whole
 * input, sorted by number, are the fields.
 */
#include "base/text.h"
#include "client/worker/text_dataset.h"

#include <stdlib.h>
#include <string.h>

static rps_status
reserve_tokens(struct rps_text_dataset *text, struct rps_error *error)
{
    size_t capacity =
            text->token_capacity == 0 ? 256 : text->token_capacity * 2;
    uint64_t *keys;
    uint64_t *slots;

    if (text->token_count < text->token_capacity) {
        return RPS_OK;
    }
    keys = realloc(text->token_keys, capacity * sizeof(*keys));
    if (keys == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "feasign: no memory for a row");
    }
    text->token_keys = keys;
    slots = realloc(text->token_slots, capacity * sizeof(*slots));
    if (slots == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "feasign: no memory for a row");
    }
    text->token_slots = slots;
    text->token_capacity = capacity;
    return RPS_OK;
}

static rps_status
parse_label(const struct rps_line *line, const char *word, float *label,
        struct rps_error *error)
{
    if (word == NULL) {
        return rps_bad_row(error, line, 1, "the row is empty");
    }
    if (strcmp(word, "0:1") != 0 && strcmp(word, "1:1") != 0) {
        return rps_bad_row(
                error, line, 1, "label \"%.80s\" is not 0:1 or 1:1", word);
    }
    *label = word[0] == '1' ? 1.0f : 0.0f;
    return RPS_OK;
}

static rps_status
parse_token(struct rps_text_dataset *text, const struct rps_line *line,
        char *word, struct rps_error *error)
{
    size_t column = text->token_count + 2;
    rps_status status = reserve_tokens(text, error);
    char *slot = strchr(word, ':');

    if (status != RPS_OK) {
        return status;
    }
    if (slot == NULL) {
        return rps_bad_row(error, line, column,
                "\"%.80s\" is not of the form feasign:slot", word);
    }
    *slot++ = '\0';
    if (!rps_parse_u64(slot, &text->token_slots[text->token_count])) {
        return rps_bad_row(error, line, column,
                "slot \"%.80s\" is not a decimal number below 2^64", slot);
    }
    status = rps_line_key(
            line, column, word, &text->token_keys[text->token_count], error);
    if (status == RPS_OK) {
        text->token_count++;
    }
    return status;
}

/* Label and (key, slot) pairs of a line, in its order. */
static rps_status
collect(struct rps_dataset *dataset, struct rps_line *line,
        struct rps_error *error)
{
    struct rps_text_dataset *text = dataset->reader;
    rps_status status = rps_line_check_nul(line, ' ', error);
    char *rest = NULL;
    char *word;
    float label = 0.0f;

    if (status != RPS_OK) {
        return status;
    }
    text->token_count = 0;
    word = strtok_r(line->text, " \t", &rest);
    status = parse_label(line, word, &label, error);
    while (status == RPS_OK && (word = strtok_r(NULL, " \t", &rest)) != NULL) {
        status = parse_token(text, line, word, error);
    }
    if (status == RPS_OK && dataset->row.labels != NULL) {
        dataset->row.labels[0] = label;
    }
    return status;
}

/* The first place whose slot is not below `slot`. */
static size_t
lower_bound(const struct rps_text_dataset *text, uint64_t slot)
{
    size_t low = 0;
    size_t high = text->slot_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (text->slots[middle] < slot) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool
has_slot(const struct rps_text_dataset *text, size_t place, uint64_t slot)
{
    return place < text->slot_count && text->slots[place] == slot;
}

static rps_status
add_slot(struct rps_text_dataset *text, const struct rps_line *line,
        size_t token, struct rps_error *error)
{
    uint64_t slot = text->token_slots[token];
    size_t place = lower_bound(text, slot);

    if (has_slot(text, place, slot)) {
        return RPS_OK;
    }
    if (text->slot_count == RPS_FIELD_LIMIT) {
        return rps_fail(error, RPS_E_LIMIT,
                "%s:%llu: column %zu: slot %llu: more than %u slots",
                line->path, (unsigned long long)line->number, token + 2,
                (unsigned long long)slot, RPS_FIELD_LIMIT);
    }
    if (text->slot_count == text->slot_capacity) {
        size_t capacity =
                text->slot_capacity == 0 ? 256 : text->slot_capacity * 2;
        uint64_t *slots = realloc(text->slots, capacity * sizeof(*slots));

        if (slots == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "feasign: no memory");
        }
        text->slots = slots;
        text->slot_capacity = capacity;
    }
    memmove(&text->slots[place + 1], &text->slots[place],
            (text->slot_count - place) * sizeof(*text->slots));
    text->slots[place] = slot;
    text->slot_count++;
    return RPS_OK;
}

static rps_status
scan(struct rps_dataset *dataset, struct rps_line *line,
        struct rps_error *error)
{
    struct rps_text_dataset *text = dataset->reader;
    rps_status status = collect(dataset, line, error);
    size_t i;

    for (i = 0; status == RPS_OK && i < text->token_count; i++) {
        status = add_slot(text, line, i, error);
    }
    return status;
}

/* token_slots becomes fields; offsets[f + 1] counts field f's tokens. */
static rps_status
count_fields(struct rps_dataset *dataset, const struct rps_line *line,
        struct rps_error *error)
{
    struct rps_text_dataset *text = dataset->reader;
    uint32_t *offsets = dataset->row.offsets;
    size_t i;

    memset(offsets, 0, (dataset->shape.fields + 1) * sizeof(*offsets));
    for (i = 0; i < text->token_count; i++) {
        uint64_t slot = text->token_slots[i];
        size_t field = lower_bound(text, slot);

        if (!has_slot(text, field, slot)) {
            return rps_bad_row(error, line, i + 2,
                    "slot %llu was not there when the input was opened: the "
                    "file has changed",
                    (unsigned long long)slot);
        }
        text->token_slots[i] = field;
        offsets[field + 1]++;
    }
    return RPS_OK;
}

static rps_status
parse(struct rps_dataset *dataset, struct rps_line *line,
        struct rps_error *error)
{
    struct rps_text_dataset *text = dataset->reader;
    struct rps_row_builder *row = &dataset->row;
    rps_status status = collect(dataset, line, error);
    uint32_t field;
    size_t i;

    if (status == RPS_OK) {
        status = count_fields(dataset, line, error);
    }
    if (status == RPS_OK) {
        status = rps_row_builder_reserve(row, text->token_count, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    for (field = 0; field < dataset->shape.fields; field++) {
        row->offsets[field + 1] += row->offsets[field];
    }
    /* Stable counting sort. It moves each field's start to its end, which
     * is the next field's start: shifted back below. */
    for (i = 0; i < text->token_count; i++) {
        row->keys[row->offsets[text->token_slots[i]]++] = text->token_keys[i];
    }
    memmove(&row->offsets[1], &row->offsets[0],
            dataset->shape.fields * sizeof(*row->offsets));
    row->offsets[0] = 0;
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
rps_dataset_open_feasign(
        struct rps_dataset *dataset, const char *path, struct rps_error *error)
{
    rps_status status =
            rps_text_dataset_open(dataset, "feasign", path, parse, error);
    struct rps_text_dataset *text = dataset->reader;

    if (status != RPS_OK) {
        return status;
    }
    dataset->ops = &ops;
    dataset->shape.labels = 1;
    status = rps_text_dataset_scan(dataset, scan, error);
    if (status == RPS_OK) {
        status = rps_text_dataset_scan_also(dataset, "feasign", scan, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    if (text->slot_count == 0) {
        return rps_fail(error, RPS_E_INVAL,
                "feasign: %.400s: no row has a token", path);
    }
    dataset->shape.fields = (uint32_t)text->slot_count;
    return rps_row_builder_init(dataset, error);
}
