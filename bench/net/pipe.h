/* SPDX-License-Identifier: Apache-2.0 */
/* One connection of bare bytes between two processes, over any transport. */
#ifndef RPS_BENCH_NET_PIPE_H
#define RPS_BENCH_NET_PIPE_H

#include "base/error.h"
#include "base/spin.h"
#include "proto/ring.h"

#include <recps/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct bench_end;

struct bench_pipe_ops {
    /** Bytes that went, or came; 0: none now; -1: the peer is gone. With
     * `waits`, at least one. A message's last bytes go in one call. */
    ssize_t (*put)(
            struct bench_end *end, const void *bytes, size_t n, bool waits);
    ssize_t (*get)(struct bench_end *end, void *into, size_t n, bool waits);
    /** Until something came or there is room. */
    void (*wait)(struct bench_end *end);
};

/** One end of it. */
struct bench_end {
    const struct bench_pipe_ops *ops;
    int fd; /* the socket */
    struct rps_ring ring;
    struct rps_spin spin;
    int own_bell; /* we sleep on it */
    int bell;     /* wakes the other end */
};

struct bench_pipe {
    enum rps_transport transport;
    int fds[2];   /* sockets: ours, the child's */
    int memory;   /* shm */
    int bells[2]; /* shm: of our end, of the child's */
};

/** Before the fork. Errors: IO. */
rps_status bench_pipe_init(struct bench_pipe *pipe,
        enum rps_transport transport, struct rps_error *error);

/** After it: the end of this process, child or not. */
rps_status bench_pipe_end(struct bench_pipe *pipe, bool child,
        struct bench_end *end, struct rps_error *error);
void bench_end_finish(struct bench_end *end);

#endif /* RPS_BENCH_NET_PIPE_H */
