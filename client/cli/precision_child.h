/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command that is run and waited for, in a process group of its own, its
 * output in a file. TERM, INT and HUP go on to it; the second one kills it.
 */
#ifndef RPS_CLIENT_CLI_PRECISION_CHILD_H
#define RPS_CLIENT_CLI_PRECISION_CHILD_H

#include <stdint.h>

struct rps_precision_child {
    char *const *argv;           /* NULL-ended */
    const char *json_log;        /* RECPS_JSON_LOG of its environment */
    const char *output;          /* file of its stdout and stderr: made anew */
    uint64_t patience_ms;        /* from a signal to KILL */
    void (*tick)(void *context); /* now and then while it runs */
    void *context;
    /* once it has ended */
    int code;          /* its exit code; of a signal's death 128 + n */
    int signal_number; /* that this process got; 0: none */
    int failed_errno;  /* it could not be started; 0: it could */
};

/** Run it to its end. */
void rps_precision_child_run(struct rps_precision_child *child);

#endif /* RPS_CLIENT_CLI_PRECISION_CHILD_H */
