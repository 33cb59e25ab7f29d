/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel counts about this process, from /proc. */
#ifndef RPS_BASE_PROCESS_H
#define RPS_BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct rps_process {
    double cpu_seconds;
    double start_unix_s;
    uint64_t resident_bytes;
    uint64_t virtual_bytes;
    uint64_t open_files;
    uint64_t files_max; /* 0: no limit, or not known */
    uint64_t threads;
};

/** What cannot be read is 0. */
void rps_process_read(struct rps_process *process);

/** Bytes that this process had read from, and written to, a disk; what the page
 * cache had is not among them. False: not known here. */
bool rps_process_disk(uint64_t *read_out, uint64_t *written_out);

/** Seconds of processor that this process may use a second: its affinity, and
 * no more than its control group's quota (version 2, below root). */
double rps_processors(const char *own, const char *root);

/** Memory of the machine, bytes; 0: not known. */
uint64_t rps_memory_total(void);

/** Bytes resident now; 0: not known. */
uint64_t rps_process_resident(void);

/**
 * The memory limit of the process's control group, the least on the way to
 * the root, from the files below `root` ("/sys/fs/cgroup") and
 * `own` ("/proc/self/cgroup"); version 2, else version 1. 0: none.
 */
uint64_t rps_cgroup_memory_max(const char *own, const char *root);

#endif /* RPS_BASE_PROCESS_H */
