/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the baselines, in the same huge pages as the engine's, and what
 * the kernel says about this process and this machine.
 */
#ifndef RPS_BENCH_TABLE_MEMORY_H
#define RPS_BENCH_TABLE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BENCH_HUGE_BYTES (2u << 20)

/**
 * Whole 2 MiB pages (MADV_HUGEPAGE), 2 MiB-aligned, zeroed, not touched; NULL:
 * no memory. bytes may be 0.
 */
void *bench_huge_alloc(size_t bytes);

/** bytes as given to bench_huge_alloc(); NULL is nothing. */
void bench_huge_free(void *memory, size_t bytes);

/** Map, touch and unmap so much: the machine then has it at hand. */
bool bench_memory_warm(size_t bytes);

/** Resident bytes of this process, from /proc/self/statm. */
uint64_t bench_rss_bytes(void);

/** Forget the largest RSS so far; false: the kernel does not let us. */
bool bench_rss_peak_reset(void);
uint64_t bench_rss_peak_bytes(void);

/** "madvise", as chosen in /sys/kernel/mm/transparent_hugepage/enabled. */
void bench_huge_pages_setting(char *out, size_t bytes);

/** "model name" of /proc/cpuinfo. */
void bench_cpu_model(char *out, size_t bytes);

/** CPU time of the calling thread, ns. */
uint64_t bench_thread_cpu_ns(void);

#ifdef __cplusplus
}
#endif

#endif /* RPS_BENCH_TABLE_MEMORY_H */
