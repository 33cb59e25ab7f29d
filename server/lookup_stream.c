/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns answers to lookups that go out while they are made: rows are gathered
 * into memory that is used over and over, and sent while it is in the core's
 * own cache, and while the peer reads what went before. A reply holds no memory
 * of its own, unless its peer is slow.
 *
 * What could fail is done before the first byte goes: from there on the frame
 * is made to its end, whatever its deadline says.
 */
#include "proto/value.h"
#include "server/lookup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows of the longest table fit a part. */
_Static_assert(RPS_DIM_MAX * sizeof(float) <= RPS_FRAME_PART_BYTES, "a row");

struct stream {
    struct rps_request *request;
    const struct rps_parts *parts;
    struct rps_frame_sink *sink;
    float *wide;     /* a slice before it is narrowed; NULL: nothing is */
    size_t *offsets; /* [parts->count]: of each part's rows in the frame */
    uint8_t *head;
    size_t head_bytes;
    size_t frame_bytes;
    size_t at; /* bytes of the frame so far */
};

static bool
may_stream(const struct rps_request *request, const struct rps_parts *parts)
{
    bool may = request->session->sink != NULL &&
               rps_parts_status(parts) == RPS_OK &&
               (request->message->header.flags & RPS_FLAG_BODY_XXH3) == 0;

    for (size_t i = 0; may && i < parts->count; i++) {
        may = parts->items[i].offsets == NULL;
    }
    return may;
}

/* The frame up to its arrays; where those belong. */
static rps_status
make_head(struct stream *stream)
{
    const struct rps_request *request = stream->request;
    const struct rps_parts *parts = stream->parts;
    /* c is read before the rows: in async they may be newer, never older */
    const struct rps_header header = rps_reply_header(request->service,
            request->session, &request->message->header, RPS_OK);
    /* as a whole answer has them, where words may follow */
    const uint32_t sections = (uint32_t)parts->count + 1;
    struct rps_builder builder;

    rps_builder_begin_apart(&builder, &header, sections);
    for (size_t i = 0; i < parts->count; i++) {
        const struct rps_table_part *part = &parts->items[i];
        const struct rps_section section = {.table_id = part->table_id,
                .kind = RPS_SECTION_ROWS,
                .value = part->keys->value,
                .dim = part->spec->dim,
                .count = part->keys->count,
                .learning_rate = NAN};

        stream->offsets[i] = rps_builder_reserve(&builder, &section);
    }
    stream->head_bytes = rps_builder_head_bytes(sections);
    return rps_builder_end(&builder, &stream->head, &stream->frame_bytes);
}

static bool
narrows(const struct rps_parts *parts)
{
    for (size_t i = 0; i < parts->count; i++) {
        if (parts->items[i].keys->value != RPS_VALUE_F32) {
            return true;
        }
    }
    return false;
}

static bool
prepare(struct stream *stream)
{
    stream->offsets = calloc(stream->parts->count + 1, sizeof(size_t));
    if (stream->offsets == NULL || make_head(stream) != RPS_OK ||
            stream->frame_bytes <= RPS_FRAME_PART_BYTES) {
        return false;
    }
    if (narrows(stream->parts)) {
        stream->wide = malloc(RPS_FRAME_PART_BYTES);
        if (stream->wide == NULL) {
            return false;
        }
    }
    return stream->sink->begin(stream->sink, stream->frame_bytes);
}

static void
put_head(struct stream *stream)
{
    memcpy(stream->sink->room(stream->sink, stream->head_bytes), stream->head,
            stream->head_bytes);
    stream->sink->put(stream->sink, stream->head_bytes);
    stream->at = stream->head_bytes;
}

/* Zeros up to where an array begins. */
static void
put_padding(struct stream *stream, size_t offset)
{
    const size_t n = offset - stream->at;

    if (n > 0) {
        memset(stream->sink->room(stream->sink, n), 0, n);
        stream->sink->put(stream->sink, n);
        stream->at = offset;
    }
}

static void
put_slice(struct stream *stream, const struct rps_table_part *part,
        uint64_t first, uint64_t n)
{
    const uint32_t dim = part->spec->dim;
    const uint16_t value = part->keys->value;
    const size_t bytes = n * rps_value_row_bytes(value, dim);
    uint8_t *to = stream->sink->room(stream->sink, bytes);

    if (value == RPS_VALUE_F32) {
        rps_lookup_read(stream->request, part, first, n, (float *)(void *)to);
    } else {
        rps_lookup_read(stream->request, part, first, n, stream->wide);
        rps_value_encode(value, dim, n, stream->wide, to);
    }
    stream->sink->put(stream->sink, bytes);
    stream->at += bytes;
}

static void
put_part(struct stream *stream, size_t index)
{
    const struct rps_table_part *part = &stream->parts->items[index];
    const uint64_t count = part->keys->count;
    const uint64_t slice =
            RPS_FRAME_PART_BYTES / (part->spec->dim * sizeof(float));

    if (count == 0) {
        return;
    }
    put_padding(stream, stream->offsets[index]);
    for (uint64_t at = 0; at < count; at += slice) {
        put_slice(stream, part, at, count - at < slice ? count - at : slice);
    }
}

bool
rps_lookup_stream(struct rps_request *request, const struct rps_parts *parts)
{
    struct stream stream = {
            .request = request, .parts = parts, .sink = request->session->sink};

    if (!may_stream(request, parts)) {
        return false;
    }
    request->streamed = prepare(&stream);
    if (request->streamed) {
        put_head(&stream);
        for (size_t i = 0; i < parts->count; i++) {
            put_part(&stream, i);
        }
    }
    free(stream.offsets);
    free(stream.head);
    free(stream.wide);
    return request->streamed;
}
