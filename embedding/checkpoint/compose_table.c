/* SPDX-License-Identifier: Apache-2.0 */
/* One table of a checkpoint that a tool makes: its files, part by part. */
#include "base/file.h"
#include "base/hash.h"
#include "base/spec.h"
#include "base/text.h"
#include "embedding/checkpoint/compose_impl.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/values.h"
#include "embedding/checkpoint/writer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES ((size_t)4 << 20) /* of a file that is open, about */

/** One table, while its rows go by. */
struct output {
    struct rps_ckpt_compose *c;
    const rps_table_spec *spec;
    const struct rps_ckpt_source *source;
    struct rps_ckpt_column columns[RPS_CKPT_COLUMNS_MAX];
    uint32_t column_count;
    size_t value_bytes;
    uint32_t slot_floats;
    uint64_t *expected;         /* [parts] rows */
    uint64_t *rows;             /* [parts] written */
    uint64_t *counts;           /* [parts] counts of keys without a row */
    struct rps_digest *digests; /* [parts] */
    /* the parts at hand, first..first + n - 1 */
    uint32_t first;
    uint32_t n;
    struct rps_ckpt_writer *writers; /* [n][column_count], or [n] */
};

static uint32_t
part_of(const struct rps_ckpt_compose *c, uint64_t hash)
{
    return (uint32_t)((uint64_t)rps_hash_slot(hash) * c->parts /
                      RPS_SLOT_COUNT);
}

static rps_status
number_keys(void *context, struct rps_ckpt_keys *keys, struct rps_error *error)
{
    struct output *o = context;

    (void)error;
    for (size_t i = 0; i < keys->n; i++) {
        o->expected[part_of(o->c, keys->hashes[i])]++;
    }
    return RPS_OK;
}

static rps_status
number_counts(
        void *context, struct rps_ckpt_counts *counts, struct rps_error *error)
{
    struct output *o = context;

    (void)error;
    for (size_t i = 0; i < counts->n; i++) {
        o->counts[part_of(o->c, (uint64_t)counts->slots[i] << 52)]++;
    }
    return RPS_OK;
}

static const void *
cell_of(const struct rps_ckpt_column *column,
        const struct rps_ckpt_batch *batch, size_t row, uint32_t slot_floats,
        const uint32_t *last, const uint8_t *uses)
{
    switch (column->kind) {
    case RPS_CKPT_KEYS:
        return &batch->keys[row];
    case RPS_CKPT_ROWS:
        return batch->values + row * batch->value_bytes;
    case RPS_CKPT_SLOT:
        return batch->slots + row * slot_floats + column->slot_offset;
    case RPS_CKPT_USES:
        return uses;
    case RPS_CKPT_LAST:
        break;
    }
    return last;
}

static rps_status
check_row(const struct output *o, const struct rps_ckpt_batch *batch,
        size_t row, struct rps_error *error)
{
    if (rps_ckpt_values_finite(o->spec->value_dtype,
                batch->values + row * batch->value_bytes, o->spec->dim) &&
            rps_ckpt_values_finite(RPS_VALUE_F32,
                    batch->slots + row * o->slot_floats, o->slot_floats)) {
        return RPS_OK;
    }
    return rps_fail(error, RPS_E_NONFINITE,
            "table %s: the row of key %" PRIu64 " is not finite", o->spec->name,
            batch->keys[row]);
}

static rps_status
write_row(struct output *o, const struct rps_ckpt_batch *batch, size_t row,
        struct rps_error *error)
{
    const uint32_t part = part_of(o->c, batch->hashes[row]);
    const uint32_t last = RPS_META_LAST(batch->meta[row]);
    const uint8_t uses = (uint8_t)RPS_META_USES(batch->meta[row]);
    rps_status status = check_row(o, batch, row, error);

    assert(part >= o->first && part < o->first + o->n);
    for (uint32_t i = 0; i < o->column_count && status == RPS_OK; i++) {
        status = rps_ckpt_writer_add(
                &o->writers[(part - o->first) * o->column_count + i],
                cell_of(&o->columns[i], batch, row, o->slot_floats, &last,
                        &uses),
                rps_ckpt_column_bytes(&o->columns[i]), error);
    }
    if (status == RPS_OK) {
        o->rows[part]++;
        rps_digest_add(&o->digests[part],
                rps_digest_row(batch->keys[row],
                        batch->values + row * batch->value_bytes,
                        o->value_bytes, batch->slots + row * o->slot_floats,
                        o->slot_floats * sizeof(float), uses, last));
    }
    return status;
}

static rps_status
write_rows(void *context, struct rps_ckpt_batch *batch, struct rps_error *error)
{
    struct output *o = context;
    rps_status status = RPS_OK;

    for (size_t i = 0; i < batch->n && status == RPS_OK; i++) {
        status = write_row(o, batch, i, error);
    }
    return status;
}

static rps_status
open_column(struct output *o, uint32_t part, uint32_t i,
        struct rps_ckpt_writer *writer, struct rps_error *error)
{
    const struct rps_ckpt_column *column = &o->columns[i];
    struct rps_npy npy = {
            .ndim = column->width == 0 ? 1 : 2,
            .shape = {o->expected[part], column->width},
    };
    char *name = rps_ckpt_column_name(o->spec->name, part, o->c->parts, column);
    rps_status status;

    if (name == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", o->c->beside.path);
    }
    memcpy(npy.dtype, column->dtype, sizeof(npy.dtype));
    status = rps_ckpt_writer_open(writer, o->c->beside.path, name, &npy, error);
    free(name);
    return status;
}

static rps_status
open_columns(struct output *o, struct rps_error *error)
{
    for (uint32_t k = 0; k < o->n; k++) {
        for (uint32_t i = 0; i < o->column_count; i++) {
            rps_status status = open_column(o, o->first + k, i,
                    &o->writers[k * o->column_count + i], error);

            if (status != RPS_OK) {
                return status;
            }
        }
    }
    return RPS_OK;
}

/* A source that shows other rows the second time is no source. */
static rps_status
check_numbers(const struct output *o, struct rps_error *error)
{
    for (uint32_t i = o->first; i < o->first + o->n; i++) {
        if (o->rows[i] != o->expected[i]) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "table %s: part %" PRIu32 " has %" PRIu64
                    " keys, and %" PRIu64 " rows",
                    o->spec->name, i, o->expected[i], o->rows[i]);
        }
    }
    return RPS_OK;
}

static void
range_of(const struct output *o, uint32_t *first, uint32_t *last)
{
    uint32_t ignored;

    rps_ckpt_part_slots(o->first, o->c->parts, first, &ignored);
    rps_ckpt_part_slots(o->first + o->n - 1, o->c->parts, &ignored, last);
}

static rps_status
close_writers(struct output *o, uint32_t each, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (uint32_t k = 0; k < o->n * each && status == RPS_OK; k++) {
        json_t *files =
                json_object_get(o->c->part[o->first + k / each], "files");

        if (o->writers[k].path != NULL) {
            status = rps_ckpt_writer_close(&o->writers[k], files, error);
        }
    }
    return status;
}

static void
discard_writers(struct output *o, uint32_t each)
{
    for (uint32_t k = 0; k < o->n * each; k++) {
        rps_ckpt_writer_discard(&o->writers[k]);
    }
}

/* The rows of a few parts: as many as may have their files open at once. */
static rps_status
write_parts(struct output *o, struct rps_error *error)
{
    uint32_t first;
    uint32_t last;
    rps_status status;

    range_of(o, &first, &last);
    memset(o->writers, 0, o->n * o->column_count * sizeof(*o->writers));
    status = open_columns(o, error);
    if (status == RPS_OK) {
        status = o->source->rows(
                o->source->context, first, last, write_rows, o, error);
    }
    if (status == RPS_OK) {
        status = check_numbers(o, error);
    }
    if (status == RPS_OK) {
        status = close_writers(o, o->column_count, error);
    }
    discard_writers(o, o->column_count);
    return status;
}

static rps_status
write_counts(
        void *context, struct rps_ckpt_counts *counts, struct rps_error *error)
{
    struct output *o = context;
    rps_status status = RPS_OK;

    for (size_t i = 0; i < counts->n && status == RPS_OK; i++) {
        const uint32_t part = part_of(o->c, (uint64_t)counts->slots[i] << 52);
        const uint64_t words[RPS_CKPT_ADMISSION_WORDS] = {
                counts->entries[i].id, counts->entries[i].count};

        assert(part >= o->first && part < o->first + o->n);
        status = rps_ckpt_writer_add(
                &o->writers[part - o->first], words, sizeof(words), error);
    }
    return status;
}

static rps_status
open_counts(struct output *o, struct rps_error *error)
{
    for (uint32_t k = 0; k < o->n; k++) {
        const uint32_t part = o->first + k;
        const struct rps_npy npy = {
                "<u8", 2, {o->counts[part], RPS_CKPT_ADMISSION_WORDS}, 0, 0};
        char *name;
        rps_status status;

        if (o->counts[part] == 0) {
            continue;
        }
        name = rps_ckpt_admission_name(o->spec->name, part, o->c->parts);
        status = name == NULL ? rps_fail(error, RPS_E_NOMEM, "%s: no memory",
                                        o->c->beside.path)
                              : rps_ckpt_writer_open(&o->writers[k],
                                        o->c->beside.path, name, &npy, error);
        free(name);
        if (status != RPS_OK) {
            return status;
        }
    }
    return RPS_OK;
}

static rps_status
write_part_counts(struct output *o, struct rps_error *error)
{
    uint32_t first;
    uint32_t last;
    rps_status status = RPS_OK;

    if (o->source->counts == NULL) {
        return RPS_OK;
    }
    range_of(o, &first, &last);
    memset(o->writers, 0, o->n * sizeof(*o->writers));
    status = open_counts(o, error);
    if (status == RPS_OK) {
        status = o->source->counts(
                o->source->context, first, last, write_counts, o, error);
    }
    if (status == RPS_OK) {
        status = close_writers(o, 1, error);
    }
    discard_writers(o, 1);
    return status;
}

static rps_status
number_all(struct output *o, struct rps_error *error)
{
    const struct rps_ckpt_source *source = o->source;
    rps_status status = source->keys(
            source->context, 0, RPS_SLOT_COUNT - 1, number_keys, o, error);

    if (status == RPS_OK && source->counts != NULL) {
        status = source->counts(source->context, 0, RPS_SLOT_COUNT - 1,
                number_counts, o, error);
    }
    return status;
}

static rps_status
write_all(struct output *o, struct rps_error *error)
{
    const size_t part_bytes = o->column_count * FILE_BYTES;
    const size_t at_once = o->c->memory_bytes / part_bytes;
    rps_status status = number_all(o, error);

    o->n = at_once < 1             ? 1
           : at_once < o->c->parts ? (uint32_t)at_once
                                   : o->c->parts;
    o->writers = calloc((size_t)o->n * o->column_count, sizeof(*o->writers));
    if (o->writers == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", o->c->beside.path);
    }
    while (status == RPS_OK && o->first < o->c->parts) {
        const uint32_t left = o->c->parts - o->first;

        o->n = left < o->n ? left : o->n;
        status = write_parts(o, error);
        if (status == RPS_OK) {
            status = write_part_counts(o, error);
        }
        o->first += o->n;
    }
    return status;
}

static json_t *
table_entry(const struct output *o, uint64_t rows, struct rps_digest digest)
{
    char hex[RPS_DIGEST_HEX_BYTES];

    return json_pack("{s:o, s:I, s:s}", "spec", rps_spec_to_canonical(o->spec),
            "rows", (json_int_t)rows, "digest", rps_digest_hex(digest, hex));
}

static bool
add_entry(json_t *root, const char *name, json_t *entry)
{
    return entry != NULL && json_object_set_new(json_object_get(root, "tables"),
                                    name, entry) == 0;
}

static bool
list_part(const struct output *o, uint32_t i)
{
    json_t *entry = table_entry(o, o->rows[i], o->digests[i]);
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64,
            o->source->pushes == NULL
                    ? 0
                    : o->source->pushes(o->source->context, i, o->c->parts));
    json_object_set_new(entry, "pushes", json_string(text));
    if (o->counts[i] > 0) {
        json_object_set_new(
                entry, "admission", json_integer((json_int_t)o->counts[i]));
    }
    return add_entry(o->c->part[i], o->spec->name, entry);
}

/* In the part files and in the manifest. */
static rps_status
list_table(const struct output *o, struct rps_error *error)
{
    struct rps_digest digest = {0, 0};
    uint64_t rows = 0;
    bool good = true;

    for (uint32_t i = 0; i < o->c->parts && good; i++) {
        rows += o->rows[i];
        rps_digest_add(&digest, o->digests[i]);
        good = list_part(o, i);
    }
    good = good && add_entry(o->c->manifest, o->spec->name,
                           table_entry(o, rows, digest));
    return good ? RPS_OK
                : rps_fail(error, RPS_E_NOMEM, "%s: no memory",
                          o->c->beside.path);
}

static rps_status
sync_table(const struct output *o, struct rps_error *error)
{
    char *path = rps_format("%s/table-%s", o->c->beside.path, o->spec->name);
    rps_status status = path == NULL
                                ? rps_fail(error, RPS_E_NOMEM, "%s: no memory",
                                          o->c->beside.path)
                                : rps_dir_sync(path, error);

    free(path);
    return status;
}

static rps_status
make_table_folder(const struct output *o, struct rps_error *error)
{
    char *path = rps_format("%s/table-%s", o->c->beside.path, o->spec->name);
    rps_status status = path == NULL
                                ? rps_fail(error, RPS_E_NOMEM, "%s: no memory",
                                          o->c->beside.path)
                                : rps_dir_make(path, error);

    free(path);
    return status;
}

rps_status
rps_ckpt_compose_table(struct rps_ckpt_compose *compose,
        const rps_table_spec *spec, const struct rps_ckpt_source *source,
        struct rps_error *error)
{
    struct output o = {.c = compose, .spec = spec, .source = source};
    rps_status status = make_table_folder(&o, error);

    o.column_count = rps_ckpt_columns(spec, o.columns);
    o.value_bytes = rps_ckpt_value_bytes(spec);
    o.slot_floats = rps_spec_slot_floats(spec);
    o.expected = calloc(compose->parts, sizeof(*o.expected));
    o.rows = calloc(compose->parts, sizeof(*o.rows));
    o.counts = calloc(compose->parts, sizeof(*o.counts));
    o.digests = calloc(compose->parts, sizeof(*o.digests));
    if (o.expected == NULL || o.rows == NULL || o.counts == NULL ||
            o.digests == NULL) {
        status = rps_fail(
                error, RPS_E_NOMEM, "%s: no memory", compose->beside.path);
    }
    if (status == RPS_OK) {
        status = write_all(&o, error);
    }
    if (status == RPS_OK) {
        status = sync_table(&o, error);
    }
    if (status == RPS_OK) {
        status = list_table(&o, error);
    }
    free(o.expected);
    free(o.rows);
    free(o.counts);
    free(o.digests);
    free(o.writers);
    return status;
}
