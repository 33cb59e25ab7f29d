/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot of a device's pool (rps_npu_pool_snapshot), read and drawn. The
 * file may be anyone's: nothing of it is believed that was not checked.
 */
#ifndef RPS_CLIENT_CLI_MEMORY_MAP_H
#define RPS_CLIENT_CLI_MEMORY_MAP_H

#include "base/error.h"
#include "base/text.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** In the order in which they are drawn and told. */
enum rps_map_state {
    RPS_MAP_ALLOCATED = 0,
    RPS_MAP_WAITING, /* for other streams */
    RPS_MAP_HELD,    /* free, of a compiled step */
    RPS_MAP_FREE,
    RPS_MAP_STATES
};

struct rps_map_block {
    uint64_t
            at; /* bytes from its segment's start; the next one is at + bytes */
    uint64_t bytes;
    uint64_t requested; /* <= bytes */
    enum rps_map_state state;
};

struct rps_map_segment {
    uint64_t address;
    uint64_t bytes;               /* sum of its blocks */
    const char *pool;             /* "small" or "large" */
    const char *stream;           /* the file's; NULL: any stream's */
    uint64_t step;                /* 0: no step's */
    struct rps_map_block *blocks; /* count > 0 */
    size_t count;
};

struct rps_memory_map {
    json_t *root; /* has the names */
    uint64_t device;
    uint64_t capacity;
    struct rps_map_segment *segments; /* by address, no two overlap */
    size_t count;
    size_t block_count;
    uint64_t reserved;              /* sum of the segments */
    uint64_t bytes[RPS_MAP_STATES]; /* reserved, by state */
    uint64_t largest_free;          /* block */
};

/** Words of a state for people and for CSS: "allocated", ... */
const char *rps_map_state_name(enum rps_map_state state);

/** 1 - largest free / free; 0 where nothing is free. */
double rps_memory_map_fragmentation(const struct rps_memory_map *map);

/**
 * Owns:   _finish() releases *map, also after a failure.
 * Errors: CORRUPT with the path and the place, those of reading a file.
 */
rps_status rps_memory_map_read(
        struct rps_memory_map *map, const char *path, struct rps_error *error);
void rps_memory_map_finish(struct rps_memory_map *map);

/** The state that most bytes of [from, to) of the segment have. from < to <=
 * bytes; *block (in: 0 or what it was at a former `from` that was less) is the
 * first block that reaches into it. */
enum rps_map_state rps_map_state_of(const struct rps_map_segment *segment,
        uint64_t from, uint64_t to, size_t *block);

/** On stdout. false: it is gone, or no memory. */
bool rps_memory_map_print(const struct rps_memory_map *map);

/** As SVG; text->failed: no memory. */
void rps_memory_map_svg(
        const struct rps_memory_map *map, struct rps_text *text);

#endif /* RPS_CLIENT_CLI_MEMORY_MAP_H */
