/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a frame in place. Nothing is believed before it was checked. */
#include "proto/message.h"

#include "base/checksum.h"
#include "proto/value.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct rps_section) == RPS_SECTION_BYTES, "48 bytes");
_Static_assert(offsetof(struct rps_section, learning_rate) == 44, "no holes");

#define COUNTS_BYTES 8u /* u32 sections, u32 0 */

/* Bytes of one element, 0 for an unknown kind or value type. */
static uint64_t
element_bytes(uint16_t kind, uint16_t value, uint32_t dim)
{
    switch (kind) {
    case RPS_SECTION_KEYS:
    case RPS_SECTION_VERSIONS:
        return 8;
    case RPS_SECTION_COUNTS:
    case RPS_SECTION_OFFSETS:
    case RPS_SECTION_META:
    case RPS_SECTION_INDEX:
        return 4;
    case RPS_SECTION_ROWS:
        return rps_value_row_bytes(value, dim);
    case RPS_SECTION_SLOTS:
        return 4 * (uint64_t)dim;
    case RPS_SECTION_DECISION:
    case RPS_SECTION_TEXT:
    case RPS_SECTION_AUTH:
        return 1;
    default:
        return 0;
    }
}

size_t
rps_array_bytes(uint16_t kind, uint16_t value, uint32_t dim, uint64_t count)
{
    uint64_t bytes = 0;

    if (__builtin_mul_overflow(
                element_bytes(kind, value, dim), count, &bytes) ||
            bytes > RPS_BODY_BYTES_MAX) {
        return SIZE_MAX;
    }
    return (size_t)bytes;
}

size_t
rps_section_bytes(uint16_t kind, uint16_t value, uint32_t dim, uint64_t count)
{
    const size_t bytes = rps_array_bytes(kind, value, dim, count);

    return bytes == SIZE_MAX ? bytes
                             : (bytes + RPS_MESSAGE_ALIGN - 1) &
                                       ~(size_t)(RPS_MESSAGE_ALIGN - 1);
}

static rps_status
check_shape(const struct rps_section *section, uint32_t index,
        struct rps_error *error)
{
    const uint64_t each =
            element_bytes(section->kind, section->value, section->dim);
    uint64_t bytes = 0;
    const int has_rows = section->kind == RPS_SECTION_ROWS ||
                         section->kind == RPS_SECTION_SLOTS;

    if (each == 0 && !(has_rows && section->value <= RPS_VALUE_I8)) {
        return rps_fail(error, RPS_E_CORRUPT,
                "section %u: kind %u with value type %u is unknown", index,
                section->kind, section->value);
    }
    if (__builtin_mul_overflow(each, section->count, &bytes) ||
            bytes != section->bytes) {
        return rps_fail(error, RPS_E_CORRUPT,
                "section %u: %llu elements of %llu bytes are not %llu bytes",
                index, (unsigned long long)section->count,
                (unsigned long long)each, (unsigned long long)section->bytes);
    }
    return RPS_OK;
}

static rps_status
check_section(const struct rps_section *section, uint32_t index,
        size_t arrays_start, size_t frame_bytes, struct rps_error *error)
{
    const rps_status status = check_shape(section, index, error);

    if (status != RPS_OK || section->bytes == 0) {
        return status;
    }
    if (section->offset % RPS_MESSAGE_ALIGN != 0 ||
            section->offset < arrays_start || section->offset > frame_bytes ||
            section->bytes > frame_bytes - section->offset) {
        return rps_fail(error, RPS_E_CORRUPT,
                "section %u: bytes %llu to %llu lie outside the frame's "
                "arrays (%zu to %zu) or are not aligned",
                index, (unsigned long long)section->offset,
                (unsigned long long)(section->offset + section->bytes),
                arrays_start, frame_bytes);
    }
    return RPS_OK;
}

static rps_status
check_body(const struct rps_header *header, const uint8_t *frame,
        size_t frame_bytes, struct rps_error *error)
{
    if (frame_bytes != RPS_HEADER_BYTES + (size_t)header->body_bytes) {
        return rps_fail(error, RPS_E_CORRUPT,
                "frame of %zu bytes, its header says %zu", frame_bytes,
                RPS_HEADER_BYTES + (size_t)header->body_bytes);
    }
    if ((header->flags & RPS_FLAG_BODY_XXH3) != 0 &&
            rps_checksum(frame + RPS_HEADER_BYTES, header->body_bytes) !=
                    header->body_xxh3) {
        return rps_fail(error, RPS_E_CORRUPT, "frame body fails its checksum");
    }
    return RPS_OK;
}

/* table: where the sections are copied to; NULL: used where they lie. */
static rps_status
open_frame(struct rps_message *message, const struct rps_header *header,
        const uint8_t *frame, size_t frame_bytes, struct rps_section *table,
        struct rps_error *error)
{
    uint32_t counts[2] = {0, 0};
    size_t arrays_start = 0;
    rps_status status = check_body(header, frame, frame_bytes, error);

    *message = (struct rps_message){.header = *header, .frame = frame};
    if (status != RPS_OK || header->body_bytes == 0) {
        return status;
    }
    if (header->body_bytes < COUNTS_BYTES) {
        return rps_fail(error, RPS_E_CORRUPT,
                "frame body of %u bytes has no section count",
                header->body_bytes);
    }
    memcpy(counts, frame + RPS_HEADER_BYTES, sizeof(counts));
    /* what is checked is the copy: no second look at the frame */
    atomic_signal_fence(memory_order_seq_cst);
    arrays_start = RPS_HEADER_BYTES + COUNTS_BYTES +
                   (size_t)counts[0] * RPS_SECTION_BYTES;
    if (counts[0] > RPS_SECTIONS_MAX || counts[1] != 0 ||
            arrays_start > frame_bytes) {
        return rps_fail(error, RPS_E_CORRUPT,
                "frame says %u sections: more than %u, or more than its "
                "bytes hold",
                counts[0], RPS_SECTIONS_MAX);
    }
    message->sections = (const void *)(frame + RPS_HEADER_BYTES + COUNTS_BYTES);
    if (table != NULL) {
        memcpy(table, message->sections, counts[0] * sizeof(*table));
        atomic_signal_fence(memory_order_seq_cst);
        message->sections = table;
    }
    message->section_count = counts[0];
    for (uint32_t i = 0; i < counts[0] && status == RPS_OK; i++) {
        status = check_section(
                &message->sections[i], i, arrays_start, frame_bytes, error);
    }
    if (status != RPS_OK) {
        message->section_count = 0;
    }
    return status;
}

rps_status
rps_message_open(struct rps_message *message, const struct rps_header *header,
        const uint8_t *frame, size_t frame_bytes, struct rps_error *error)
{
    return open_frame(message, header, frame, frame_bytes, NULL, error);
}

rps_status
rps_message_open_shared(struct rps_message *message,
        const struct rps_header *header, const uint8_t *frame,
        size_t frame_bytes, struct rps_section *table, struct rps_error *error)
{
    return open_frame(message, header, frame, frame_bytes, table, error);
}

const void *
rps_message_array(
        const struct rps_message *message, const struct rps_section *section)
{
    /* the offset of nothing was not checked */
    return section->bytes > 0 ? message->frame + section->offset
                              : message->frame;
}

const struct rps_section *
rps_message_find(
        const struct rps_message *message, uint16_t kind, uint64_t table_id)
{
    for (uint32_t i = 0; i < message->section_count; i++) {
        const struct rps_section *section = &message->sections[i];
        if (section->kind == kind &&
                (table_id == 0 || section->table_id == table_id)) {
            return section;
        }
    }
    return NULL;
}

char *
rps_message_text(const struct rps_message *message)
{
    const struct rps_section *section =
            rps_message_find(message, RPS_SECTION_TEXT, 0);

    if (section == NULL) {
        return NULL;
    }
    return strndup(rps_message_array(message, section), (size_t)section->bytes);
}
