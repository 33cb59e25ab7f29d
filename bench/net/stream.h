/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bare messages over a transport: a second process answers each request of so
 * many bytes with so many bytes, with no work in between, or with one: its
 * bytes are rows from here and there (rows.h). Sizes, depth and
 * connections are those of the requests that it stands beside. On shm the
 * messages go through rings as large as the server's (proto/ring.h), locally
 * they are copied once.
 */
#ifndef RPS_BENCH_NET_STREAM_H
#define RPS_BENCH_NET_STREAM_H

#include "bench/net/args.h"
#include "bench/net/rows.h"
#include "bench/net/side.h"

#include <sys/types.h>

struct bench_flow;
struct bench_message_sizes;

struct bench_stream {
    enum rps_transport transport;
    unsigned connections;
    size_t depth;
    size_t ids;             /* that a message stands for */
    struct bench_rows rows; /* count, row_bytes: to gather; 0: nothing is */
    pid_t child;
    struct bench_message_sizes *sizes; /* shared with the child */
    struct bench_flow *flows;          /* [connections] */
};

/** Forks: no thread may exist yet. The fields above `child` are set. */
rps_status bench_stream_init(
        struct bench_stream *stream, struct rps_error *error);
void bench_stream_finish(struct bench_stream *stream);

/** Before the first slice. */
rps_status bench_stream_set_sizes(struct bench_stream *stream, size_t request,
        size_t reply, struct rps_error *error);

/** bench_side.run; the context is the stream. */
rps_status bench_stream_run(void *context, double seconds,
        struct bench_slice *slice, struct rps_error *error);

#endif /* RPS_BENCH_NET_STREAM_H */
