/* SPDX-License-Identifier: Apache-2.0 */
/* recps-bench allreduce: its runs, and their report. */
#include "bench/allreduce/main.h"

#include "bench/allreduce/rank.h"
#include "bench/allreduce/run.h"
#include "bench/print.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#define PROGRAM BENCH_ALLREDUCE_PROGRAM

static const char *const algorithms[] = {"ring", "default"};

#define ALGORITHMS (sizeof(algorithms) / sizeof(algorithms[0]))

/* What no allreduce that sums over n ranks can do without, a rank. */
static double
least_bytes(const struct bench_allreduce_args *args, uint32_t ranks)
{
    return 2.0 * (ranks - 1) / ranks * (double)args->bytes;
}

struct range {
    double low, high; /* bytes of an allreduce, over the ranks */
    uint32_t peers;
};

static struct range
range_of(const struct bench_allreduce_args *args,
        const struct bench_allreduce_run *run)
{
    struct range range = {.low = 0.0};

    for (uint32_t r = 0; r < run->ranks; r++) {
        const double bytes = (double)run->sent[r].bytes / (double)args->repeat;

        if (r == 0 || bytes < range.low) {
            range.low = bytes;
        }
        if (bytes > range.high) {
            range.high = bytes;
        }
        if (run->sent[r].peers > range.peers) {
            range.peers = run->sent[r].peers;
        }
    }
    return range;
}

static json_t *
side_value(const struct bench_allreduce_args *args,
        const struct bench_allreduce_run *run)
{
    const double least = least_bytes(args, run->ranks);
    const struct range range = range_of(args, run);
    json_t *sent = json_array();

    for (uint32_t r = 0; r < run->ranks; r++) {
        json_array_append_new(sent,
                json_real((double)run->sent[r].bytes / (double)args->repeat));
    }
    return json_pack("{s:o, s:f, s:f, s:I, s:f}", "sent_bytes", sent,
            "ratio_low", range.low / least, "ratio_high", range.high / least,
            "peers", (json_int_t)range.peers, "milliseconds",
            run->milliseconds);
}

static void
print_side(const struct bench_allreduce_args *args,
        const struct bench_allreduce_run *run)
{
    const double least = least_bytes(args, run->ranks);
    const struct range range = range_of(args, run);

    printf("%5" PRIu32
           "  %-9s  %14.0f  %14.0f  %14.0f  %5.3f..%-5.3f  %5" PRIu32
           "  %9.2f\n",
            run->ranks, run->algorithm, least, range.low, range.high,
            range.low / least, range.high / least, range.peers,
            run->milliseconds);
}

static void
print_titles(const struct bench_allreduce_args *args)
{
    printf("payload: %" PRIu64 " bytes; bytes that a rank sent in an "
           "allreduce, least and most of the ranks\n"
           "ranks  algorithm   2(N-1)/N of it           least            "
           "most  of 2(N-1)/N   peers         ms\n",
            args->bytes);
}

/* Both algorithms with `ranks`; *list gets the runs. */
static rps_status
measure(const struct bench_allreduce_args *args, uint32_t ranks, json_t *list,
        struct rps_error *error)
{
    json_t *object = json_pack("{s:I, s:f}", "ranks", (json_int_t)ranks,
            "least_bytes", least_bytes(args, ranks));
    rps_status status = RPS_OK;

    for (size_t a = 0; a < ALGORITHMS && status == RPS_OK; a++) {
        struct bench_allreduce_run run = {
                .ranks = ranks, .algorithm = algorithms[a]};

        bench_progress("%" PRIu32 " ranks, %s: %" PRIu64
                       " allreduces of %" PRIu64 " bytes",
                ranks, run.algorithm, args->repeat, args->bytes);
        status = bench_allreduce_run(args, &run, error);
        if (status == RPS_OK) {
            json_object_set_new(object, run.algorithm, side_value(args, &run));
            if (!args->json) {
                print_side(args, &run);
            }
        }
    }
    json_array_append_new(list, object);
    return status;
}

static int
exit_code(rps_status status)
{
    switch (status) {
    case RPS_OK:
        return EX_OK;
    case RPS_E_NOT_FOUND:
    case RPS_E_CORRUPT:
        return EX_UNAVAILABLE;
    default:
        return 1;
    }
}

static int
report(const struct bench_allreduce_args *args)
{
    json_t *object = json_pack("{s:I, s:I}", "payload_bytes",
            (json_int_t)args->bytes, "repeat", (json_int_t)args->repeat);
    json_t *list = json_array();
    struct rps_error error;
    rps_status status = RPS_OK;

    if (!args->json) {
        print_titles(args);
    }
    for (size_t i = 0; i < args->run_count && status == RPS_OK; i++) {
        status = measure(args, args->ranks[i], list, &error);
    }
    json_object_set_new(object, "runs", list);
    bench_add_machine(object);
    if (status != RPS_OK) {
        fprintf(stderr, PROGRAM ": %s\n", error.text);
    } else if (args->json) {
        return bench_put_json(object) ? EX_OK : EX_IOERR;
    }
    json_decref(object);
    return exit_code(status);
}

int
bench_allreduce_main(int argc, char **argv)
{
    struct bench_allreduce_args args;
    const int code = bench_allreduce_args_read(&args, argc, argv);

    if (code != 0) {
        return code < 0 ? EX_OK : code;
    }
    if (!bench_allreduce_is_built()) {
        fputs(PROGRAM ": this build has no MPI: install Open MPI (Debian: "
                      "openmpi-bin libopenmpi-dev) and build again\n",
                stderr);
        return EX_UNAVAILABLE;
    }
    return args.as_rank != NULL ? bench_allreduce_rank(&args) : report(&args);
}
