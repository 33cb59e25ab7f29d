/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the pool share. All fields: pool->lock, unless they say
 * otherwise; functions that end in _locked are called under it. */
#ifndef RPS_NPU_POOL_IMPL_H
#define RPS_NPU_POOL_IMPL_H

#include "client/npu/pool.h"
#include "client/npu/pool_tree.h"

#include <pthread.h>

struct rps_pool_arena;
struct rps_pool_segment;

/* A stream that has, had or used memory. */
struct rps_pool_stream {
    rps_npu_stream *stream; /* NULL: destroyed, and still referred to */
    uint32_t references;    /* of uses and of steps' arenas */
    char name[RPS_NPU_NAME_BYTES];
    /* what waits for it, in the order of the frees */
    struct rps_pool_use *first_use;
    struct rps_pool_use *last_use;
    uint32_t waiters; /* threads that wait for it without the lock */
    struct rps_pool_stream *next;
};

/* A stream that uses another one's block: on the block's list until the block
 * is freed, then on the stream's, until the mark is passed. */
struct rps_pool_use {
    struct rps_pool_stream *stream;
    struct rps_pool_block *block;
    uint64_t place;    /* of the last use in a capture, RPS_POOL_NO_PLACE */
    uint64_t position; /* the mark, where it is marked */
    bool marked;
    uint64_t number; /* of pool->waits_ever, when it began to wait */
    struct rps_pool_use *next;
};

struct rps_pool_block {
    struct rps_tree_node node; /* first: of the arena (free), pool (live) */
    struct rps_pool_segment *segment;
    struct rps_pool_block *before; /* neighbours: before's end is its start */
    struct rps_pool_block *after;
    uint64_t address;
    uint64_t bytes;     /* a multiple of RPS_POOL_ALIGN */
    uint64_t requested; /* <= bytes; 0 where it is free */
    enum rps_pool_state state;
    bool owned;                /* live: a tensor gives it back, nobody else */
    struct rps_pool_use *uses; /* live only */
    uint32_t waits;            /* waiting only: marks that are not passed */
};

struct rps_pool_segment {
    struct rps_pool_arena *arena;
    uint64_t address;
    uint64_t bytes; /* sum of its blocks */
    bool small;
    struct rps_pool_block *first;
    struct rps_pool_segment *before; /* of the arena's list */
    struct rps_pool_segment *after;
};

/* The segments of one stream for one use: everyone's, or a step's. Where
 * stream is NULL no work is pending on free blocks: any stream may take such a
 * segment over. */
struct rps_pool_arena {
    struct rps_pool_stream *stream;
    struct rps_pool_private *private;
    struct rps_tree_node *free[2]; /* [small]: by (bytes, address) */
    struct rps_pool_segment *segments;
    struct rps_pool_arena *next;
};

struct rps_pool_private {
    uint64_t number; /* of the pool's, from 1; set before use */
    bool open;       /* its capture goes on */
    struct rps_pool_arena *arenas;
    struct rps_pool_private *next;
};

struct rps_npu_pool {
    pthread_mutex_t lock;
    pthread_cond_t changed;        /* giving, or a stream's waiters */
    struct rps_pool_driver driver; /* set before use */
    struct rps_pool_stream *streams;
    struct rps_pool_arena *arenas; /* of no step */
    struct rps_pool_arena idle;    /* stream NULL, no step */
    struct rps_pool_private *privates;
    struct rps_tree_node *live; /* by (address, 0) */
    uint32_t giving;            /* threads that give segments to the driver */
    uint64_t privates_ever;
    uint64_t waits_ever; /* uses that began to wait, ever */
    rps_npu_pool_stats stats;
};

/* pool_blocks.c */

/* The stream's arena, made where there is none. NULL: no memory. */
struct rps_pool_arena *rps_pool_arena_locked(struct rps_npu_pool *pool,
        struct rps_pool_stream *stream, struct rps_pool_private *private);

/* The least free block of the arena that has `bytes`; NULL: none has. */
struct rps_pool_block *rps_pool_best_fit_locked(
        struct rps_pool_arena *arena, bool small, uint64_t bytes);

/* The next greater one. */
struct rps_pool_block *rps_pool_next_fit_locked(
        struct rps_pool_arena *arena, const struct rps_pool_block *block);

bool rps_pool_is_whole(const struct rps_pool_block *block);

/* A new segment of one free block, of the usual size or, where the driver has
 * none and with `less`, as small as `bytes` allow. */
rps_status rps_pool_take_locked(struct rps_npu_pool *pool,
        struct rps_pool_arena *arena, bool small, uint64_t bytes, bool less,
        struct rps_pool_block **block_out, struct rps_error *error);

/* A free block becomes a live one of `bytes` or, where cutting it is not worth
 * it or there is no memory for that, more. */
void rps_pool_cut_locked(struct rps_npu_pool *pool,
        struct rps_pool_block *block, uint64_t bytes, uint64_t requested);

/* A block that is in no tree and no stream uses is free, and merged. */
void rps_pool_return_locked(
        struct rps_npu_pool *pool, struct rps_pool_block *block);

void rps_pool_move_locked(struct rps_npu_pool *pool,
        struct rps_pool_segment *segment, struct rps_pool_arena *arena);

/* Out of its arena, and of the pool's figures. The caller gives its address to
 * the driver, and frees it. */
void rps_pool_unlink_locked(
        struct rps_npu_pool *pool, struct rps_pool_segment *segment);

/* pool_wait.c */

struct rps_pool_stream *rps_pool_stream_locked(
        struct rps_npu_pool *pool, rps_npu_stream *stream);

/* One more on the block's list, made while it is live, so that a free never
 * fails. false: no memory. */
bool rps_pool_use_locked(struct rps_npu_pool *pool,
        struct rps_pool_block *block, struct rps_pool_stream *stream,
        uint64_t place);

/* A block that is freed, in no tree: its uses become waits; it returns at once
 * where there are none. */
void rps_pool_wait_locked(
        struct rps_npu_pool *pool, struct rps_pool_block *block);

/* The arena is a step's, its capture goes on, and its stream asks for memory:
 * blocks behind whose other uses the stream stands are free. */
void rps_pool_follow_locked(
        struct rps_npu_pool *pool, const struct rps_pool_arena *arena);

/* Blocks whose marks are passed are free. */
void rps_pool_collect_locked(struct rps_npu_pool *pool);

/* Wait, with the lock given up meanwhile, for the marks of now. */
void rps_pool_settle_locked(struct rps_npu_pool *pool);

/* The stream's waits are done, whatever their marks say. */
void rps_pool_finish_uses_locked(
        struct rps_npu_pool *pool, struct rps_pool_stream *stream);

void rps_pool_use_destroy(struct rps_npu_pool *pool, struct rps_pool_use *use);

/* One reference less; a destroyed stream's entry goes with the last one. */
void rps_pool_stream_release_locked(
        struct rps_npu_pool *pool, struct rps_pool_stream *stream);

/* pool_stats.c */

void rps_pool_add(rps_npu_figure *figure, uint64_t n);
void rps_pool_stats_locked(
        struct rps_npu_pool *pool, rps_npu_pool_stats *stats);

#endif /* RPS_NPU_POOL_IMPL_H */
