/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the order of rows: the window [first_row, end_row), the shuffle
 * buffer, and which row of a global batch is whose. Every rank draws the
 * whole order, so that no rank needs to ask another.
 */
#include "client/worker/batch.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#define SHUFFLE_ROWS_MAX (UINT64_C(1) << 32)
#define SHUFFLE_STREAM   UINT64_C(0x73687566666c6500)

/* A row in the shuffle buffer: offsets, keys, labels and dense, packed. */
struct stored_row {
    void *bytes;
    size_t capacity;
    size_t key_count;
};

struct rps_batcher {
    struct rps_dataset *dataset; /* borrowed */
    struct rps_dataset_shape shape;
    struct rps_batcher_options options;
    uint64_t epoch_rows; /* read from the data in this epoch */
    bool dry;            /* the window's end was seen */
    uint64_t random;
    struct stored_row *buffer; /* [shuffle] */
    size_t stored;             /* rows in the buffer */
};

static rps_status
check_options(
        const struct rps_batcher_options *options, struct rps_error *error)
{
    if (options->batch_rows == 0 || options->replicas == 0 ||
            options->rank >= options->replicas ||
            options->batch_rows > SIZE_MAX / options->replicas) {
        return rps_fail(error, RPS_E_INVAL,
                "batches of %zu rows for rank %u of %u: impossible",
                options->batch_rows, options->rank, options->replicas);
    }
    if (options->shuffle > SHUFFLE_ROWS_MAX) {
        return rps_fail(error, RPS_E_INVAL,
                "shuffle: a buffer of %llu rows; at most %llu",
                (unsigned long long)options->shuffle,
                (unsigned long long)SHUFFLE_ROWS_MAX);
    }
    return RPS_OK;
}

rps_status
rps_batcher_create(struct rps_batcher **batcher_out,
        struct rps_dataset *dataset, const struct rps_batcher_options *options,
        struct rps_error *error)
{
    rps_status status = check_options(options, error);
    struct rps_batcher *batcher;

    *batcher_out = NULL;
    if (status != RPS_OK) {
        return status;
    }
    batcher = calloc(1, sizeof(*batcher));
    if (batcher == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "batches: no memory");
    }
    batcher->dataset = dataset;
    batcher->shape = rps_dataset_shape_of(dataset);
    batcher->options = *options;
    batcher->dry = true; /* until start */
    if (options->shuffle > 0) {
        batcher->buffer =
                calloc((size_t)options->shuffle, sizeof(*batcher->buffer));
        if (batcher->buffer == NULL) {
            free(batcher);
            return rps_fail(error, RPS_E_NOMEM,
                    "shuffle: no memory for a buffer of %llu rows",
                    (unsigned long long)options->shuffle);
        }
    }
    *batcher_out = batcher;
    return RPS_OK;
}

void
rps_batcher_destroy(struct rps_batcher *batcher)
{
    uint64_t i;

    if (batcher == NULL) {
        return;
    }
    for (i = 0; batcher->buffer != NULL && i < batcher->options.shuffle; i++) {
        free(batcher->buffer[i].bytes);
    }
    free(batcher->buffer);
    free(batcher);
}

uint64_t
rps_batcher_epoch_rows(const struct rps_batcher *batcher)
{
    return batcher->epoch_rows;
}

/* The next row of the window, in file order. */
static rps_status
read_row(struct rps_batcher *batcher, struct rps_row *row,
        struct rps_error *error)
{
    const struct rps_batcher_options *options = &batcher->options;
    rps_status status;

    if (batcher->dry || (options->end_row != 0 &&
                                options->first_row + batcher->epoch_rows >=
                                        options->end_row)) {
        batcher->dry = true;
        return RPS_E_NOT_FOUND;
    }
    status = rps_dataset_next(batcher->dataset, row, error);
    if (status == RPS_OK) {
        batcher->epoch_rows++;
    } else if (status == RPS_E_NOT_FOUND) {
        batcher->dry = true;
    }
    return status;
}

static rps_status
store_row(const struct rps_batcher *batcher, struct stored_row *stored,
        const struct rps_row *row, struct rps_error *error)
{
    const struct rps_dataset_shape *shape = &batcher->shape;
    size_t keys = row->offsets[shape->fields];
    size_t key_bytes = keys * sizeof(uint64_t);
    size_t offset_bytes = ((size_t)shape->fields + 1) * sizeof(uint32_t);
    size_t label_bytes = shape->labels * sizeof(float);
    size_t dense_bytes = shape->dense * sizeof(float);
    size_t bytes = key_bytes + offset_bytes + label_bytes + dense_bytes;
    char *at;

    if (bytes > stored->capacity) {
        void *wide = realloc(stored->bytes, bytes);

        if (wide == NULL) {
            return rps_fail(error, RPS_E_NOMEM,
                    "shuffle: no memory for a buffer of %llu rows",
                    (unsigned long long)batcher->options.shuffle);
        }
        stored->bytes = wide;
        stored->capacity = bytes;
    }
    stored->key_count = keys;
    at = stored->bytes;
    if (keys > 0) {
        memcpy(at, row->keys, key_bytes);
    }
    memcpy(at + key_bytes, row->offsets, offset_bytes);
    memcpy(at + key_bytes + offset_bytes, row->labels, label_bytes);
    memcpy(at + key_bytes + offset_bytes + label_bytes, row->dense,
            dense_bytes);
    return RPS_OK;
}

static void
show_stored(const struct rps_batcher *batcher, const struct stored_row *stored,
        struct rps_row *row)
{
    const uint64_t *keys = stored->bytes;
    const uint32_t *offsets = (const void *)(keys + stored->key_count);
    const float *labels = (const void *)(offsets + batcher->shape.fields + 1);

    row->keys = keys;
    row->offsets = offsets;
    row->labels = labels;
    row->dense = labels + batcher->shape.labels;
}

static rps_status
fill_buffer(struct rps_batcher *batcher, struct rps_error *error)
{
    rps_status status = RPS_OK;
    struct rps_row row;

    while (batcher->stored < batcher->options.shuffle && !batcher->dry) {
        status = read_row(batcher, &row, error);
        if (status == RPS_OK) {
            status = store_row(
                    batcher, &batcher->buffer[batcher->stored], &row, error);
        }
        if (status != RPS_OK) {
            return status == RPS_E_NOT_FOUND ? RPS_OK : status;
        }
        batcher->stored++;
    }
    return status;
}

/*
 * The next row of the epoch's order. From a full buffer a random row is
 * taken and moved to the buffer's end, where the next fill replaces it; the
 * row stays valid until then.
 */
static rps_status
next_row(struct rps_batcher *batcher, struct rps_row *row,
        struct rps_error *error)
{
    struct stored_row chosen;
    size_t place;
    rps_status status;

    if (batcher->options.shuffle == 0) {
        return read_row(batcher, row, error);
    }
    status = fill_buffer(batcher, error);
    if (status != RPS_OK) {
        return status;
    }
    if (batcher->stored == 0) {
        return RPS_E_NOT_FOUND;
    }
    place = (size_t)(rps_unit_double(rps_mix64(batcher->random)) *
                     (double)batcher->stored);
    batcher->random += UINT64_C(0x9e3779b97f4a7c15);
    batcher->stored--;
    chosen = batcher->buffer[place];
    batcher->buffer[place] = batcher->buffer[batcher->stored];
    batcher->buffer[batcher->stored] = chosen;
    show_stored(batcher, &chosen, row);
    return RPS_OK;
}

static rps_status
skip_rows(struct rps_batcher *batcher, uint64_t rows, struct rps_error *error)
{
    const struct rps_batcher_options *options = &batcher->options;
    rps_status status = RPS_OK;
    struct rps_row row;

    if (options->shuffle > 0) {
        while (rows > 0 && status == RPS_OK) {
            status = next_row(batcher, &row, error);
            rows--;
        }
        return status == RPS_E_NOT_FOUND ? RPS_OK : status;
    }
    batcher->epoch_rows = rows;
    return rps_dataset_skip(batcher->dataset, rows, error);
}

rps_status
rps_batcher_start(struct rps_batcher *batcher, uint64_t epoch, uint64_t skip,
        struct rps_error *error)
{
    const struct rps_batcher_options *options = &batcher->options;
    uint64_t global = (uint64_t)options->batch_rows * options->replicas;
    rps_status status = rps_dataset_rewind(batcher->dataset, error);

    batcher->epoch_rows = 0;
    batcher->stored = 0;
    batcher->dry = false;
    batcher->random = rps_mix64(
            rps_mix64(options->seed ^ SHUFFLE_STREAM) ^ rps_mix64(epoch));
    if (skip > UINT64_MAX / 2 / global) {
        return rps_fail(error, RPS_E_INVAL, "batches: cannot skip %llu of them",
                (unsigned long long)skip);
    }
    if (status == RPS_OK && options->first_row > 0) {
        status = rps_dataset_skip(batcher->dataset, options->first_row, error);
    }
    return status == RPS_OK && skip > 0
                   ? skip_rows(batcher, skip * global, error)
                   : status;
}

static rps_status
prepare_batch(const struct rps_batcher *batcher, struct rps_batch *batch,
        struct rps_error *error)
{
    const struct rps_dataset_shape *shape = &batcher->shape;
    size_t capacity = batcher->options.batch_rows;
    size_t bags = capacity * shape->fields;

    if (batch->capacity != capacity ||
            memcmp(&batch->shape, shape, sizeof(*shape)) != 0) {
        rps_batch_finish(batch);
        batch->shape = *shape;
        batch->labels = malloc(capacity * shape->labels * sizeof(float));
        batch->dense = malloc((capacity * shape->dense + 1) * sizeof(float));
        batch->offsets = malloc((bags + 1) * sizeof(*batch->offsets));
        if (batch->labels == NULL || batch->dense == NULL ||
                batch->offsets == NULL) {
            rps_batch_finish(batch);
            return rps_fail(error, RPS_E_NOMEM,
                    "no memory for a batch of %zu rows", capacity);
        }
        batch->capacity = capacity;
    }
    batch->rows = 0;
    batch->key_count = 0;
    batch->other_count = 0;
    batch->offsets[0] = 0;
    return RPS_OK;
}

/* Room in an array of keys for `count`. */
static rps_status
reserve_keys(uint64_t **keys, size_t *capacity, size_t count,
        struct rps_error *error)
{
    size_t wide = *capacity == 0 ? 1024 : *capacity;
    uint64_t *grown;

    if (count <= *capacity) {
        return RPS_OK;
    }
    if (count > UINT32_MAX) {
        return rps_fail(
                error, RPS_E_LIMIT, "a batch has more than 2^32 - 1 keys");
    }
    while (wide < count) {
        wide *= 2;
    }
    grown = realloc(*keys, wide * sizeof(*grown));
    if (grown == NULL) {
        return rps_fail(
                error, RPS_E_NOMEM, "no memory for %zu keys of a batch", wide);
    }
    *keys = grown;
    *capacity = wide;
    return RPS_OK;
}

static rps_status
add_row(struct rps_batch *batch, const struct rps_row *row,
        struct rps_error *error)
{
    const struct rps_dataset_shape *shape = &batch->shape;
    size_t keys = row->offsets[shape->fields];
    uint32_t *offsets = &batch->offsets[batch->rows * shape->fields];
    rps_status status = reserve_keys(
            &batch->keys, &batch->key_capacity, batch->key_count + keys, error);
    uint32_t field;

    if (status != RPS_OK) {
        return status;
    }
    memcpy(&batch->labels[batch->rows * shape->labels], row->labels,
            shape->labels * sizeof(float));
    memcpy(&batch->dense[batch->rows * shape->dense], row->dense,
            shape->dense * sizeof(float));
    if (keys > 0) {
        memcpy(&batch->keys[batch->key_count], row->keys,
                keys * sizeof(*row->keys));
    }
    for (field = 1; field <= shape->fields; field++) {
        offsets[field] = (uint32_t)batch->key_count + row->offsets[field];
    }
    batch->key_count += keys;
    batch->rows++;
    return RPS_OK;
}

static rps_status
add_other_keys(struct rps_batch *batch, const struct rps_row *row,
        struct rps_error *error)
{
    const size_t keys = row->offsets[batch->shape.fields];
    rps_status status = reserve_keys(&batch->other_keys, &batch->other_capacity,
            batch->other_count + keys, error);

    if (status == RPS_OK && keys > 0) {
        memcpy(&batch->other_keys[batch->other_count], row->keys,
                keys * sizeof(*row->keys));
        batch->other_count += keys;
    }
    return status;
}

/* Rows behind the real ones: zeros and empty bags. */
static void
pad_batch(struct rps_batch *batch)
{
    const struct rps_dataset_shape *shape = &batch->shape;
    size_t padding = batch->capacity - batch->rows;
    size_t bag;

    memset(&batch->labels[batch->rows * shape->labels], 0,
            padding * shape->labels * sizeof(float));
    memset(&batch->dense[batch->rows * shape->dense], 0,
            padding * shape->dense * sizeof(float));
    for (bag = batch->rows * shape->fields;
            bag < batch->capacity * shape->fields; bag++) {
        batch->offsets[bag + 1] = (uint32_t)batch->key_count;
    }
}

rps_status
rps_batcher_next(struct rps_batcher *batcher, struct rps_batch *batch,
        struct rps_error *error)
{
    const struct rps_batcher_options *options = &batcher->options;
    size_t global = options->batch_rows * options->replicas;
    rps_status status = prepare_batch(batcher, batch, error);
    struct rps_row row;
    size_t i;

    for (i = 0; status == RPS_OK && i < global; i++) {
        status = next_row(batcher, &row, error);
        if (status == RPS_OK && i % options->replicas == options->rank) {
            status = add_row(batch, &row, error);
        } else if (status == RPS_OK && options->other_keys) {
            status = add_other_keys(batch, &row, error);
        }
    }
    if (status == RPS_E_NOT_FOUND && i > 1 && options->pad_last) {
        status = RPS_OK; /* i - 1 rows were there */
    }
    if (status == RPS_OK) {
        pad_batch(batch);
    }
    return status;
}

void
rps_batch_finish(struct rps_batch *batch)
{
    free(batch->labels);
    free(batch->dense);
    free(batch->keys);
    free(batch->other_keys);
    free(batch->offsets);
    *batch = (struct rps_batch){0};
}
