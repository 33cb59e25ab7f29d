/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the benchmarks share. Each runs its timed work batch by batch, checks
 * every answer outside of the timing, and fails on a wrong one.
 */
#ifndef RPS_BENCH_BENCH_H
#define RPS_BENCH_BENCH_H

#include "base/error.h"

#include <recps/client.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bench_args {
    uint64_t rows;
    uint32_t dim;
    size_t batch;   /* distinct keys a request */
    double seconds; /* of timed work */
    bool tcp;       /* over loopback to a recpsd of its own; else in process */
    const char *program; /* argv[0]: recpsd stands beside it */
};

#define BENCH_SAMPLES_MAX (1u << 20)

/** Times of batches, and what they add up to. */
struct bench_result {
    const char *name;      /* "lookup", "push" */
    const char *transport; /* "local", "tcp" */
    uint64_t batches;
    uint64_t keys;
    uint64_t ns;       /* of timed work */
    uint64_t bare_ns;  /* bare gather of as many rows, beside it; 0: none */
    uint64_t *samples; /* ns a batch, the first BENCH_SAMPLES_MAX */
    size_t sample_count;
};

/** A client on the transport that args asks for, with rows assigned. */
struct bench_target {
    rps_client *client;
    rps_embedding_table *table;
    int server_pid; /* 0: none */
    char port_file[64];
};

rps_status bench_open(struct bench_target *target,
        const struct bench_args *args, struct rps_error *error);
void bench_close(struct bench_target *target);

/** Key i of the benchmark, and the value that its row was given. */
uint64_t bench_key(uint64_t i);
float bench_value(uint64_t key, uint32_t column);

void bench_sample(struct bench_result *result, uint64_t ns, size_t keys);

rps_status bench_lookup(struct bench_target *target,
        const struct bench_args *args, struct bench_result *result,
        struct rps_error *error);
rps_status bench_push(struct bench_target *target,
        const struct bench_args *args, struct bench_result *result,
        struct rps_error *error);

/** Lines for people, or one JSON object for all results. */
void bench_print(const struct bench_args *args,
        const struct bench_result *results, size_t count, bool json);

#endif /* RPS_BENCH_BENCH_H */
