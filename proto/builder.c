/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a frame: sections in order, each array aligned to 64 bytes. */
#include "base/checksum.h"
#include "proto/message.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define COUNTS_BYTES    8u /* u32 sections, u32 0 */
#define FRAME_BYTES_MAX ((size_t)RPS_HEADER_BYTES + RPS_BODY_BYTES_MAX)

static size_t
align_up(size_t n)
{
    return (n + RPS_MESSAGE_ALIGN - 1) & ~(size_t)(RPS_MESSAGE_ALIGN - 1);
}

/* The heap's; what was lent goes back by itself. */
static void
drop_frame(struct rps_builder *builder)
{
    if (!builder->lent) {
        free(builder->frame);
    }
    builder->lent = false;
}

/* Grows where the frame lies, or begins there: nothing moves. */
static bool
grow_lent(struct rps_builder *builder, size_t length)
{
    uint8_t *frame =
            builder->memory != NULL && (builder->lent || builder->frame == NULL)
                    ? builder->memory->room(builder->memory, length)
                    : NULL;

    if (frame == NULL) {
        return false;
    }
    assert(builder->frame == NULL || builder->frame == frame);
    builder->frame = frame;
    builder->lent = true;
    builder->capacity = length;
    return true;
}

/* Grows the frame to `length` bytes; what is new is zero. */
static bool
builder_grow(struct rps_builder *builder, size_t length)
{
    size_t capacity = builder->capacity;
    uint8_t *frame = NULL;

    if (length > FRAME_BYTES_MAX) {
        builder->failed = RPS_E_LIMIT;
        return false;
    }
    if (length > capacity && !grow_lent(builder, length)) {
        capacity = capacity * 2 > length ? capacity * 2 : length;
        frame = aligned_alloc(RPS_MESSAGE_ALIGN, align_up(capacity));
        if (frame == NULL) {
            builder->failed = RPS_E_NOMEM;
            return false;
        }
        if (builder->length > 0) {
            memcpy(frame, builder->frame, builder->length);
        }
        drop_frame(builder);
        builder->frame = frame;
        builder->capacity = align_up(capacity);
    }
    return true;
}

void
rps_builder_begin(struct rps_builder *builder, const struct rps_header *header,
        uint32_t sections)
{
    rps_builder_begin_in(builder, header, sections, NULL);
}

void
rps_builder_begin_in(struct rps_builder *builder,
        const struct rps_header *header, uint32_t sections,
        struct rps_frame_memory *memory)
{
    const size_t start = rps_builder_head_bytes(sections);

    assert(sections <= RPS_SECTIONS_MAX);
    *builder = (struct rps_builder){
            .header = *header, .sections_max = sections, .memory = memory};
    if (builder_grow(builder, start)) {
        memset(builder->frame, 0, start);
        builder->length = start;
    }
}

size_t
rps_builder_head_bytes(uint32_t sections)
{
    return RPS_HEADER_BYTES + COUNTS_BYTES +
           (size_t)sections * RPS_SECTION_BYTES;
}

void
rps_builder_begin_apart(struct rps_builder *builder,
        const struct rps_header *header, uint32_t sections)
{
    assert((header->flags & RPS_FLAG_BODY_XXH3) == 0);
    rps_builder_begin(builder, header, sections);
    builder->apart = true;
}

static struct rps_section *
section_at(struct rps_builder *builder, uint32_t index)
{
    return (struct rps_section *)(void *)(builder->frame + RPS_HEADER_BYTES +
                                          COUNTS_BYTES +
                                          (size_t)index * RPS_SECTION_BYTES);
}

/* For all of the frame, or for none of its arrays. */
static bool
make_room(struct rps_builder *builder, size_t length)
{
    return builder->apart ? length <= FRAME_BYTES_MAX
                          : builder_grow(builder, length);
}

size_t
rps_builder_reserve(
        struct rps_builder *builder, const struct rps_section *section)
{
    const size_t offset = align_up(builder->length);
    const size_t bytes = rps_array_bytes(
            section->kind, section->value, section->dim, section->count);
    struct rps_section *at = NULL;

    assert(builder->section_count < builder->sections_max);
    if (builder->failed != 0) {
        return 0;
    }
    if (bytes > RPS_BODY_BYTES_MAX || !make_room(builder, offset + bytes)) {
        builder->failed = builder->failed != 0 ? builder->failed : RPS_E_LIMIT;
        return 0;
    }
    at = section_at(builder, builder->section_count++);
    *at = *section;
    at->bytes = bytes;
    at->offset = bytes > 0 ? offset : 0;
    if (bytes == 0) {
        return 0;
    }
    if (!builder->apart) { /* no old heap bytes travel in the padding */
        memset(builder->frame + builder->length, 0, offset - builder->length);
    }
    builder->length = offset + bytes;
    return offset;
}

void
rps_builder_add(struct rps_builder *builder, const struct rps_section *section,
        const void *data)
{
    const size_t offset = rps_builder_reserve(builder, section);

    assert(!builder->apart);
    if (offset != 0) {
        memcpy(builder->frame + offset, data, builder->length - offset);
    }
}

void
rps_builder_add_text(struct rps_builder *builder, const char *text, size_t n)
{
    const struct rps_section section = {.kind = RPS_SECTION_TEXT, .count = n};

    rps_builder_add(builder, &section, text);
}

rps_status
rps_builder_end(
        struct rps_builder *builder, uint8_t **frame_out, size_t *length_out)
{
    const uint32_t counts[2] = {builder->section_count, 0};

    *frame_out = NULL;
    *length_out = 0;
    if (builder->failed != 0) {
        const rps_status status = (rps_status)builder->failed;
        rps_builder_finish(builder);
        return status;
    }
    memcpy(builder->frame + RPS_HEADER_BYTES, counts, sizeof(counts));
    builder->header.body_bytes = (uint32_t)(builder->length - RPS_HEADER_BYTES);
    if ((builder->header.flags & RPS_FLAG_BODY_XXH3) != 0) {
        builder->header.body_xxh3 =
                rps_checksum(builder->frame + RPS_HEADER_BYTES,
                        builder->length - RPS_HEADER_BYTES);
    }
    rps_header_encode(&builder->header, builder->frame);
    *frame_out = builder->frame;
    *length_out = builder->length;
    builder->frame = NULL;
    rps_builder_finish(builder);
    return RPS_OK;
}

void
rps_builder_finish(struct rps_builder *builder)
{
    drop_frame(builder);
    *builder = (struct rps_builder){0};
}

rps_status
rps_reply_text(const struct rps_header *request, rps_status status,
        const char *text, uint32_t epoch, uint64_t step, uint8_t **frame_out,
        size_t *length_out)
{
    const struct rps_header header = {
            .version = RPS_WIRE_VERSION,
            .opcode = request->opcode,
            .flags = RPS_FLAG_REPLY | (request->flags & RPS_FLAG_BODY_XXH3),
            .request_id = request->request_id,
            .number = request->number,
            .step = step,
            .epoch = epoch,
            .route_version = request->route_version,
            .status = status,
    };
    struct rps_builder builder;

    rps_builder_begin(&builder, &header, text == NULL ? 0 : 1);
    if (text != NULL) {
        rps_builder_add_text(&builder, text, strlen(text));
    }
    return rps_builder_end(&builder, frame_out, length_out);
}
