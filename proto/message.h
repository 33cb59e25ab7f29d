/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A frame's body: u32 sections, u32 0, then 48 bytes a section, then the
 * arrays, each 64-byte aligned to the frame's first byte. `offset` counts
 * from the frame's first byte, too.
 *
 * A message is read in place: the view borrows the frame. Nothing of it is
 * believed before rps_message_open() has checked every length.
 */
#ifndef RPS_PROTO_MESSAGE_H
#define RPS_PROTO_MESSAGE_H

#include "base/error.h"
#include "proto/frame.h"

#include <recps/client.h>
#include <recps/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_SECTION_BYTES 48u
#define RPS_SECTIONS_MAX  1024u
#define RPS_MESSAGE_ALIGN 64u

/** Kinds and what an element is; `count` counts elements. */
enum rps_section_kind {
    RPS_SECTION_KEYS = 1,    /* u64 */
    RPS_SECTION_COUNTS = 2,  /* u32, multiplicity of the key */
    RPS_SECTION_OFFSETS = 3, /* u32: bags + 1 of them, or positions (REFRESH) */
    RPS_SECTION_ROWS = 4,    /* value type x dim: proto/value.h */
    RPS_SECTION_VERSIONS = 5, /* u64 */
    RPS_SECTION_SLOTS = 6,    /* f32 x dim (slot floats of a row) */
    RPS_SECTION_META = 7,     /* u32: last | uses << 24 */
    RPS_SECTION_DECISION = 8, /* bytes: see rps_decision_encode */
    RPS_SECTION_TEXT = 9,     /* bytes: UTF-8 JSON (or words on an error) */
    RPS_SECTION_AUTH = 10,    /* bytes: a nonce or a proof (proto/auth.h) */
    RPS_SECTION_INDEX = 11    /* u32: which key each of the bags' is */
};

/** As it lies on the wire; hosts are little-endian (asserted). */
struct rps_section {
    uint64_t table_id;
    uint16_t kind;
    uint16_t value; /* enum rps_value: of ROWS; KEYS: of the ROWS asked for */
    uint32_t dim;
    uint64_t count;
    uint64_t offset; /* from the frame's first byte; 0 when bytes == 0 */
    uint64_t bytes;
    int32_t status;
    float learning_rate; /* NaN: the table's */
};

/** A checked view of a frame. */
struct rps_message {
    struct rps_header header;
    const uint8_t *frame;               /* header first; 8-byte aligned */
    const struct rps_section *sections; /* [section_count], in the frame */
    uint32_t section_count;
};

/**
 * Check a whole frame (header already decoded) and open it: section bounds,
 * alignment, count x element size == bytes, no overlap with the table of
 * sections, body checksum if flagged. CORRUPT names the section.
 */
rps_status rps_message_open(struct rps_message *message,
        const struct rps_header *header, const uint8_t *frame,
        size_t frame_bytes, struct rps_error *error);

/**
 * The same of a frame that its sender can still change: the table of sections
 * is copied to `table` [RPS_SECTIONS_MAX] before it is checked, and used from
 * there. Arrays are not copied; what is checked in them is read once.
 */
rps_status rps_message_open_shared(struct rps_message *message,
        const struct rps_header *header, const uint8_t *frame,
        size_t frame_bytes, struct rps_section *table, struct rps_error *error);

/** Array of a section, valid as long as the frame. */
const void *rps_message_array(
        const struct rps_message *message, const struct rps_section *section);

/** First section of this kind and table (any table if id is 0), or NULL. */
const struct rps_section *rps_message_find(
        const struct rps_message *message, uint16_t kind, uint64_t table_id);

/** The text section, NUL-terminated copy; NULL if there is none. free(). */
char *rps_message_text(const struct rps_message *message);

/**
 * Memory in which frames are built, instead of the heap: a ring, say. `room`
 * answers where a frame of so many bytes can lie, the same place as it grows,
 * or NULL: on the heap, then. Whoever gets the frame tells by its address.
 */
struct rps_frame_memory {
    uint8_t *(*room)(struct rps_frame_memory *memory, size_t bytes);
};

/** Of a long frame, what is made and sent at once: half of a core's own cache.
 * Less of it (128 KiB) costs more: the table's shards get too few keys a time
 * to ask for their rows ahead (16 ns a row of 64 floats), and the peer is woken
 * more often. */
#define RPS_FRAME_PART_BYTES (512u << 10)

/**
 * Takes a long frame while it is made, in parts: bytes that were just written
 * are sent before they leave the cache, into memory that is used over and over.
 * Once begun, the frame is made to its end; a sink whose peer is gone swallows
 * it.
 */
struct rps_frame_sink {
    /** Will it take a frame of so many bytes? false: make it whole. */
    bool (*begin)(struct rps_frame_sink *sink, size_t frame_bytes);
    /** Where the frame's next bytes go, at most RPS_FRAME_PART_BYTES: a byte
     * at a multiple of 64 of the frame lies at one of memory, too. */
    uint8_t *(*room)(struct rps_frame_sink *sink, size_t bytes);
    /** So many are written there. The first time they are the whole header. */
    void (*put)(struct rps_frame_sink *sink, size_t bytes);
};

/**
 * Builds a frame. Sections are added in order after _begin; their arrays are
 * copied from `data` or written by the caller at the offset that reserve
 * returns. `failed` keeps the first failure (NOMEM, LIMIT): check once, in
 * rps_builder_end().
 */
struct rps_builder {
    struct rps_header header;
    uint32_t section_count;
    uint32_t sections_max; /* room left for them before the arrays */
    uint8_t *frame;        /* header, counts, sections, arrays */
    size_t length;
    size_t capacity;
    struct rps_frame_memory *memory; /* NULL: the heap */
    bool lent;                       /* `frame` is of `memory` */
    bool apart;                      /* `frame` ends where arrays begin */
    int failed;
};

/** Begin a frame that will hold at most `sections` sections. */
void rps_builder_begin(struct rps_builder *builder,
        const struct rps_header *header, uint32_t sections);

/** The same in `memory` (NULL: the heap), as long as it has room. */
void rps_builder_begin_in(struct rps_builder *builder,
        const struct rps_header *header, uint32_t sections,
        struct rps_frame_memory *memory);

/**
 * The same without the arrays, which the caller writes elsewhere: reserve only
 * says where they belong, and nothing is added. _end gives the frame up to the
 * end of its sections, and the length of all of it. Not with BODY_XXH3.
 */
void rps_builder_begin_apart(struct rps_builder *builder,
        const struct rps_header *header, uint32_t sections);

/** Bytes of header and sections: what is there of a frame made apart. */
size_t rps_builder_head_bytes(uint32_t sections);

/**
 * Add a section of `count` elements and leave its array to be written by the
 * caller. Returns the array's offset in the frame (the frame may move until
 * the last add), or 0 on failure or when it has no bytes. `section` gives
 * table_id, kind, value, dim, count, status, learning_rate; offset and bytes
 * are computed.
 */
size_t rps_builder_reserve(
        struct rps_builder *builder, const struct rps_section *section);

/** reserve + copy of `data`. */
void rps_builder_add(struct rps_builder *builder,
        const struct rps_section *section, const void *data);

/** A text section of n bytes. */
void rps_builder_add_text(
        struct rps_builder *builder, const char *text, size_t n);

/**
 * Write header and section table. *frame_out is the caller's: free(), if it is
 * not of the builder's memory.
 * With BODY_XXH3 among the header's flags the body's checksum is in it; who
 * writes into the frame afterwards spoils it.
 * LIMIT: the body is larger than a frame; NOMEM.
 */
rps_status rps_builder_end(
        struct rps_builder *builder, uint8_t **frame_out, size_t *length_out);

/** Drop what was built; after end a no-op. */
void rps_builder_finish(struct rps_builder *builder);

/** Bytes of an array of this shape; SIZE_MAX: unknown kind, or too large for
 * any frame. */
size_t rps_array_bytes(
        uint16_t kind, uint16_t value, uint32_t dim, uint64_t count);

/** The same with its padding to the next array: for planning splits. */
size_t rps_section_bytes(
        uint16_t kind, uint16_t value, uint32_t dim, uint64_t count);

/** A reply without arrays: `text` (may be NULL) in a text section. */
rps_status rps_reply_text(const struct rps_header *request, rps_status status,
        const char *text, uint32_t epoch, uint64_t step, uint8_t **frame_out,
        size_t *length_out);

/**
 * A decision on the wire, little-endian:
 *  0 u64 step   8 f64 loss (NaN: none)   16 u64 save step   24 u32 epoch
 * 28 u32 wishes   32 u32 ranks   36 u32 0   40 u32 rank[ranks], ascending
 */
struct rps_wire_decision {
    uint64_t step;
    double loss;
    uint64_t save_step;
    uint32_t epoch;
    uint32_t wishes;
    uint32_t rank_count;
    uint32_t *ranks; /* [rank_count], owned */
};

#define RPS_REPLICAS_MAX 65536u

/** New bytes; free(). NULL: no memory. */
uint8_t *rps_decision_encode(
        const struct rps_wire_decision *decision, size_t *bytes_out);
rps_status rps_decision_decode(const void *bytes, size_t length,
        struct rps_wire_decision *out, struct rps_error *error);
void rps_decision_finish(struct rps_wire_decision *decision);

#endif /* RPS_PROTO_MESSAGE_H */
