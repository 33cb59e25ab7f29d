/* SPDX-License-Identifier: Apache-2.0 */
/* What `recps-bench net` was asked for. */
#ifndef RPS_BENCH_NET_ARGS_H
#define RPS_BENCH_NET_ARGS_H

#include "bench/options.h"

#include <recps/client.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_CONNECTIONS_MAX 256u
#define BENCH_DEPTH_MAX       64u

enum bench_versus {
    BENCH_REDIS,
    BENCH_MEMCACHED,
    BENCH_VERSUS_COUNT
};

struct bench_net_args {
    enum rps_transport transport;
    uint64_t rows;
    uint32_t dim;
    size_t batch;  /* ids a request */
    size_t depth;  /* requests in flight on a connection */
    size_t beside; /* ids a request of one more connection; 0: none */
    unsigned connections;
    enum rps_value value; /* of the table */
    enum rps_value wire;
    enum rps_optimizer optimizer;
    uint64_t mix[BENCH_OP_COUNT]; /* weights */
    const char *mix_text;
    const char *dist_text;
    struct bench_dist_spec dist;
    const char *address; /* NULL: a recpsd of our own */
    bool versus[BENCH_VERSUS_COUNT];
    bool alone; /* no bare stream, no local rate */
    double seconds;
    uint64_t seed;
    bool json;
};

/** 0, or the exit code after saying what is wrong. --help exits. */
int bench_net_args_read(struct bench_net_args *args, int argc, char **argv);

/** Only lookups: every answer is known beforehand. */
bool bench_net_only_reads(const struct bench_net_args *args);

/** The table that is filled and asked. */
void bench_net_spec(const struct bench_net_args *args, rps_table_spec *spec);

#endif /* RPS_BENCH_NET_ARGS_H */
