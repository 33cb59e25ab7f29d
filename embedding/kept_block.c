/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/kept_block.h"

#include <stdlib.h>
#include <string.h>

struct rps_kept_block *
rps_kept_block_create(size_t room)
{
    struct rps_kept_block *block = calloc(1, sizeof(*block));

    if (block == NULL) {
        return NULL;
    }
    block->room = room;
    block->bytes = malloc(room);
    if (block->bytes == NULL) {
        free(block);
        return NULL;
    }
    return block;
}

void
rps_kept_block_destroy(struct rps_kept_block *block)
{
    free(block->bytes);
    free(block);
}

struct rps_kept_block *
rps_kept_blocks_create_written(uint32_t n)
{
    struct rps_kept_block *first = NULL;

    for (uint32_t i = 0; i < n; i++) {
        struct rps_kept_block *block =
                rps_kept_block_create(RPS_KEPT_BLOCK_BYTES);
        if (block == NULL) {
            break;
        }
        memset(block->bytes, 0, RPS_KEPT_BLOCK_BYTES);
        block->next = first;
        first = block;
    }
    return first;
}

struct rps_kept_block *
rps_spare_blocks_take(struct rps_spare_blocks *spare)
{
    struct rps_kept_block *block = spare->first;

    if (block != NULL) {
        spare->first = block->next;
        spare->count--;
        block->next = NULL;
    }
    return block;
}

void
rps_spare_blocks_add(
        struct rps_spare_blocks *spare, struct rps_kept_block *block)
{
    *block = (struct rps_kept_block){
            .next = spare->first, .bytes = block->bytes, .room = block->room};
    spare->first = block;
    spare->count++;
}

void
rps_spare_blocks_trim(struct rps_spare_blocks *spare, uint32_t count)
{
    while (spare->count > count) {
        rps_kept_block_destroy(rps_spare_blocks_take(spare));
    }
}
