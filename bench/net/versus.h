/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other servers that hold the same rows: redis-server asked with MGET by
 * hiredis, memcached asked with mget by libmemcached. Started here, on a
 * private port of the loopback, or beside unix and shm on a Unix socket in a
 * folder of ours; each with as many connections as ours, and as many requests
 * in flight on each as suits it best.
 */
#ifndef RPS_BENCH_NET_VERSUS_H
#define RPS_BENCH_NET_VERSUS_H

#include "bench/keyset.h"
#include "bench/net/args.h"
#include "bench/net/side.h"

#include <sys/types.h>

struct bench_rival_lane;

struct bench_rival {
    const struct bench_net_args *args;
    const struct bench_keyset *set;
    enum bench_versus kind;
    size_t row_bytes;
    bool is_unix;
    uint16_t port;
    char folder[64];
    char path[96]; /* of its socket */
    pid_t pid;
    size_t depth; /* that was best */
    uint64_t checked;
    struct bench_rival_lane *lanes; /* [args->connections] */
    unsigned lane_count;
};

/**
 * Start it and fill it. The fields before `row_bytes` are set. NOT_FOUND: it
 * is not installed, or its client was not built in.
 */
rps_status bench_rival_init(struct bench_rival *rival, struct rps_error *error);
void bench_rival_finish(struct bench_rival *rival);

/** Try some depths and keep the best. */
rps_status bench_rival_choose(
        struct bench_rival *rival, double seconds, struct rps_error *error);

/** bench_side.run; the context is the rival. */
rps_status bench_rival_run(void *context, double seconds,
        struct bench_slice *slice, struct rps_error *error);

const char *bench_versus_str(enum bench_versus kind);

/* --- for redis.c and memcached.c ----------------------------------------- */

/** What a client library does; answers come in the order of the questions. */
struct bench_rival_ops {
    /** In the child: become the server. Returns only if it cannot. */
    void (*exec)(const struct bench_rival *rival);
    /** NULL: it does not listen yet. */
    void *(*open)(const struct bench_rival *rival);
    void (*close)(void *handle);
    rps_status (*fill)(void *handle, const uint64_t *keys, const char *rows,
            size_t n, size_t row_bytes, struct rps_error *error);
    rps_status (*ask)(void *handle, const uint64_t *keys, size_t n,
            struct rps_error *error);
    rps_status (*take)(void *handle, size_t n, size_t row_bytes, char *rows,
            struct rps_error *error);
};

/** NULL: not built in. */
const struct bench_rival_ops *bench_redis_ops(void);
const struct bench_rival_ops *bench_memcached_ops(void);

#endif /* RPS_BENCH_NET_VERSUS_H */
