/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/rowset.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_MIN 1024u

size_t
rps_rowset_bytes(size_t value_bytes, size_t slot_floats)
{
    /* key, meta, seen; 4 places of 4 bytes at worst; arrays grow by half */
    const size_t row = sizeof(uint64_t) + sizeof(uint32_t) + 1 + 16 +
                       value_bytes + slot_floats * sizeof(float);

    return row + row / 2;
}

static bool
grow_array(void *array, size_t room, size_t bytes)
{
    void **pointer = array;
    void *grown = reallocarray(*pointer, room, bytes == 0 ? 1 : bytes);

    if (grown != NULL) {
        *pointer = grown;
    }
    return grown != NULL;
}

static void
put(struct rps_rowset *rows, size_t row)
{
    size_t at = (size_t)rps_mix64(rows->keys[row]) & rows->mask;

    while (rows->places[at] != 0) {
        at = (at + 1) & rows->mask;
    }
    rows->places[at] = (uint32_t)(row + 1);
}

static bool
grow_places(struct rps_rowset *rows, size_t count)
{
    size_t places = rows->places == NULL ? 2 * ROOM_MIN : rows->mask + 1;
    uint32_t *grown;

    if (rows->places != NULL && count <= places / 2) {
        return true;
    }
    while (count > places / 2) {
        places *= 2;
    }
    grown = calloc(places, sizeof(*grown));
    if (grown == NULL) {
        return false;
    }
    free(rows->places);
    rows->places = grown;
    rows->mask = places - 1;
    for (size_t i = 0; i < rows->count; i++) {
        put(rows, i);
    }
    return true;
}

static bool
make_room(struct rps_rowset *rows, size_t n)
{
    size_t room = rows->room < ROOM_MIN ? ROOM_MIN : rows->room;

    if (n > RPS_ROWSET_MAX - rows->count ||
            !grow_places(rows, rows->count + n)) {
        return false;
    }
    while (room < rows->count + n) {
        room += room / 2;
    }
    if (room == rows->room) {
        return true;
    }
    if (!grow_array(&rows->keys, room, sizeof(*rows->keys)) ||
            !grow_array(&rows->values, room, rows->value_bytes) ||
            !grow_array(&rows->slots, room,
                    rows->slot_floats * sizeof(*rows->slots)) ||
            !grow_array(&rows->meta, room, sizeof(*rows->meta)) ||
            !grow_array(&rows->seen, room, sizeof(*rows->seen))) {
        return false;
    }
    rows->room = room;
    return true;
}

bool
rps_rowset_add(struct rps_rowset *rows, const struct rps_ckpt_batch *batch)
{
    const size_t from = rows->count;

    if (!make_room(rows, batch->n)) {
        return false;
    }
    memcpy(rows->keys + from, batch->keys, batch->n * sizeof(*rows->keys));
    memcpy(rows->values + from * rows->value_bytes, batch->values,
            batch->n * rows->value_bytes);
    memcpy(rows->slots + from * rows->slot_floats, batch->slots,
            batch->n * rows->slot_floats * sizeof(*rows->slots));
    memcpy(rows->meta + from, batch->meta, batch->n * sizeof(*rows->meta));
    memset(rows->seen + from, 0, batch->n * sizeof(*rows->seen));
    rows->count += batch->n;
    for (size_t i = from; i < rows->count; i++) {
        put(rows, i);
    }
    return true;
}

size_t
rps_rowset_find(const struct rps_rowset *rows, uint64_t key)
{
    size_t at = (size_t)rps_mix64(key) & rows->mask;

    if (rows->places == NULL) {
        return SIZE_MAX;
    }
    while (rows->places[at] != 0) {
        const size_t row = rows->places[at] - 1;

        if (rows->keys[row] == key) {
            return row;
        }
        at = (at + 1) & rows->mask;
    }
    return SIZE_MAX;
}

void
rps_rowset_clear(struct rps_rowset *rows)
{
    rows->count = 0;
    if (rows->places != NULL) {
        memset(rows->places, 0, (rows->mask + 1) * sizeof(*rows->places));
    }
}

void
rps_rowset_finish(struct rps_rowset *rows)
{
    free(rows->keys);
    free(rows->values);
    free(rows->slots);
    free(rows->meta);
    free(rows->seen);
    free(rows->places);
    memset(rows, 0, sizeof(*rows));
}
