/* SPDX-License-Identifier: Apache-2.0 */
/* A recpsd of the benchmark's own, and clients of it or of another. */
#ifndef RPS_BENCH_NET_SERVER_H
#define RPS_BENCH_NET_SERVER_H

#include "base/error.h"
#include "bench/keyset.h"
#include "bench/net/args.h"

#include <sys/types.h>

#define BENCH_START_MS_MAX 10000u

struct bench_server {
    pid_t pid;       /* 0: not ours, or in process */
    char folder[64]; /* of its port file and sockets; "": none */
    char address[300];
};

/** Start one, or note args->address. */
rps_status bench_server_start(struct bench_server *server,
        const struct bench_net_args *args, struct rps_error *error);
void bench_server_stop(struct bench_server *server);

/** CPU time of a process, s; NaN: not known. */
double bench_process_cpu_seconds(pid_t pid);

/** A client of it by this transport; LOCAL: in process. */
rps_status bench_client_open(rps_client **client_out,
        const struct bench_server *server, enum rps_transport transport,
        struct rps_error *error);

/** Every row of the set, with its pattern of this value type. */
rps_status bench_fill_table(rps_client *client, rps_embedding_table *table,
        const struct bench_keyset *set, enum rps_value pattern,
        struct rps_error *error);

#endif /* RPS_BENCH_NET_SERVER_H */
