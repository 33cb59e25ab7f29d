/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to recps: connections, each a thread with a client of its own that
 * keeps `depth` requests in flight, all in one table. What they ask is drawn
 * before a slice begins.
 *
 * What is checked. Where nothing but lookups run, one row of each answer within
 * the slice (some tens of nanoseconds), and after it the last answers of each
 * connection in full. Where pushes run, too, what a row must hold is known once
 * nothing is in flight: after each slice rows that were drawn are looked up and
 * compared with the model (bench/model.h), and in the end every row.
 */
#ifndef RPS_BENCH_NET_LOAD_H
#define RPS_BENCH_NET_LOAD_H

#include "bench/keyset.h"
#include "bench/model.h"
#include "bench/net/args.h"
#include "bench/net/server.h"
#include "bench/net/side.h"

struct bench_lane;

struct bench_load {
    const struct bench_net_args *args;
    const struct bench_keyset *set;
    const struct bench_server *server;
    enum rps_transport transport;
    unsigned connections;
    size_t beside;            /* ids a request of one more; 0: none */
    bool fills;               /* makes the rows; else they are there */
    struct bench_lane *lanes; /* [lane_count], the one beside last */
    unsigned lane_count;
    struct bench_model model; /* of pushes, if there are any */
    uint32_t *counts;         /* [set->rows] pushes of each, or NULL: none */
    float *gradients;         /* [BENCH_GRADIENT_CLASSES][dim] */
    uint32_t *scratch;        /* [batch] of checks */
    uint64_t checked;         /* rows compared */
    size_t request_bytes;     /* of the last slice, a mean: a frame */
    size_t reply_bytes;
};

/** Connects, and fills the table. The fields above `lanes` are set. */
rps_status bench_load_init(struct bench_load *load, struct rps_error *error);
void bench_load_finish(struct bench_load *load);

/** The table at a server that is not ours. */
void bench_load_drop(struct bench_load *load);

/** A side's context: what the lanes of a load do in its slices. */
struct bench_turn {
    struct bench_load *load;
    enum rps_value wire;
    bool only_lookups; /* whatever the mix says */
};

/** bench_side.run; the context is a turn. */
rps_status bench_turn_run(void *context, double seconds,
        struct bench_slice *slice, struct rps_error *error);

/** Where rows were pushed: every row. */
rps_status bench_load_check_all(
        struct bench_load *load, struct rps_error *error);

/** The pattern (bench/check.h) that table and wire hold exactly; I8 rounds. */
enum rps_value bench_net_pattern(const struct bench_net_args *args);

#endif /* RPS_BENCH_NET_LOAD_H */
