/* SPDX-License-Identifier: Apache-2.0 */
#include "client/profile/strings.h"

#include "base/checksum.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 4096u
#define SLOTS_FIRST 64u

struct rps_strings_block {
    struct rps_strings_block *next;
    size_t used;
    size_t size;
    char bytes[];
};

static size_t
slot_of(const char *const *slots, size_t slot_count, const char *text, size_t n)
{
    size_t at = (size_t)rps_checksum(text, n) & (slot_count - 1);

    while (slots[at] != NULL && strcmp(slots[at], text) != 0) {
        at = (at + 1) & (slot_count - 1);
    }
    return at;
}

static int
grow(struct rps_strings *strings)
{
    const size_t count =
            strings->slot_count == 0 ? SLOTS_FIRST : 2 * strings->slot_count;
    const char **slots = calloc(count, sizeof(*slots));

    if (slots == NULL) {
        return 0;
    }
    for (size_t i = 0; i < strings->slot_count; i++) {
        const char *text = strings->slots[i];

        if (text != NULL) {
            slots[slot_of(slots, count, text, strlen(text))] = text;
        }
    }
    strings->bytes += (count - strings->slot_count) * sizeof(*slots);
    free(strings->slots);
    strings->slots = slots;
    strings->slot_count = count;
    return 1;
}

static char *
room(struct rps_strings *strings, size_t n)
{
    struct rps_strings_block *block = strings->blocks;

    if (block == NULL || block->size - block->used < n) {
        const size_t size = n > BLOCK_BYTES ? n : BLOCK_BYTES;

        block = malloc(sizeof(*block) + size);
        if (block == NULL) {
            return NULL;
        }
        *block = (struct rps_strings_block){
                .next = strings->blocks, .size = size};
        strings->blocks = block;
        strings->bytes += sizeof(*block) + size;
    }
    block->used += n;
    return block->bytes + block->used - n;
}

const char *
rps_strings_keep(struct rps_strings *strings, const char *text)
{
    const size_t n = strlen(text);
    char *kept;
    size_t at;

    if (strings->count >= strings->slot_count / 4 * 3 && !grow(strings)) {
        return NULL;
    }
    at = slot_of(strings->slots, strings->slot_count, text, n);
    if (strings->slots[at] != NULL) {
        return strings->slots[at];
    }
    kept = room(strings, n + 1);
    if (kept != NULL) {
        memcpy(kept, text, n + 1);
        strings->slots[at] = kept;
        strings->count++;
    }
    return kept;
}

void
rps_strings_finish(struct rps_strings *strings)
{
    struct rps_strings_block *block = strings->blocks;

    while (block != NULL) {
        struct rps_strings_block *next = block->next;

        free(block);
        block = next;
    }
    free(strings->slots);
    *strings = (struct rps_strings){.blocks = NULL};
}
