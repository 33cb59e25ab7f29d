/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device's memory: a range of addresses that the host can name but not touch
 * (PROT_NONE), and as large a mapping of which kernels and copies alone know
 * the place. The same offset in both is the same byte.
 *
 *   outside  [ range 0 | free | range 1 | ...           ]  what callers hold
 *   inside   [ bytes   |      | bytes   | ...           ]  what kernels use
 *
 * Ranges are cut in pages, first fit. Pages that are given back are the
 * system's again, and read as zero when they are used anew.
 *
 * Threads: any; _init and _finish alone.
 */
#ifndef RPS_NPU_MEMORY_H
#define RPS_NPU_MEMORY_H

#include <recps/status.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define RPS_NPU_PAGE_BYTES 4096u

struct rps_npu_range {
    uint64_t offset;
    uint64_t bytes; /* a multiple of the page */
    bool pooled;    /* the pool cuts it: what is in use, it knows */
};

struct rps_npu_memory {
    char *outside;     /* set before start */
    char *inside;      /* set before start */
    uint64_t capacity; /* set before start; a multiple of the page */
    pthread_mutex_t lock;
    struct rps_npu_range *ranges; /* lock; by offset, no two overlap */
    uint32_t range_count;         /* lock */
    uint32_t ranges_max;          /* lock */
    _Atomic uint64_t taken; /* written under lock; the sum of ranges' bytes */
};

/** Errors: NOMEM, with words (rps_npu_error). */
rps_status rps_npu_memory_init(
        struct rps_npu_memory *memory, uint64_t capacity);
void rps_npu_memory_finish(struct rps_npu_memory *memory);

/** *outside_out: zeroed. Errors: NOMEM, with words. */
rps_status rps_npu_memory_take(struct rps_npu_memory *memory, uint64_t bytes,
        bool pooled, void **outside_out);

/** Is it what _take() gave, to the pool or not? */
bool rps_npu_memory_is_taken(
        struct rps_npu_memory *memory, const void *outside, bool pooled);

/** false: it is not what _take() gave, to the pool or not. */
bool rps_npu_memory_give_back(
        struct rps_npu_memory *memory, void *outside, bool pooled);

/** Is it one of this memory's addresses? */
bool rps_npu_memory_has(
        const struct rps_npu_memory *memory, const void *address);

/** The bytes from `outside` to the end of the range that it is in, 0: in none.
 * *pooled_out: is that the pool's? */
uint64_t rps_npu_memory_left(
        struct rps_npu_memory *memory, const void *outside, bool *pooled_out);

/** has(outside). */
void *rps_npu_memory_inside(
        const struct rps_npu_memory *memory, const void *outside);

uint64_t rps_npu_memory_free_bytes(const struct rps_npu_memory *memory);

#endif /* RPS_NPU_MEMORY_H */
