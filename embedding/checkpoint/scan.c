/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/scan.h"

#include "base/hash.h"
#include "base/spec.h"
#include "embedding/checkpoint/crew.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/reader.h"
#include "embedding/checkpoint/values.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_BYTES    (1u << 20) /* of rows and slots, about */
#define BATCH_ROWS_MAX 16384u
#define LAST_MAX       0xffffffu /* meta has 24 bits for it */

struct scanner {
    const struct rps_ckpt_scan *scan;
    struct rps_ckpt_column columns[RPS_CKPT_COLUMNS_MAX];
    struct rps_ckpt_reader readers[RPS_CKPT_COLUMNS_MAX];
    uint32_t count;
    uint32_t slot_floats;
    size_t capacity; /* rows of a batch */
    struct rps_ckpt_crew crew;
    struct rps_ckpt_batch *batch; /* at hand; of the crew */
    void *column;                 /* [capacity] of the widest column but rows */
};

static rps_status
open_columns(struct scanner *s, struct rps_error *error)
{
    const struct rps_ckpt_scan *scan = s->scan;

    for (uint32_t i = 0; i < s->count; i++) {
        const struct rps_ckpt_column *column = &s->columns[i];
        struct rps_npy wanted = {
                .ndim = column->width == 0 ? 1 : 2,
                .shape = {scan->table->rows, column->width},
        };
        char *name = rps_ckpt_column_name(scan->table->spec.name,
                scan->part->part, scan->part->parts, column);
        rps_status status;

        memcpy(wanted.dtype, column->dtype, sizeof(wanted.dtype));
        if (name == NULL) {
            return rps_fail(
                    error, RPS_E_NOMEM, "%s: no memory", scan->folder->path);
        }
        status = rps_ckpt_reader_open(
                &s->readers[i], scan->folder, scan->part->files, name, error);
        free(name);
        if (status == RPS_OK) {
            status = rps_ckpt_reader_expect(&s->readers[i], &wanted, error);
        }
        if (status != RPS_OK) {
            return status;
        }
    }
    return RPS_OK;
}

static rps_status
make_column(struct scanner *s, struct rps_error *error)
{
    const rps_table_spec *spec = &s->scan->table->spec;
    size_t widest = s->slot_floats > 2 ? s->slot_floats : 2;

    s->capacity = BATCH_BYTES /
                  (rps_ckpt_value_bytes(spec) + s->slot_floats * sizeof(float));
    s->capacity = s->capacity > BATCH_ROWS_MAX ? BATCH_ROWS_MAX : s->capacity;
    s->capacity = s->capacity == 0 ? 1 : s->capacity;
    s->column = calloc(s->capacity * widest, sizeof(float));
    return s->column != NULL ? RPS_OK
                             : rps_fail(error, RPS_E_NOMEM,
                                       "%s: no memory to read table %s",
                                       s->scan->folder->path, spec->name);
}

/* Where a column is read to at once; else it is spread over the rows. */
static void *
place_of(const struct scanner *s, const struct rps_ckpt_column *column)
{
    switch (column->kind) {
    case RPS_CKPT_KEYS:
        return s->batch->keys;
    case RPS_CKPT_ROWS:
        return s->batch->values;
    case RPS_CKPT_SLOT: /* the only one: nothing is between two of them */
        return column->width == s->slot_floats ? (void *)s->batch->slots
                                               : s->column;
    default:
        return s->column;
    }
}

/* One column's next n entries into where the batch has them. */
static rps_status
read_column(struct scanner *s, uint32_t i, size_t n, struct rps_error *error)
{
    const struct rps_ckpt_column *column = &s->columns[i];
    struct rps_ckpt_batch *batch = s->batch;
    size_t bytes = n * rps_ckpt_column_bytes(column);
    const uint32_t *last = s->column;
    const uint8_t *uses = s->column;
    void *to = place_of(s, column);
    rps_status status = rps_ckpt_reader_read(&s->readers[i], to, bytes, error);

    batch->file_bytes += bytes;
    if (status != RPS_OK) {
        return status;
    }
    for (size_t row = 0; row < n && to == s->column; row++) {
        if (column->kind == RPS_CKPT_SLOT) {
            memcpy(batch->slots + row * s->slot_floats + column->slot_offset,
                    (const float *)s->column + row * column->width,
                    column->width * sizeof(float));
        } else if (column->kind == RPS_CKPT_USES) {
            batch->meta[row] |= (uint32_t)uses[row] << 24;
        } else if (last[row] > LAST_MAX) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "%s: %" PRIu32 " is above 2^24 - 1", s->readers[i].path,
                    last[row]);
        } else {
            batch->meta[row] |= last[row];
        }
    }
    return RPS_OK;
}

/* Hashes; a key outside the part's slots would be lost by a reader of one
 * part, so it is refused. */
static rps_status
hash_keys(struct scanner *s, struct rps_error *error)
{
    const struct rps_ckpt_part *part = s->scan->part;
    struct rps_ckpt_batch *batch = s->batch;

    for (size_t i = 0; i < batch->n; i++) {
        uint32_t slot;

        batch->hashes[i] = rps_key_hash(batch->keys[i], s->scan->job_seed);
        slot = rps_hash_slot(batch->hashes[i]);
        if (slot < part->slot_first || slot > part->slot_last) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "%s: key %" PRIu64 " is in slot %" PRIu32
                    ", the part has slots %" PRIu32 " to %" PRIu32,
                    s->readers[0].path, batch->keys[i], slot, part->slot_first,
                    part->slot_last);
        }
    }
    return RPS_OK;
}

static rps_status
fill_batch(struct scanner *s, size_t n, struct rps_error *error)
{
    rps_status status = RPS_OK;

    s->batch->n = n;
    s->batch->file_bytes = 0;
    memset(s->batch->meta, 0, n * sizeof(*s->batch->meta));
    for (uint32_t i = 0; i < s->count && status == RPS_OK; i++) {
        status = read_column(s, i, n, error);
    }
    return status == RPS_OK ? hash_keys(s, error) : status;
}

static rps_status
read_rows(struct scanner *s, struct rps_error *error)
{
    uint64_t left = s->scan->table->rows;
    rps_status status = RPS_OK;

    while (left > 0 && status == RPS_OK) {
        const size_t n = left < s->capacity ? (size_t)left : s->capacity;

        s->batch = rps_ckpt_crew_take(&s->crew);
        if (s->batch == NULL) {
            return RPS_OK; /* the crew says why */
        }
        left -= n;
        status = fill_batch(s, n, error);
        if (status == RPS_OK) {
            rps_ckpt_crew_give(&s->crew);
        }
    }
    for (uint32_t i = 0; i < s->count && status == RPS_OK; i++) {
        status = rps_ckpt_reader_check(&s->readers[i], error);
    }
    return status;
}

/* What the reader found is told before what the crew did with it. */
static rps_status
scan_rows(struct scanner *s, struct rps_error *error)
{
    struct rps_error cause = {""};
    rps_status status =
            rps_ckpt_crew_start(&s->crew, s->scan, s->capacity, error);
    rps_status done;

    if (status == RPS_OK) {
        status = read_rows(s, error);
    }
    done = rps_ckpt_crew_end(&s->crew, &cause);
    if (status == RPS_OK && done != RPS_OK) {
        status = rps_fail(error, done, "%s", cause.text);
    }
    return status;
}

rps_status
rps_ckpt_scan_table(const struct rps_ckpt_scan *scan, struct rps_error *error)
{
    struct scanner s;
    rps_status status;

    memset(&s, 0, sizeof(s));
    s.scan = scan;
    s.count = rps_ckpt_columns(&scan->table->spec, s.columns);
    s.slot_floats = rps_spec_slot_floats(&scan->table->spec);
    assert(s.columns[0].kind == RPS_CKPT_KEYS);
    status = open_columns(&s, error);
    if (status == RPS_OK) {
        status = make_column(&s, error);
    }
    if (status == RPS_OK) {
        status = scan_rows(&s, error);
    }
    for (uint32_t i = 0; i < s.count; i++) {
        rps_ckpt_reader_close(&s.readers[i]);
    }
    free(s.column);
    return status;
}

static rps_status
read_lane(struct rps_ckpt_reader *reader, struct rps_lane_record *lane,
        struct rps_error *error)
{
    uint64_t words[RPS_CKPT_LANE_WORDS];
    rps_status status =
            rps_ckpt_reader_read(reader, words, sizeof(words), error);

    if (status != RPS_OK) {
        return status;
    }
    if (words[1] > UINT32_MAX || (int64_t)words[3] < INT32_MIN ||
            (int64_t)words[3] > INT32_MAX) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: a lane or a status has more than 32 bits", reader->path);
    }
    if (words[2] == 0 || words[2] == UINT64_MAX || (int64_t)words[3] > 0) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: number %" PRIu64 " with status %" PRId64
                " is no verdict of a lane",
                reader->path, words[2], (int64_t)words[3]);
    }
    lane->client = words[0];
    lane->lane = (uint32_t)words[1];
    lane->number = words[2];
    lane->status = (int32_t)(int64_t)words[3];
    return RPS_OK;
}

static rps_status
read_lanes(struct rps_ckpt_reader *reader, struct rps_lane_record **lanes_out,
        size_t *count_out, struct rps_error *error)
{
    struct rps_npy wanted = {
            "<u8", 2, {reader->npy.shape[0], RPS_CKPT_LANE_WORDS}, 0, 0};
    size_t n = (size_t)reader->npy.shape[0];
    rps_status status = rps_ckpt_reader_expect(reader, &wanted, error);

    if (status != RPS_OK) {
        return status;
    }
    /* the shape agrees with the file's size, which exists: n is bounded */
    *lanes_out = calloc(n + 1, sizeof(**lanes_out));
    if (*lanes_out == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", reader->path);
    }
    *count_out = n;
    for (size_t i = 0; i < n && status == RPS_OK; i++) {
        status = read_lane(reader, &(*lanes_out)[i], error);
    }
    return status == RPS_OK ? rps_ckpt_reader_check(reader, error) : status;
}

rps_status
rps_ckpt_scan_lanes(const struct rps_ckpt_folder *folder,
        const struct rps_ckpt_part *part, struct rps_lane_record **lanes_out,
        size_t *count_out, struct rps_error *error)
{
    struct rps_ckpt_reader reader;
    char *name = rps_ckpt_lanes_name(part->part, part->parts);
    rps_status status;

    *lanes_out = NULL;
    *count_out = 0;
    if (name == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", folder->path);
    }
    status = rps_ckpt_reader_open(&reader, folder, part->files, name, error);
    free(name);
    if (status == RPS_OK) {
        status = read_lanes(&reader, lanes_out, count_out, error);
    }
    rps_ckpt_reader_close(&reader);
    if (status != RPS_OK) {
        free(*lanes_out);
        *lanes_out = NULL;
        *count_out = 0;
    }
    return status;
}
