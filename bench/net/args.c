/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/net/args.h"

#include "base/spec.h"
#include "base/text.h"
#include "base/transport.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#define PROGRAM     "recps-bench net"
#define BATCH_USUAL 4096u
#define DEPTH_USUAL 4u

static const char usage[] =
        "usage: recps-bench net [OPTION...]\n"
        "\n"
        "Times requests of one client process to one parameter server, and in "
        "the\n"
        "same run, in turns of a fraction of a second: bare messages of the "
        "same sizes\n"
        "between two processes over the same transport, the same requests in "
        "process,\n"
        "and other servers that hold the same rows. Answers are checked: a "
        "wrong one is\n"
        "exit code 1. bench/README.md says what each figure means.\n"
        "\n"
        "  --transport T     tcp (default), unix, shm or local\n"
        "  --rows N          rows of the table (default 1000000)\n"
        "  --dim D           values a row (default 64)\n"
        "  --batch B         ids a request (default 4096, or --rows)\n"
        "  --depth N         requests in flight on a connection (default 4)\n"
        "  --connections N   connections, each a thread of the client's "
        "(default 1)\n"
        "  --beside B        one more connection that streams lookups of B "
        "ids\n"
        "  --value-type V    f32 (default), f16 or bf16: what the table "
        "holds\n"
        "  --wire-type V     f32 (default), f16, bf16 or i8: what travels\n"
        "  --optimizer O     adagrad (default), sgd, adam, ...\n"
        "  --mix OPS         what requests do, by weight (default lookup:1):\n"
        "                    lookup:80,push:15,insert:5\n"
        "  --dist D          uniform (default), zipf:S, hot:P, seq, "
        "trace:FILE (keys:\n"
        "                    text, one a line, or .npy of <u8 or <i8), or\n"
        "                    reuse:FILE (histogram: uses above, up to, share "
        "of rows,\n"
        "                    share of lookups)\n"
        "  --seconds S       timed work of each side (default 2)\n"
        "  --address HOST:PORT\n"
        "                    this server instead of a recpsd of its own; the "
        "table\n"
        "                    \"recps_bench_net\" is made there and dropped\n"
        "  --versus WHOM     redis, memcached or both with a comma between\n"
        "  --alone           neither the bare messages nor the rate in "
        "process\n"
        "  --seed N          of the draws (default 1)\n"
        "  --json            one JSON object on stdout and nothing else\n"
        "  --help\n";

static int
set_transport(struct bench_net_args *args, const char *text)
{
    return rps_transport_parse(text, &args->transport) &&
                           args->transport != RPS_TRANSPORT_AUTO
                   ? 0
                   : bench_refuse(PROGRAM, "--transport", text,
                             "must be tcp, unix, shm or local");
}

static int
set_wire(struct bench_net_args *args, const char *text)
{
    for (int i = 0; i <= RPS_VALUE_I8; i++) {
        if (strcmp(text, bench_value_str((enum rps_value)i)) == 0) {
            args->wire = (enum rps_value)i;
            return 0;
        }
    }
    return bench_refuse(
            PROGRAM, "--wire-type", text, "must be f32, f16, bf16 or i8");
}

static int
set_versus(struct bench_net_args *args, const char *text)
{
    static const char *const names[] = {"redis", "memcached"};
    const char *at = text;
    char word[BENCH_WORD_MAX];

    do {
        size_t which = 0;
        if (bench_next_word(&at, ',', word) == NULL) {
            word[0] = '\0';
        }
        while (which < BENCH_VERSUS_COUNT && strcmp(word, names[which]) != 0) {
            which++;
        }
        if (which == BENCH_VERSUS_COUNT) {
            return bench_refuse(PROGRAM, "--versus", text,
                    "must be redis, memcached or both with a comma between");
        }
        args->versus[which] = true;
    } while (*at != '\0');
    return 0;
}

/* Numbers from 1 on. -1: another option. */
static int
set_count(struct bench_net_args *args, int option, const char *value)
{
    static const struct {
        int option;
        const char *name;
        uint64_t most;
    } counts[] = {{'r', "--rows", BENCH_ROWS_MAX}, {'d', "--dim", RPS_DIM_MAX},
            {'b', "--batch", BENCH_BATCH_MAX},
            {'n', "--depth", BENCH_DEPTH_MAX},
            {'c', "--connections", BENCH_CONNECTIONS_MAX},
            {'B', "--beside", BENCH_BATCH_MAX}};
    uint64_t number = 0;
    size_t i = 0;
    int code = 0;

    while (i < sizeof(counts) / sizeof(counts[0]) &&
            counts[i].option != option) {
        i++;
    }
    if (i == sizeof(counts) / sizeof(counts[0])) {
        return -1;
    }
    code = bench_set_number(
            PROGRAM, &number, counts[i].name, value, counts[i].most);
    switch (option) {
    case 'r':
        args->rows = number;
        break;
    case 'd':
        args->dim = (uint32_t)number;
        break;
    case 'b':
        args->batch = number;
        break;
    case 'n':
        args->depth = number;
        break;
    case 'c':
        args->connections = (unsigned)number;
        break;
    default:
        args->beside = number;
        break;
    }
    return code;
}

static int
set_option(struct bench_net_args *args, int option, const char *value)
{
    switch (option) {
    case 't':
        return set_transport(args, value);
    case 'V':
        return bench_set_value(PROGRAM, value, &args->value);
    case 'w':
        return set_wire(args, value);
    case 'O':
        return bench_set_optimizer(PROGRAM, value, &args->optimizer);
    case 'm':
        args->mix_text = value;
        return bench_set_mix(PROGRAM, value, args->mix);
    case 'D':
        args->dist_text = value;
        return bench_set_dist(PROGRAM, value, &args->dist);
    case 's':
        return bench_set_seconds(PROGRAM, value, &args->seconds);
    case 'S':
        return bench_set_seed(PROGRAM, value, &args->seed);
    case 'a':
        args->address = value;
        return 0;
    case 'v':
        return set_versus(args, value);
    case 'A':
        args->alone = true;
        return 0;
    case 'j':
        args->json = true;
        return 0;
    case 'h':
        fputs(usage, stdout);
        exit(EX_OK);
    default:
        fputs("recps-bench net: see recps-bench net --help\n", stderr);
        return EX_USAGE;
    }
}

bool
bench_net_only_reads(const struct bench_net_args *args)
{
    return args->mix[BENCH_OP_PUSH] == 0 && args->mix[BENCH_OP_INSERT] == 0;
}

void
bench_net_spec(const struct bench_net_args *args, rps_table_spec *spec)
{
    rps_table_spec_init(spec, "recps_bench_net", args->dim, args->optimizer);
    spec->value_dtype = args->value;
    spec->seed = args->seed;
}

/* What pushes need, so that what each row must hold is known. */
static int
check_pushes(const struct bench_net_args *args)
{
    if (args->wire == RPS_VALUE_I8) {
        return bench_refuse(PROGRAM, "--wire-type", "i8",
                "with lookups alone: it rounds gradients");
    }
    if (args->optimizer >= RPS_OPTIMIZER_ADAM &&
            args->optimizer <= RPS_OPTIMIZER_ADAMW_CATCHUP) {
        return bench_refuse(PROGRAM, "--optimizer",
                rps_optimizer_str(args->optimizer),
                "with lookups alone: what a row must hold would depend on the "
                "order of pushes");
    }
    if (args->dist.kind == BENCH_DIST_HOT) {
        return bench_refuse(PROGRAM, "--dist", args->dist_text,
                "with lookups alone; zipf:S, trace:FILE or reuse:FILE push, "
                "too");
    }
    if (args->batch > args->rows / args->connections) {
        return bench_refuse(PROGRAM, "--batch", "too large",
                "at most --rows / --connections: a push's keys are distinct, "
                "and each connection has rows of its own");
    }
    return 0;
}

/* What no option can see alone. */
static int
check_together(const struct bench_net_args *args)
{
    char why[512];
    rps_table_spec spec;

    if (args->transport == RPS_TRANSPORT_LOCAL &&
            (args->connections > 1 || args->beside > 0 ||
                    args->address != NULL)) {
        return bench_refuse(PROGRAM, "--transport", "local",
                "without --connections, --beside and --address: it is one "
                "client and its own table");
    }
    if (args->address != NULL && (strrchr(args->address, ':') == NULL ||
                                         strchr(args->address, ',') != NULL)) {
        return bench_refuse(
                PROGRAM, "--address", args->address, "must be one HOST:PORT");
    }
    if (!bench_net_only_reads(args)) {
        const int code = check_pushes(args);
        if (code != 0) {
            return code;
        }
    }
    bench_net_spec(args, &spec);
    if (rps_table_spec_check(&spec, why, sizeof(why)) != RPS_OK) {
        return bench_refuse(PROGRAM, "the table", "its spec", why);
    }
    return 0;
}

int
bench_net_args_read(struct bench_net_args *args, int argc, char **argv)
{
    static const struct option options[] = {
            {"transport", required_argument, NULL, 't'},
            {"rows", required_argument, NULL, 'r'},
            {"dim", required_argument, NULL, 'd'},
            {"batch", required_argument, NULL, 'b'},
            {"depth", required_argument, NULL, 'n'},
            {"connections", required_argument, NULL, 'c'},
            {"beside", required_argument, NULL, 'B'},
            {"value-type", required_argument, NULL, 'V'},
            {"wire-type", required_argument, NULL, 'w'},
            {"optimizer", required_argument, NULL, 'O'},
            {"mix", required_argument, NULL, 'm'},
            {"dist", required_argument, NULL, 'D'},
            {"seconds", required_argument, NULL, 's'},
            {"seed", required_argument, NULL, 'S'},
            {"address", required_argument, NULL, 'a'},
            {"versus", required_argument, NULL, 'v'},
            {"alone", no_argument, NULL, 'A'}, {"json", no_argument, NULL, 'j'},
            {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    int option = 0;

    *args = (struct bench_net_args){.transport = RPS_TRANSPORT_TCP,
            .rows = 1000000,
            .dim = 64,
            .depth = DEPTH_USUAL,
            .connections = 1,
            .value = RPS_VALUE_F32,
            .wire = RPS_VALUE_F32,
            .optimizer = RPS_OPTIMIZER_ADAGRAD,
            .mix = {[BENCH_OP_LOOKUP] = 1},
            .mix_text = "lookup:1",
            .dist_text = "uniform",
            .seconds = 2,
            .seed = 1};
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        int code = set_count(args, option, optarg);
        if (code < 0) {
            code = set_option(args, option, optarg);
        }
        if (code != 0) {
            return code;
        }
    }
    if (optind < argc) {
        return bench_refuse(PROGRAM, "argument", argv[optind], "none is taken");
    }
    if (args->batch == 0) {
        const uint64_t most = args->rows / args->connections;
        args->batch = most == 0            ? 1
                      : most < BATCH_USUAL ? (size_t)most
                                           : BATCH_USUAL;
    }
    return check_together(args);
}
