/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/allreduce/args.h"

#include "base/text.h"
#include "bench/options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#define PROGRAM BENCH_ALLREDUCE_PROGRAM

static const char usage[] =
        "usage: recps-bench allreduce [OPTION...]\n"
        "\n"
        "Measures what each rank really sends in an allreduce: Open MPI's "
        "monitor\n"
        "counts the bytes of every message. Beside them stand 2 (N - 1) / N of "
        "the\n"
        "payload, which is the least that a sum over N ranks takes, and the "
        "same of\n"
        "the algorithm that Open MPI takes by itself. Every sum is checked: a "
        "wrong\n"
        "one is exit code 1. Starts mpirun on this host, as root and with more "
        "ranks\n"
        "than cores, too.\n"
        "\n"
        "  --ranks LIST      ranks of each run (default 2,4)\n"
        "  --bytes SIZE      payload, a multiple of 4 (default 16MiB)\n"
        "  --repeat N        allreduces of a run (default 5)\n"
        "  --mpirun PATH     which mpirun (default: that of PATH)\n"
        "  --json            one JSON object on stdout and nothing else\n"
        "  --help\n";

enum {
    OPTION_AS_RANK = 256
};

static int
set_ranks(struct bench_allreduce_args *args, const char *text)
{
    const char *at = text;
    char word[BENCH_WORD_MAX];
    uint64_t ranks = 0;

    args->run_count = 0;
    do {
        if (bench_next_word(&at, ',', word) == NULL ||
                !rps_parse_u64(word, &ranks) || ranks < 2 ||
                ranks > BENCH_ALLREDUCE_RANKS_MAX ||
                args->run_count == BENCH_ALLREDUCE_RUNS_MAX) {
            return bench_refuse(PROGRAM, "--ranks", text,
                    "must be 1 to 8 numbers of 2 to 64 with commas between");
        }
        args->ranks[args->run_count++] = (uint32_t)ranks;
    } while (*at != '\0');
    return 0;
}

static int
set_bytes(struct bench_allreduce_args *args, const char *text)
{
    return rps_parse_bytes(text, &args->bytes) && args->bytes >= 4 &&
                           args->bytes % 4 == 0 &&
                           args->bytes <= BENCH_ALLREDUCE_BYTES_MAX
                   ? 0
                   : bench_refuse(PROGRAM, "--bytes", text,
                             "must be a multiple of 4 from 4 to 1GiB");
}

static int
set_option(struct bench_allreduce_args *args, int option, const char *value)
{
    switch (option) {
    case 'r':
        return set_ranks(args, value);
    case 'b':
        return set_bytes(args, value);
    case 'n':
        return bench_set_number(
                PROGRAM, &args->repeat, "--repeat", value, 1000000);
    case 'm':
        args->mpirun = value;
        return 0;
    case 'j':
        args->json = true;
        return 0;
    case OPTION_AS_RANK:
        args->as_rank = value;
        return 0;
    case 'h':
        fputs(usage, stdout);
        return -1;
    default:
        fputs(PROGRAM ": see " PROGRAM " --help\n", stderr);
        return EX_USAGE;
    }
}

int
bench_allreduce_args_read(
        struct bench_allreduce_args *args, int argc, char **argv)
{
    static const struct option options[] = {
            {"ranks", required_argument, NULL, 'r'},
            {"bytes", required_argument, NULL, 'b'},
            {"repeat", required_argument, NULL, 'n'},
            {"mpirun", required_argument, NULL, 'm'},
            {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'},
            {"as-rank", required_argument, NULL, OPTION_AS_RANK},
            {NULL, 0, NULL, 0}};
    int option = 0;

    *args = (struct bench_allreduce_args){.ranks = {2, 4},
            .run_count = 2,
            .bytes = (uint64_t)16 << 20,
            .repeat = 5,
            .mpirun = "mpirun"};
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        const int code = set_option(args, option, optarg);
        if (code != 0) {
            return code;
        }
    }
    if (optind < argc) {
        return bench_refuse(PROGRAM, "argument", argv[optind], "none is taken");
    }
    return 0;
}
