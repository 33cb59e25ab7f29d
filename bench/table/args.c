/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/table/args.h"

#include "base/spec.h"
#include "base/text.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#define PROGRAM     "recps-bench table"
#define BATCH_USUAL 4096u

static const char usage[] =
        "usage: recps-bench table [OPTION...]\n"
        "\n"
        "Times the table engine in process, without client and wire, beside "
        "what it\n"
        "cannot do without (bare gathers of the same memory) and beside other "
        "hash\n"
        "tables. Every answer is checked: a wrong one is exit code 1. "
        "bench/README.md\n"
        "says what each figure means.\n"
        "\n"
        "  --rows N          rows of the table (default 1000000)\n"
        "  --dim D           values a row (default 16); a list with "
        "--size-sweep\n"
        "  --batch B         keys a request (default 4096, or what "
        "--rows allow)\n"
        "  --dist D          uniform (default), zipf:S, hot:P (P percent of "
        "all keys\n"
        "                    are one key), seq, trace:FILE (keys: text, one a "
        "line, or\n"
        "                    .npy of <u8 or <i8; the table holds them all), "
        "or\n"
        "                    reuse:FILE (histogram: uses above, up to, share "
        "of rows,\n"
        "                    share of lookups)\n"
        "  --mix OPS         a mix instead, by weight: "
        "lookup:80,push:15,insert:5\n"
        "  --threads T       T threads beside one (default 1)\n"
        "  --value-type V    f32 (default), f16 or bf16\n"
        "  --optimizer O     adagrad (default), sgd, adam, ...\n"
        "  --seconds S       timed work of each part (default 2); with its "
        "checks\n"
        "                    at most five times that, after 15 batches\n"
        "  --seed N          of the draws (default 1)\n"
        "  --peers P         auto (default: those that were built in) or off\n"
        "  --size-sweep FROM:TO:COUNT\n"
        "                    bytes a row beyond the payload at COUNT sizes "
        "instead\n"
        "  --memory          what eviction gives back, and dropped tables, "
        "instead\n"
        "  --json            one JSON object on stdout and nothing else\n"
        "  --help\n";

static int
set_dims(struct bench_table_args *args, const char *text)
{
    const char *at = text;
    char word[BENCH_WORD_MAX];

    args->dim_count = 0;
    do {
        uint64_t dim = 0;
        if (args->dim_count == BENCH_DIMS_MAX ||
                bench_next_word(&at, ',', word) == NULL ||
                !rps_parse_u64(word, &dim) || dim == 0 || dim > RPS_DIM_MAX) {
            return bench_refuse(PROGRAM, "--dim", text,
                    "whole numbers from 1 to 8192, with commas between, 16 at "
                    "most");
        }
        args->dims[args->dim_count++] = (uint32_t)dim;
    } while (*at != '\0');
    return 0;
}

static int
set_sweep(struct bench_table_args *args, const char *text)
{
    struct bench_sweep *sweep = &args->sweep;
    uint64_t *const parts[] = {&sweep->from, &sweep->to, &sweep->count};
    const char *at = text;
    char word[BENCH_WORD_MAX];
    bool good = true;

    for (size_t i = 0; i < 3 && good; i++) {
        good = bench_next_word(&at, ':', word) != NULL &&
               rps_parse_u64(word, parts[i]) && *parts[i] > 0;
    }
    if (!good || *at != '\0' || sweep->from > sweep->to ||
            sweep->to > BENCH_ROWS_MAX || sweep->count > 1000) {
        return bench_refuse(PROGRAM, "--size-sweep", text,
                "FROM:TO:COUNT, rows and sizes, 1 <= FROM <= TO <= 2^30, "
                "COUNT from 1 to 1000");
    }
    return 0;
}

static int
set_peers(struct bench_table_args *args, const char *text)
{
    args->peers = strcmp(text, "auto") == 0;
    return args->peers || strcmp(text, "off") == 0
                   ? 0
                   : bench_refuse(
                             PROGRAM, "--peers", text, "must be auto or off");
}

static int
set_option(struct bench_table_args *args, int option, const char *value)
{
    uint64_t number = 0;
    int code = 0;

    switch (option) {
    case 'r':
        return bench_set_number(
                PROGRAM, &args->rows, "--rows", value, BENCH_ROWS_MAX);
    case 'd':
        return set_dims(args, value);
    case 'b':
        code = bench_set_number(
                PROGRAM, &number, "--batch", value, BENCH_BATCH_MAX);
        args->batch = number;
        return code;
    case 'D':
        args->dist_text = value;
        return bench_set_dist(PROGRAM, value, &args->dist);
    case 'm':
        args->mix_text = value;
        return bench_set_mix(PROGRAM, value, args->mix);
    case 'T':
        code = bench_set_number(
                PROGRAM, &number, "--threads", value, BENCH_THREADS_MAX);
        args->threads = (unsigned)number;
        return code;
    case 'V':
        return bench_set_value(PROGRAM, value, &args->value);
    case 'O':
        return bench_set_optimizer(PROGRAM, value, &args->optimizer);
    case 's':
        return bench_set_seconds(PROGRAM, value, &args->seconds);
    case 'S':
        return bench_set_seed(PROGRAM, value, &args->seed);
    case 'p':
        return set_peers(args, value);
    case 'z':
        return set_sweep(args, value);
    case 'M':
        args->memory = true;
        return 0;
    case 'j':
        args->json = true;
        return 0;
    case 'h':
        fputs(usage, stdout);
        exit(EX_OK);
    default:
        fputs("recps-bench table: see recps-bench table --help\n", stderr);
        return EX_USAGE;
    }
}

/* The usual batch, or the largest that the rows allow. */
static void
choose_batch(struct bench_table_args *args)
{
    uint64_t most = args->rows / args->threads;

    if (args->batch > 0) {
        return;
    }
    if (args->dist.kind == BENCH_DIST_HOT) {
        const uint64_t twice = args->rows > 16 ? args->rows - 16 : 0;
        most = most < twice / 2 ? most : twice / 2;
    }
    args->batch = BATCH_USUAL;
    if (args->sweep.count == 0 && most < BATCH_USUAL) {
        args->batch = most > 0 ? (size_t)most : 1;
    }
}

/* What no option can see alone. */
static int
check_together(const struct bench_table_args *args)
{
    const bool hot = args->dist.kind == BENCH_DIST_HOT;
    char why[512];
    rps_table_spec spec;

    if (args->dim_count > 1 && args->sweep.count == 0) {
        return bench_refuse(
                PROGRAM, "--dim", "a list", "one number, unless --size-sweep");
    }
    if ((args->sweep.count > 0) + args->memory + (args->mix_text != NULL) > 1) {
        return bench_refuse(PROGRAM, "--size-sweep, --memory, --mix",
                "two of them", "one at a time");
    }
    if (args->batch > args->rows / args->threads && args->sweep.count == 0) {
        return bench_refuse(PROGRAM, "--batch", "too large",
                "at most --rows / --threads: a push's keys are distinct");
    }
    if (args->sweep.count > 0 && args->dist.kind == BENCH_DIST_TRACE) {
        return bench_refuse(PROGRAM, "--dist", args->dist_text,
                "not with --size-sweep, which makes its keys");
    }
    if (hot && args->rows < 2 * args->batch + 16) {
        return bench_refuse(PROGRAM, "--batch", "too large",
                "at most (--rows - 16) / 2 with --dist hot:P");
    }
    if (hot && args->mix_text != NULL && args->threads > 1) {
        return bench_refuse(PROGRAM, "--mix", args->mix_text,
                "with --dist hot:P one thread only: else what the hot row "
                "must hold is not known");
    }
    for (size_t i = 0; i < args->dim_count; i++) {
        bench_table_spec(args, i, &spec);
        if (rps_table_spec_check(&spec, why, sizeof(why)) != RPS_OK) {
            return bench_refuse(PROGRAM, "the table", "its spec", why);
        }
    }
    return 0;
}

void
bench_table_spec(
        const struct bench_table_args *args, size_t which, rps_table_spec *spec)
{
    rps_table_spec_init(spec, "bench", args->dims[which], args->optimizer);
    spec->value_dtype = args->value;
    spec->seed = args->seed;
}

int
bench_table_args_read(struct bench_table_args *args, int argc, char **argv)
{
    static const struct option options[] = {
            {"rows", required_argument, NULL, 'r'},
            {"dim", required_argument, NULL, 'd'},
            {"batch", required_argument, NULL, 'b'},
            {"dist", required_argument, NULL, 'D'},
            {"mix", required_argument, NULL, 'm'},
            {"threads", required_argument, NULL, 'T'},
            {"value-type", required_argument, NULL, 'V'},
            {"optimizer", required_argument, NULL, 'O'},
            {"seconds", required_argument, NULL, 's'},
            {"seed", required_argument, NULL, 'S'},
            {"peers", required_argument, NULL, 'p'},
            {"size-sweep", required_argument, NULL, 'z'},
            {"memory", no_argument, NULL, 'M'},
            {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'},
            {NULL, 0, NULL, 0}};
    int option = 0;

    *args = (struct bench_table_args){.rows = 1000000,
            .dims = {16},
            .dim_count = 1,
            .dist_text = "uniform",
            .threads = 1,
            .value = RPS_VALUE_F32,
            .optimizer = RPS_OPTIMIZER_ADAGRAD,
            .seconds = 2,
            .seed = 1,
            .peers = true};
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        const int code = set_option(args, option, optarg);
        if (code != 0) {
            return code;
        }
    }
    if (optind < argc) {
        return bench_refuse(PROGRAM, "argument", argv[optind], "none is taken");
    }
    choose_batch(args);
    return check_together(args);
}
