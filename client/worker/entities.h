/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The users and items of ml-100k, found by id. They are few: all are held in
 * memory.
 */
#ifndef RPS_WORKER_ENTITIES_H
#define RPS_WORKER_ENTITIES_H

#include "client/worker/lines.h"

#define RPS_ENTITY_KEYS 3u

/* A user (age; gender, occupation, zip) or an item (year, first class). */
struct rps_entity {
    char *id;
    uint64_t line; /* in its file */
    float dense;
    uint64_t keys[RPS_ENTITY_KEYS];
};

struct rps_entities {
    struct rps_entity *list; /* sorted by id once all are read */
    size_t count;
    size_t capacity;
};

/** Room for one more element of `bytes` bytes in a growing array. */
void *rps_grow(void *list, size_t count, size_t *capacity, size_t bytes);

/** One more, its numbers zeros; NULL: no memory. */
struct rps_entity *rps_entities_add(struct rps_entities *entities,
        const struct rps_line *line, const char *id, struct rps_error *error);

/** Before the first find. INVAL names the file and line of an id that stands
 * there twice. */
rps_status rps_entities_sort(struct rps_entities *entities, const char *folder,
        const char *suffix, struct rps_error *error);

const struct rps_entity *rps_entities_find(
        const struct rps_entities *entities, const char *id);

void rps_entities_finish(struct rps_entities *entities);

#endif /* RPS_WORKER_ENTITIES_H */
