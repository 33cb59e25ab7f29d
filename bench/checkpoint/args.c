/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/checkpoint/args.h"

#include "base/spec.h"
#include "base/text.h"
#include "bench/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#define PROGRAM "recps-bench checkpoint"

static const char usage[] =
        "usage: recps-bench checkpoint [OPTION...]\n"
        "\n"
        "Times saving and restoring a table in process, beside the disk: "
        "O_DIRECT in\n"
        "blocks of 4 MiB, two in flight, as many bytes, in turns. Then pushes "
        "and\n"
        "lookups at half of their peak rate, without a save and beside one. "
        "Every\n"
        "restore must have the digest of what was saved: else exit code 1.\n"
        "bench/README.md says what each figure means.\n"
        "\n"
        "  --rows N          rows of the table (default 1000000)\n"
        "  --dim D           values a row (default 16)\n"
        "  --optimizer O     adagrad (default), sgd, adam, ...\n"
        "  --value-type V    f32 (default), f16 or bf16\n"
        "  --dir DIR         a folder on the disk to measure (default "
        "/var/tmp)\n"
        "  --rounds N        of each side, the median counts (default 3)\n"
        "  --batch B         keys a push, and a lookup (default 1024)\n"
        "  --seconds S       with traffic, of each part (default 2); 0: "
        "none\n"
        "  --save-buffer N   bytes of rows that change while they are saved\n"
        "                    (default 268435456)\n"
        "  --seed N          of the draws (default 1)\n"
        "  --json            one JSON object on stdout and nothing else\n"
        "  --help\n";

static int
set_seconds(struct bench_checkpoint_args *args, const char *text)
{
    if (strcmp(text, "0") == 0) {
        args->seconds = 0;
        return 0;
    }
    return bench_set_seconds(PROGRAM, text, &args->seconds);
}

static int
set_option(struct bench_checkpoint_args *args, int option, const char *value)
{
    uint64_t number = 0;
    int code = 0;

    switch (option) {
    case 'r':
        return bench_set_number(
                PROGRAM, &args->rows, "--rows", value, BENCH_ROWS_MAX);
    case 'd':
        code = bench_set_number(PROGRAM, &number, "--dim", value, RPS_DIM_MAX);
        args->spec.dim = (uint32_t)number;
        return code;
    case 'O':
        return bench_set_optimizer(PROGRAM, value, &args->spec.optimizer);
    case 'V':
        return bench_set_value(PROGRAM, value, &args->spec.value_dtype);
    case 'f':
        args->dir = value;
        return 0;
    case 'n':
        return bench_set_number(PROGRAM, &args->rounds, "--rounds", value,
                BENCH_CHECKPOINT_ROUNDS_MAX);
    case 'b':
        code = bench_set_number(
                PROGRAM, &number, "--batch", value, BENCH_BATCH_MAX);
        args->batch = number;
        return code;
    case 's':
        return set_seconds(args, value);
    case 'B':
        return bench_set_number(PROGRAM, &args->save_buffer, "--save-buffer",
                value, UINT64_MAX / 2);
    case 'S':
        return bench_set_seed(PROGRAM, value, &args->seed);
    case 'j':
        args->json = true;
        return 0;
    case 'h':
        fputs(usage, stdout);
        exit(EX_OK);
    default:
        fputs("recps-bench checkpoint: see recps-bench checkpoint --help\n",
                stderr);
        return EX_USAGE;
    }
}

/* The optimizer's own defaults, once it is known. */
static int
finish_spec(struct bench_checkpoint_args *args)
{
    const rps_table_spec asked = args->spec;
    char why[512];

    rps_table_spec_init(&args->spec, "bench", asked.dim, asked.optimizer);
    args->spec.value_dtype = asked.value_dtype;
    args->spec.seed = args->seed;
    return rps_table_spec_check(&args->spec, why, sizeof(why)) == RPS_OK
                   ? 0
                   : bench_refuse(PROGRAM, "the table", "its spec", why);
}

int
bench_checkpoint_args_read(
        struct bench_checkpoint_args *args, int argc, char **argv)
{
    static const struct option options[] = {
            {"rows", required_argument, NULL, 'r'},
            {"dim", required_argument, NULL, 'd'},
            {"optimizer", required_argument, NULL, 'O'},
            {"value-type", required_argument, NULL, 'V'},
            {"dir", required_argument, NULL, 'f'},
            {"rounds", required_argument, NULL, 'n'},
            {"batch", required_argument, NULL, 'b'},
            {"seconds", required_argument, NULL, 's'},
            {"save-buffer", required_argument, NULL, 'B'},
            {"seed", required_argument, NULL, 'S'},
            {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'},
            {NULL, 0, NULL, 0}};
    int option = 0;

    *args = (struct bench_checkpoint_args){.rows = 1000000,
            .dir = "/var/tmp",
            .rounds = 3,
            .batch = 1024,
            .seconds = 2,
            .save_buffer = 256u << 20,
            .seed = 1};
    args->spec.dim = 16;
    args->spec.optimizer = RPS_OPTIMIZER_ADAGRAD;
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        const int code = set_option(args, option, optarg);
        if (code != 0) {
            return code;
        }
    }
    if (optind < argc) {
        return bench_refuse(PROGRAM, "argument", argv[optind], "none is taken");
    }
    if (args->batch > args->rows) {
        args->batch = (size_t)args->rows; /* keys of a push are distinct */
    }
    return finish_spec(args);
}
