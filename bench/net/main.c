/* SPDX-License-Identifier: Apache-2.0 */
/* Which sides are measured, and what is made of their slices. */
#include "bench/net/main.h"

#include "bench/net/load.h"
#include "bench/net/report.h"
#include "bench/net/stream.h"
#include "bench/net/tidy.h"
#include "bench/net/versus.h"
#include "bench/print.h"
#include "proto/value.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#define SLICE_SECONDS 0.2
#define ROUNDS_MIN    5u
#define ROUNDS_MAX    1000u

enum side {
    SIDE_OURS,
    SIDE_STREAM,
    SIDE_GATHER, /* the stream, of gathered rows; beside uniform lookups */
    SIDE_LOCAL,
    SIDE_TCP,    /* beside unix and shm */
    SIDE_F32,    /* beside another type on the wire */
    SIDE_LOOKUP, /* beside pushes */
    SIDE_REDIS,
    SIDE_MEMCACHED,
    SIDE_COUNT
};

struct bench_net {
    struct bench_net_args args;
    struct bench_keyset set;
    struct bench_net_report report;
    struct bench_server server;
    struct bench_server no_server; /* the local side's */
    struct bench_stream stream;
    struct bench_stream gather;
    size_t request_bytes; /* a frame of ours, a mean */
    size_t reply_bytes;
    struct bench_load ours;
    struct bench_load local;
    struct bench_load tcp;
    struct bench_turn ours_turn;
    struct bench_turn local_turn;
    struct bench_turn tcp_turn;
    struct bench_turn f32_turn;
    struct bench_turn lookup_turn;
    struct bench_rival rivals[BENCH_VERSUS_COUNT];
    struct bench_side sides[SIDE_COUNT]; /* run NULL: not measured */
    struct rps_error error;
};

static void
add_side(struct bench_net *net, enum side side, const char *name, void *context,
        rps_status (*run)(
                void *, double, struct bench_slice *, struct rps_error *))
{
    net->sides[side] =
            (struct bench_side){.name = name, .context = context, .run = run};
}

static void
add_turn(struct bench_net *net, enum side side, const char *name,
        struct bench_turn *turn, struct bench_load *load, bool only_lookups)
{
    const enum rps_value wire =
            side == SIDE_F32 ? RPS_VALUE_F32 : net->args.wire;

    *turn = (struct bench_turn){
            .load = load, .wire = wire, .only_lookups = only_lookups};
    add_side(net, side, name, turn, bench_turn_run);
}

/* A bare stream between two processes here says nothing of another machine. */
static bool
is_here(const struct bench_net_args *args)
{
    return args->address == NULL || strncmp(args->address, "127.", 4) == 0 ||
           strncmp(args->address, "localhost:", 10) == 0 ||
           strncmp(args->address, "[::1]:", 6) == 0;
}

static bool
is_gathered(const struct bench_net_args *args)
{
    return bench_net_only_reads(args) && args->dist.kind == BENCH_DIST_UNIFORM;
}

/* First of all, as they fork. */
static rps_status
open_streams(struct bench_net *net)
{
    const struct bench_net_args *args = &net->args;
    rps_status status;

    net->stream = (struct bench_stream){.transport = args->transport,
            .connections = args->connections,
            .depth = args->depth,
            .ids = args->batch};
    if (args->alone || !is_here(args)) {
        return RPS_OK;
    }
    net->gather = net->stream;
    add_side(net, SIDE_STREAM, "bare stream", &net->stream, bench_stream_run);
    status = bench_stream_init(&net->stream, &net->error);
    if (status != RPS_OK || !is_gathered(args)) {
        return status;
    }
    net->gather.rows.count = net->set.rows;
    net->gather.rows.row_bytes =
            rps_value_row_bytes((uint16_t)args->wire, args->dim);
    add_side(net, SIDE_GATHER, "bare stream of gathered rows", &net->gather,
            bench_stream_run);
    return bench_stream_init(&net->gather, &net->error);
}

static rps_status
open_rival(struct bench_net *net, enum bench_versus kind)
{
    struct bench_rival *rival = &net->rivals[kind];
    rps_status status = RPS_OK;

    *rival = (struct bench_rival){
            .args = &net->args, .set = &net->set, .kind = kind};
    if (!net->args.versus[kind]) {
        return RPS_OK;
    }
    status = bench_rival_init(rival, &net->error);
    if (status == RPS_E_NOT_FOUND) {
        bench_progress("not measured: %s", net->error.text);
        bench_rival_finish(rival);
        return RPS_OK;
    }
    if (status == RPS_OK) {
        add_side(net, kind == BENCH_REDIS ? SIDE_REDIS : SIDE_MEMCACHED,
                bench_versus_str(kind), rival, bench_rival_run);
    }
    return status;
}

static rps_status
open_ours(struct bench_net *net)
{
    const struct bench_net_args *args = &net->args;
    const bool reads = bench_net_only_reads(args);
    rps_status status = RPS_OK;

    net->ours = (struct bench_load){.args = args,
            .set = &net->set,
            .server = &net->server,
            .transport = args->transport,
            .connections = args->connections,
            .beside = args->beside,
            .fills = true};
    add_turn(net, SIDE_OURS, "recps", &net->ours_turn, &net->ours, false);
    if (args->wire != RPS_VALUE_F32 && !args->alone) {
        add_turn(net, SIDE_F32, "f32 on the wire", &net->f32_turn, &net->ours,
                false);
    }
    if (!reads && !args->alone) {
        add_turn(net, SIDE_LOOKUP, "lookups alone", &net->lookup_turn,
                &net->ours, true);
    }
    if (args->transport != RPS_TRANSPORT_LOCAL) {
        status = bench_server_start(&net->server, args, &net->error);
    }
    return status == RPS_OK ? bench_load_init(&net->ours, &net->error) : status;
}

/* The same in process, and over TCP from the same server. */
static rps_status
open_others(struct bench_net *net)
{
    const struct bench_net_args *args = &net->args;
    rps_status status = RPS_OK;

    if (args->alone || args->transport == RPS_TRANSPORT_LOCAL) {
        return RPS_OK;
    }
    net->local = (struct bench_load){.args = args,
            .set = &net->set,
            .server = &net->no_server,
            .transport = RPS_TRANSPORT_LOCAL,
            .connections = 1,
            .fills = true};
    add_turn(net, SIDE_LOCAL, "in process", &net->local_turn, &net->local,
            false);
    status = bench_load_init(&net->local, &net->error);
    if (status != RPS_OK || args->transport == RPS_TRANSPORT_TCP ||
            !bench_net_only_reads(args)) {
        return status;
    }
    net->tcp = (struct bench_load){.args = args,
            .set = &net->set,
            .server = &net->server,
            .transport = RPS_TRANSPORT_TCP,
            .connections = args->connections,
            .beside = args->beside};
    add_turn(net, SIDE_TCP, "tcp", &net->tcp_turn, &net->tcp, false);
    return bench_load_init(&net->tcp, &net->error);
}

/* A slice of each that does not count; it tells the sizes of messages, too. */
static rps_status
warm_up(struct bench_net *net, double seconds)
{
    rps_status status = RPS_OK;

    for (int i = 0; i < SIDE_COUNT && status == RPS_OK; i++) {
        if (net->sides[i].run == NULL) {
            continue;
        }
        if (i == SIDE_STREAM || i == SIDE_GATHER) {
            status = bench_stream_set_sizes(net->sides[i].context,
                    net->request_bytes, net->reply_bytes, &net->error);
        }
        if (status == RPS_OK && (i == SIDE_REDIS || i == SIDE_MEMCACHED)) {
            status = bench_rival_choose(
                    net->sides[i].context, seconds, &net->error);
        }
        if (status == RPS_OK) {
            status =
                    bench_side_run(&net->sides[i], seconds, false, &net->error);
        }
        if (i == SIDE_OURS) {
            net->request_bytes = net->ours.request_bytes;
            net->reply_bytes = net->ours.reply_bytes;
        }
    }
    return status;
}

static rps_status
run_rounds(struct bench_net *net)
{
    const double wanted = ceil(net->args.seconds / SLICE_SECONDS);
    const unsigned rounds =
            (unsigned)fmin(fmax(wanted, ROUNDS_MIN), ROUNDS_MAX);
    const double seconds = net->args.seconds / rounds;
    rps_status status = RPS_OK;

    bench_progress("timing %u slices of %.3g s of each side", rounds, seconds);
    status = warm_up(net, seconds);
    for (unsigned round = 0; round < rounds && status == RPS_OK; round++) {
        for (unsigned i = 0; i < SIDE_COUNT && status == RPS_OK; i++) {
            struct bench_side *side = &net->sides[(round + i) % SIDE_COUNT];
            if (side->run != NULL) {
                status = bench_side_run(side, seconds, true, &net->error);
            }
        }
    }
    return status;
}

/* Of the slices' ratios, the median. */
static double
ours_over(const struct bench_net *net, enum side side)
{
    return bench_median_ratio(
            &net->sides[SIDE_OURS].ids_rate, &net->sides[side].ids_rate);
}

static double
rate_of(const struct bench_net *net, enum side side)
{
    return bench_series_median(&net->sides[side].ids_rate);
}

static void
report_ours(struct bench_net *net)
{
    const struct bench_net_args *args = &net->args;
    struct bench_side *ours = &net->sides[SIDE_OURS];
    struct bench_net_report *report = &net->report;
    const double row_bytes =
            (double)rps_value_row_bytes((uint16_t)args->wire, args->dim);
    const double naive = (double)ours->ids * (row_bytes + sizeof(uint64_t));

    report->rows_per_second = rate_of(net, SIDE_OURS);
    report->bytes_per_second = bench_series_median(&ours->bytes_rate);
    report->p50_us = bench_series_quantile(&ours->micros, 0.5);
    report->p99_us = bench_series_quantile(&ours->micros, 0.99);
    report->p999_us = bench_series_quantile(&ours->micros, 0.999);
    report->p999_over_p50 = report->p999_us / report->p50_us;
    report->client_cpu_seconds_per_million =
            ours->client_cpu_seconds * 1e6 / (double)ours->ids;
    report->server_cpu_seconds_per_million =
            ours->server_cpu_seconds * 1e6 / (double)ours->ids;
    report->request_bytes = (double)net->request_bytes;
    report->reply_bytes = (double)net->reply_bytes;
    report->bytes_saved = naive / (double)ours->bytes;
    if (args->beside > 0) {
        report->beside_rows_per_second =
                bench_series_median(&ours->beside_rate);
    }
    report->checked_answers =
            (double)(net->ours.checked + net->local.checked + net->tcp.checked +
                     net->rivals[BENCH_REDIS].checked +
                     net->rivals[BENCH_MEMCACHED].checked);
}

static void
report_others(struct bench_net *net)
{
    struct bench_net_report *report = &net->report;
    const struct bench_side *ours = &net->sides[SIDE_OURS];
    const struct bench_side *stream = &net->sides[SIDE_STREAM];
    const bool is_local = net->args.transport == RPS_TRANSPORT_LOCAL;

    report->stream_bytes_per_second = bench_series_median(&stream->bytes_rate);
    report->stream_ratio =
            bench_median_ratio(&ours->bytes_rate, &stream->bytes_rate);
    report->gather_bytes_per_second =
            bench_series_median(&net->sides[SIDE_GATHER].bytes_rate);
    report->gather_ratio = bench_median_ratio(
            &ours->bytes_rate, &net->sides[SIDE_GATHER].bytes_rate);
    if (net->args.depth == 1 && !is_local) {
        report->ping_p50_us = bench_series_median(&stream->micros);
        report->p50_over_ping =
                bench_median_ratio(&ours->p50_us, &stream->p50_us);
    }
    report->local_rows_per_second =
            rate_of(net, is_local ? SIDE_OURS : SIDE_LOCAL);
    report->over_local = ours_over(net, SIDE_LOCAL);
    report->tcp_rows_per_second = rate_of(net, SIDE_TCP);
    report->over_tcp = ours_over(net, SIDE_TCP);
    report->f32_rows_per_second = rate_of(net, SIDE_F32);
    report->over_f32 = ours_over(net, SIDE_F32);
    report->lookup_rows_per_second = rate_of(net, SIDE_LOOKUP);
    report->over_lookup = ours_over(net, SIDE_LOOKUP);
    report->redis_rows_per_second = rate_of(net, SIDE_REDIS);
    report->versus_redis = ours_over(net, SIDE_REDIS);
    report->memcached_rows_per_second = rate_of(net, SIDE_MEMCACHED);
    report->versus_memcached = ours_over(net, SIDE_MEMCACHED);
    if (net->sides[SIDE_REDIS].run != NULL) {
        report->redis_depth = (double)net->rivals[BENCH_REDIS].depth;
    }
    if (net->sides[SIDE_MEMCACHED].run != NULL) {
        report->memcached_depth = (double)net->rivals[BENCH_MEMCACHED].depth;
    }
}

static rps_status
run(struct bench_net *net)
{
    rps_status status = open_streams(net);

    for (int i = 0; i < BENCH_VERSUS_COUNT && status == RPS_OK; i++) {
        status = open_rival(net, (enum bench_versus)i);
    }
    if (status == RPS_OK) {
        status = open_ours(net);
    }
    if (status == RPS_OK) {
        status = open_others(net);
    }
    if (status == RPS_OK) {
        status = run_rounds(net);
    }
    if (status == RPS_OK && !bench_net_only_reads(&net->args)) {
        bench_progress("checking every row");
        status = bench_load_check_all(&net->ours, &net->error);
    }
    if (status == RPS_OK && net->sides[SIDE_LOCAL].run != NULL) {
        status = bench_load_check_all(&net->local, &net->error);
    }
    if (status == RPS_OK) {
        report_ours(net);
        report_others(net);
    }
    return status;
}

static void
finish(struct bench_net *net)
{
    for (int i = 0; i < SIDE_COUNT; i++) {
        bench_side_finish(&net->sides[i]);
    }
    bench_load_drop(&net->ours);
    bench_load_finish(&net->tcp);
    bench_load_finish(&net->local);
    bench_load_finish(&net->ours);
    bench_rival_finish(&net->rivals[BENCH_REDIS]);
    bench_rival_finish(&net->rivals[BENCH_MEMCACHED]);
    bench_stream_finish(&net->gather);
    bench_stream_finish(&net->stream);
    bench_server_stop(&net->server);
    bench_keyset_finish(&net->set);
}

int
bench_net_main(int argc, char **argv)
{
    static struct bench_net net;
    rps_status status = RPS_OK;
    int code = bench_net_args_read(&net.args, argc, argv);

    if (code != 0) {
        return code;
    }
    signal(SIGPIPE, SIG_IGN);
    bench_net_report_init(&net.report);
    status = bench_tidy_start(&net.error);
    if (status == RPS_OK) {
        status = bench_dist_load(&net.args.dist, &net.error);
    }
    if (status == RPS_OK) {
        status = bench_keyset_init(&net.set, net.args.rows,
                bench_dist_trace(&net.args.dist), &net.error);
    }
    code = status == RPS_OK || status == RPS_E_NOMEM ? EXIT_FAILURE : EX_USAGE;
    if (status == RPS_OK) {
        status = run(&net);
    }
    bench_tidy_await_end();
    if (status != RPS_OK) {
        fprintf(stderr, "recps-bench net: %s\n",
                net.error.text[0] != '\0' ? net.error.text
                                          : rps_status_str(status));
    } else if (bench_net_report_print(&net.report, &net.args, net.set.rows)) {
        code = EXIT_SUCCESS;
    } else {
        fprintf(stderr, "recps-bench net: writing to stdout: %s\n",
                strerror(errno));
        code = EXIT_FAILURE;
    }
    finish(&net);
    return code;
}
