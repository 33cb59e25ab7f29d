/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a benchmark has outside of itself: folders in /tmp, children. It goes
 * with the benchmark, also when a signal ends that.
 */
#ifndef RPS_BENCH_NET_TIDY_H
#define RPS_BENCH_NET_TIDY_H

#include "base/error.h"

#include <sys/types.h>

/**
 * From here on SIGINT, SIGTERM and SIGHUP end the children, remove the folders
 * and then the process, as the signal would have done. Of one that is ignored
 * (nohup) nothing changes. Errors: IO.
 */
rps_status bench_tidy_start(struct rps_error *error);

/** Where the process is being ended, does not return: what failed meanwhile
 * is nobody's business. */
void bench_tidy_await_end(void);

/** Folder for a server's files, ours alone. Errors: IO. */
rps_status bench_folder_make(char folder[64], struct rps_error *error);
/** With the plain files in it. "" is nothing. */
void bench_folder_remove(const char *folder);

/** fork(): in the child 0 and no signal handler, -1 is errno. */
pid_t bench_child_start(void);
/** End a child and wait for it; 0 is nothing. */
void bench_child_stop(pid_t pid);
/** It has ended by itself, and was waited for. */
void bench_child_forget(pid_t pid);

#endif /* RPS_BENCH_NET_TIDY_H */
