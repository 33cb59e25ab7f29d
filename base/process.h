/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel counts about this process, from /proc. */
#ifndef RPS_BASE_PROCESS_H
#define RPS_BASE_PROCESS_H

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

/** Bytes resident now; 0: not known. */
uint64_t rps_process_resident(void);

/**
 * The memory limit of the process's control group, the least on the way to
 * the root, from the files below `root` ("/sys/fs/cgroup") and
 * `own` ("/proc/self/cgroup"); version 2, else version 1. 0: none.
 */
uint64_t rps_cgroup_memory_max(const char *own, const char *root);

#endif /* RPS_BASE_PROCESS_H */
