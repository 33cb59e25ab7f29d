/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot from its file. */
#include "client/cli/memory_map.h"

#include "base/file.h"
#include "base/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX (UINT64_C(1) << 28)

/* Where something is wrong: "segments[3].blocks[2].bytes". */
struct place {
    const char *path;
    size_t segment;
    size_t block;
    bool in_block;
};

const char *
rps_map_state_name(enum rps_map_state state)
{
    static const char *const names[RPS_MAP_STATES] = {
            "allocated", "waiting", "held", "free"};

    return names[state];
}

double
rps_memory_map_fragmentation(const struct rps_memory_map *map)
{
    const uint64_t free_bytes = map->bytes[RPS_MAP_FREE];

    return free_bytes > 0 ? 1.0 - (double)map->largest_free / (double)free_bytes
                          : 0.0;
}

static rps_status
refuse(const struct place *place, const char *field, const char *rule,
        struct rps_error *error)
{
    char block[32] = "";

    if (place->in_block) {
        snprintf(block, sizeof(block), "blocks[%zu].", place->block);
    }
    return rps_fail(error, RPS_E_CORRUPT,
            "%s: segments[%zu].%s%s %s: it is no snapshot of "
            "rps_npu_pool_snapshot(), or was changed",
            place->path, place->segment, block, field, rule);
}

static rps_status
read_count(const json_t *object, const struct place *place, const char *field,
        uint64_t *out, struct rps_error *error)
{
    return rps_json_count(json_object_get(object, field), out)
                   ? RPS_OK
                   : refuse(place, field, "must be a whole number, 0 or more",
                             error);
}

static rps_status
read_address(const json_t *object, const struct place *place, uint64_t *out,
        struct rps_error *error)
{
    const char *text = json_string_value(json_object_get(object, "address"));

    return text != NULL && strncmp(text, "0x", 2) == 0 &&
                           rps_parse_hex64(text + 2, out)
                   ? RPS_OK
                   : refuse(place, "address", "must be \"0x...\", 64 bits",
                             error);
}

/* --- blocks -----------------------------------------------------------------
 */

static rps_status
read_state(const json_t *object, const struct place *place, uint64_t step,
        enum rps_map_state *out, struct rps_error *error)
{
    const char *text = json_string_value(json_object_get(object, "state"));

    if (text != NULL && strcmp(text, "allocated") == 0) {
        *out = RPS_MAP_ALLOCATED;
    } else if (text != NULL && strcmp(text, "waiting") == 0) {
        *out = RPS_MAP_WAITING;
    } else if (text != NULL && strcmp(text, "free") == 0) {
        *out = step != 0 ? RPS_MAP_HELD : RPS_MAP_FREE;
    } else {
        return refuse(place, "state",
                "must be \"allocated\", \"waiting\" or \"free\"", error);
    }
    return RPS_OK;
}

/* Blocks lie side by side: this one begins where the last one ended. */
static rps_status
read_block(const json_t *object, const struct place *place,
        const struct rps_map_segment *segment, struct rps_map_block *block,
        struct rps_error *error)
{
    const uint64_t left = segment->bytes - block->at;
    uint64_t address = 0;
    rps_status status = read_address(object, place, &address, error);

    if (status == RPS_OK) {
        status = read_count(object, place, "bytes", &block->bytes, error);
    }
    if (status == RPS_OK) {
        status = read_count(
                object, place, "requested", &block->requested, error);
    }
    if (status == RPS_OK) {
        status = read_state(object, place, segment->step, &block->state, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    if (address - segment->address != block->at) {
        return refuse(
                place, "address", "must be the end of the block before", error);
    }
    if (block->bytes == 0 || block->bytes > left) {
        return refuse(place, "bytes",
                "must be 1 at least, and end within the segment", error);
    }
    return block->requested <= block->bytes
                   ? RPS_OK
                   : refuse(place, "requested", "must be at most its bytes",
                             error);
}

static void
count_block(struct rps_memory_map *map, const struct rps_map_block *block)
{
    map->block_count++;
    map->bytes[block->state] += block->bytes;
    if (block->state == RPS_MAP_FREE && block->bytes > map->largest_free) {
        map->largest_free = block->bytes;
    }
}

static rps_status
read_blocks(struct rps_memory_map *map, const json_t *array,
        struct place *place, struct rps_map_segment *segment,
        struct rps_error *error)
{
    const size_t count = json_array_size(array);
    uint64_t at = 0;

    if (count == 0) {
        return refuse(
                place, "blocks", "must be an array of one at least", error);
    }
    segment->blocks = calloc(count, sizeof(*segment->blocks));
    if (segment->blocks == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for %s", place->path);
    }
    place->in_block = true;
    for (segment->count = 0; segment->count < count; segment->count++) {
        struct rps_map_block *block = &segment->blocks[segment->count];
        rps_status status;

        place->block = segment->count;
        block->at = at;
        status = read_block(json_array_get(array, segment->count), place,
                segment, block, error);
        if (status != RPS_OK) {
            return status;
        }
        at += block->bytes;
        count_block(map, block);
    }
    place->in_block = false;
    return at == segment->bytes
                   ? RPS_OK
                   : refuse(place, "blocks", "must fill their segment", error);
}

/* --- segments ----------------------------------------------------------------
 */

static rps_status
read_names(const json_t *object, const struct place *place,
        struct rps_map_segment *segment, struct rps_error *error)
{
    const json_t *stream = json_object_get(object, "stream");

    segment->pool = json_string_value(json_object_get(object, "pool"));
    if (segment->pool == NULL || (strcmp(segment->pool, "small") != 0 &&
                                         strcmp(segment->pool, "large") != 0)) {
        return refuse(place, "pool", "must be \"small\" or \"large\"", error);
    }
    segment->stream = json_string_value(stream);
    return segment->stream != NULL || json_is_null(stream)
                   ? RPS_OK
                   : refuse(place, "stream", "must be a text or null", error);
}

/* What the segment is, without its blocks. */
static rps_status
read_head(const json_t *object, const struct place *place,
        struct rps_map_segment *segment, struct rps_error *error)
{
    rps_status status = read_address(object, place, &segment->address, error);

    if (status == RPS_OK) {
        status = read_count(object, place, "bytes", &segment->bytes, error);
    }
    if (status == RPS_OK) {
        status = read_count(object, place, "step", &segment->step, error);
    }
    if (status == RPS_OK) {
        status = read_names(object, place, segment, error);
    }
    if (status == RPS_OK &&
            (segment->bytes == 0 ||
                    segment->bytes > UINT64_MAX - segment->address)) {
        status = refuse(place, "bytes",
                "must be 1 at least, and end below 2^64", error);
    }
    return status;
}

static rps_status
read_segment(struct rps_memory_map *map, const json_t *object,
        struct place *place, struct rps_error *error)
{
    struct rps_map_segment *segment = &map->segments[map->count];
    rps_status status = read_head(object, place, segment, error);

    if (status != RPS_OK) {
        return status;
    }
    if (map->count > 0 &&
            segment->address < segment[-1].address + segment[-1].bytes) {
        return refuse(place, "address",
                "must be no less than the end of the segment before", error);
    }
    map->count++;
    map->reserved += segment->bytes;
    return read_blocks(
            map, json_object_get(object, "blocks"), place, segment, error);
}

static rps_status
read_segments(
        struct rps_memory_map *map, const char *path, struct rps_error *error)
{
    const json_t *array = json_object_get(map->root, "segments");
    const size_t count = json_array_size(array);
    struct place place = {.path = path};
    rps_status status = RPS_OK;

    if (!json_is_array(array) ||
            !rps_json_count(
                    json_object_get(map->root, "device"), &map->device) ||
            !rps_json_count(
                    json_object_get(map->root, "capacity"), &map->capacity)) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: must be an object with device, capacity and segments: it "
                "is no snapshot of rps_npu_pool_snapshot()",
                path);
    }
    map->segments = calloc(count + 1, sizeof(*map->segments));
    if (map->segments == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for %s", path);
    }
    for (size_t i = 0; i < count && status == RPS_OK; i++) {
        place.segment = i;
        status = read_segment(map, json_array_get(array, i), &place, error);
    }
    return status;
}

rps_status
rps_memory_map_read(
        struct rps_memory_map *map, const char *path, struct rps_error *error)
{
    json_error_t where;
    char *bytes = NULL;
    size_t length = 0;
    rps_status status;

    memset(map, 0, sizeof(*map));
    status = rps_pipe_read(path, FILE_BYTES_MAX, &bytes, &length, error);
    if (status != RPS_OK) {
        return status;
    }
    map->root = json_loadb(bytes, length, JSON_REJECT_DUPLICATES, &where);
    free(bytes);
    if (map->root == NULL) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: line %d, column %d is no JSON (%s)", path, where.line,
                where.column, where.text);
    }
    return read_segments(map, path, error);
}

void
rps_memory_map_finish(struct rps_memory_map *map)
{
    for (size_t i = 0; i < map->count; i++) {
        free(map->segments[i].blocks);
    }
    free(map->segments);
    json_decref(map->root);
    memset(map, 0, sizeof(*map));
}

/* --- what a piece of a drawing shows
 * ------------------------------------------- */

enum rps_map_state
rps_map_state_of(const struct rps_map_segment *segment, uint64_t from,
        uint64_t to, size_t *block)
{
    uint64_t bytes[RPS_MAP_STATES] = {0};
    enum rps_map_state most = RPS_MAP_ALLOCATED;
    size_t i = *block;

    while (segment->blocks[i].at + segment->blocks[i].bytes <= from) {
        i++;
    }
    *block = i;
    for (; i < segment->count && segment->blocks[i].at < to; i++) {
        const struct rps_map_block *b = &segment->blocks[i];
        const uint64_t start = b->at > from ? b->at : from;
        const uint64_t end = b->at + b->bytes < to ? b->at + b->bytes : to;

        bytes[b->state] += end - start;
    }
    for (int state = 1; state < RPS_MAP_STATES; state++) {
        if (bytes[state] > bytes[most]) {
            most = (enum rps_map_state)state;
        }
    }
    return most;
}
