/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what all datasets have: the choice of a reader, the current row, the
 * counts. A format's own rules stand in read_<format>.c.
 */
#include "client/worker/dataset.h"

#include "base/text.h"
#include "client/worker/dataset_impl.h"

#include <stdlib.h>
#include <string.h>

struct format {
    const char *name;
    rps_status (*open)(struct rps_dataset *dataset, const char *argument,
            struct rps_error *error);
};

static const struct format formats[] = {
        {"criteo", rps_dataset_open_criteo},
        {"ml-100k", rps_dataset_open_ml100k},
        {"libfm", rps_dataset_open_libfm},
        {"feasign", rps_dataset_open_feasign},
        {"synthetic", rps_dataset_open_synthetic},
};

static const struct format *
find_format(const char *spec)
{
    size_t i;

    for (i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        size_t length = strlen(formats[i].name);

        if (strncmp(spec, formats[i].name, length) == 0 &&
                spec[length] == ':') {
            return &formats[i];
        }
    }
    return NULL;
}

rps_status
rps_dataset_open(struct rps_dataset **dataset_out, const char *spec,
        const struct rps_dataset_options *options, struct rps_error *error)
{
    const struct format *format = find_format(spec);
    struct rps_dataset *dataset;
    rps_status status;

    *dataset_out = NULL;
    if (format == NULL) {
        return rps_fail(error, RPS_E_INVAL,
                "data \"%.200s\": unknown format; write criteo:PATH, "
                "ml-100k:DIR, libfm:PATH, feasign:PATH or "
                "synthetic:rows=N,…",
                spec);
    }
    dataset = calloc(1, sizeof(*dataset));
    if (dataset == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "data: no memory");
    }
    if (options != NULL) {
        dataset->options = *options;
    }
    if (dataset->options.little_demo &&
            strcmp(format->name, "synthetic") != 0) {
        status = rps_fail(error, RPS_E_INVAL,
                "data \"%.200s\": little_demo has its own planted data; "
                "write synthetic:rows=N,keys=N,seed=N",
                spec);
        goto fail;
    }
    status = format->open(dataset, spec + strlen(format->name) + 1, error);
    if (status != RPS_OK) {
        goto fail;
    }
    dataset->options.also = NULL;
    *dataset_out = dataset;
    return RPS_OK;
fail:
    rps_dataset_close(dataset);
    return status;
}

void
rps_dataset_close(struct rps_dataset *dataset)
{
    if (dataset == NULL) {
        return;
    }
    if (dataset->ops != NULL) {
        dataset->ops->close(dataset);
    }
    rps_row_builder_finish(&dataset->row);
    rps_tokens_finish(&dataset->tokens);
    free(dataset);
}

struct rps_dataset_shape
rps_dataset_shape_of(const struct rps_dataset *dataset)
{
    return dataset->shape;
}

rps_status
rps_dataset_next(struct rps_dataset *dataset, struct rps_row *row,
        struct rps_error *error)
{
    rps_status status = dataset->ops->next(dataset, error);

    while (status == RPS_E_INVAL && dataset->options.skip_bad_rows) {
        rps_dataset_note_bad(dataset);
        status = dataset->ops->next(dataset, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    row->labels = dataset->row.labels;
    row->dense = dataset->row.dense;
    row->keys = dataset->row.keys;
    row->offsets = dataset->row.offsets;
    return RPS_OK;
}

rps_status
rps_dataset_skip(
        struct rps_dataset *dataset, uint64_t n, struct rps_error *error)
{
    struct rps_row row;
    rps_status status = RPS_OK;

    if (dataset->ops->skip != NULL) {
        return dataset->ops->skip(dataset, n, error);
    }
    while (n > 0 && status == RPS_OK) {
        status = rps_dataset_next(dataset, &row, error);
        n--;
    }
    return status == RPS_E_NOT_FOUND ? RPS_OK : status;
}

rps_status
rps_dataset_rewind(struct rps_dataset *dataset, struct rps_error *error)
{
    dataset->bad_rows = 0;
    return dataset->ops->rewind(dataset, error);
}

rps_status
rps_dataset_rows(struct rps_dataset *dataset, uint64_t *rows_out,
        struct rps_error *error)
{
    if (!dataset->rows_known) {
        rps_status status = dataset->ops->count(dataset, error);

        if (status != RPS_OK) {
            return status;
        }
    }
    *rows_out = dataset->rows;
    return RPS_OK;
}

uint64_t
rps_dataset_skipped(const struct rps_dataset *dataset)
{
    return dataset->bad_rows_max;
}

void
rps_dataset_note_bad(struct rps_dataset *dataset)
{
    dataset->bad_rows++;
    if (dataset->bad_rows > dataset->bad_rows_max) {
        dataset->bad_rows_max = dataset->bad_rows;
    }
}

rps_status
rps_dataset_key(const struct rps_dataset *dataset, uint32_t field,
        const char *token, uint64_t *key_out, struct rps_error *error)
{
    if (field >= dataset->shape.fields) {
        return rps_fail(error, RPS_E_INVAL,
                "field %u, token \"%.80s\": the data has fields 0 to %u", field,
                token, dataset->shape.fields - 1);
    }
    return dataset->ops->key(dataset, field, token, key_out, error);
}

rps_status
rps_dataset_plain_key(const struct rps_dataset *dataset, uint32_t field,
        const char *token, uint64_t *key_out, struct rps_error *error)
{
    if (!rps_parse_u64(token, key_out)) {
        return rps_fail(error, RPS_E_INVAL,
                "field %u: token \"%.80s\" is not a decimal key below 2^64",
                field, token);
    }
    return RPS_OK;
}

rps_status
rps_row_builder_init(struct rps_dataset *dataset, struct rps_error *error)
{
    struct rps_row_builder *row = &dataset->row;
    const struct rps_dataset_shape *shape = &dataset->shape;

    row->labels = calloc((size_t)shape->labels + 1, sizeof(*row->labels));
    row->dense = calloc((size_t)shape->dense + 1, sizeof(*row->dense));
    row->offsets = calloc((size_t)shape->fields + 1, sizeof(*row->offsets));
    if (row->labels == NULL || row->dense == NULL || row->offsets == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "data: no memory for a row");
    }
    return rps_row_builder_reserve(row, shape->fields, error);
}

rps_status
rps_row_builder_reserve(
        struct rps_row_builder *row, size_t count, struct rps_error *error)
{
    size_t capacity = row->key_capacity == 0 ? 64 : row->key_capacity;
    uint64_t *keys;

    if (count <= row->key_capacity) {
        return RPS_OK;
    }
    while (capacity < count) {
        capacity *= 2;
    }
    keys = realloc(row->keys, capacity * sizeof(*keys));
    if (keys == NULL) {
        return rps_fail(
                error, RPS_E_NOMEM, "data: no memory for %zu keys", capacity);
    }
    row->keys = keys;
    row->key_capacity = capacity;
    return RPS_OK;
}

void
rps_row_builder_finish(struct rps_row_builder *row)
{
    free(row->labels);
    free(row->dense);
    free(row->keys);
    free(row->offsets);
    *row = (struct rps_row_builder){0};
}
