/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the baselines, in the same huge pages as the engine's, and what
 * the kernel says about this process and this machine.
 */
#ifndef RPS_BENCH_MEMORY_H
#define RPS_BENCH_MEMORY_H

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

/**
 * Memory that is to be warm when it is first used: touched, and held until
 * just before then. What is free for two seconds a virtual machine's host may
 * take back (free page reporting), and giving it anew takes 8 ms for 2 MiB.
 * So it goes to this machine's kernel a few pages of 2 MiB ahead of their
 * use: as many as a CPU's own list of free pages takes, which is not
 * reported. The thread stays on its CPU from _init() on.
 */
struct bench_reserve {
    char *memory;
    size_t bytes; /* touched at first */
    size_t held;  /* of them, not given yet: the first ones */
};

/** false: no memory. */
bool bench_reserve_init(struct bench_reserve *reserve, size_t bytes);
void bench_reserve_finish(struct bench_reserve *reserve);

/** Whether it is time to give, where `used` bytes were used since _init(). */
bool bench_reserve_is_due(const struct bench_reserve *reserve, size_t used);

/** Give 2 MiB. */
void bench_reserve_give(struct bench_reserve *reserve);

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

#endif /* RPS_BENCH_MEMORY_H */
