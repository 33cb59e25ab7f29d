/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/entities.h"

#include <stdlib.h>
#include <string.h>

void *
rps_grow(void *list, size_t count, size_t *capacity, size_t bytes)
{
    size_t wide = *capacity == 0 ? 1024 : *capacity * 2;
    void *moved;

    if (count < *capacity) {
        return list;
    }
    moved = realloc(list, wide * bytes);
    if (moved != NULL) {
        *capacity = wide;
    }
    return moved;
}

struct rps_entity *
rps_entities_add(struct rps_entities *entities, const struct rps_line *line,
        const char *id, struct rps_error *error)
{
    struct rps_entity *entity = rps_grow(entities->list, entities->count,
            &entities->capacity, sizeof(*entities->list));

    if (entity != NULL) {
        entities->list = entity;
        entity += entities->count;
        *entity = (struct rps_entity){.id = strdup(id), .line = line->number};
    }
    if (entity == NULL || entity->id == NULL) {
        (void)rps_fail(error, RPS_E_NOMEM, "ml-100k: no memory");
        return NULL;
    }
    entities->count++;
    return entity;
}

static int
compare_ids(const void *a, const void *b)
{
    const struct rps_entity *x = a;
    const struct rps_entity *y = b;
    int order = strcmp(x->id, y->id);

    if (order != 0) {
        return order;
    }
    return x->line < y->line ? -1 : x->line > y->line;
}

const struct rps_entity *
rps_entities_find(const struct rps_entities *entities, const char *id)
{
    size_t low = 0;
    size_t high = entities->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(id, entities->list[middle].id);

        if (order == 0) {
            return &entities->list[middle];
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

rps_status
rps_entities_sort(struct rps_entities *entities, const char *folder,
        const char *suffix, struct rps_error *error)
{
    if (entities->count > 0) {
        qsort(entities->list, entities->count, sizeof(*entities->list),
                compare_ids);
    }
    for (size_t i = 1; i < entities->count; i++) {
        const struct rps_entity *first = &entities->list[i - 1];
        const struct rps_entity *second = &entities->list[i];

        if (strcmp(first->id, second->id) == 0) {
            return rps_fail(error, RPS_E_INVAL,
                    "%s/ml-100k.%s:%llu: column 1: id \"%.80s\" stands on "
                    "line %llu, too",
                    folder, suffix, (unsigned long long)second->line,
                    second->id, (unsigned long long)first->line);
        }
    }
    return RPS_OK;
}

void
rps_entities_finish(struct rps_entities *entities)
{
    size_t i;

    for (i = 0; i < entities->count; i++) {
        free(entities->list[i].id);
    }
    free(entities->list);
}
