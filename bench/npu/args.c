/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/npu/args.h"

#include "bench/options.h"

#include <recps/npu.h>

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#define PROGRAM "recps-bench npu"

static const char usage[] =
        "usage: recps-bench npu [OPTION...]\n"
        "\n"
        "Times a small model on the simulated NPU in three ways: input copied "
        "by the\n"
        "step's own thread, copied ahead by an input thread, and that in loops "
        "of many\n"
        "steps a launch; in turns, with and without simulated latencies, and "
        "beside\n"
        "what launches and copies take by themselves. Then with preprocessing "
        "times\n"
        "that vary. All ways must end with the same weights: else exit code "
        "1.\n"
        "bench/README.md says what each figure means.\n"
        "\n"
        "  --batch B             rows a step (default 128)\n"
        "  --width W             of the layers (default 64)\n"
        "  --steps N             of each run (default 320)\n"
        "  --loop N              steps a launch (default 32)\n"
        "  --rounds N            of each way, the median counts (default 5)\n"
        "  --launch-latency US   of each launch and copy (default 200)\n"
        "  --link-bandwidth B    bytes a second (default 8000000000); 0: as "
        "fast as the\n"
        "                        machine\n"
        "  --jitter-scale N      preprocessing is tried with a model N times "
        "as wide\n"
        "                        and as many rows (default 2)\n"
        "  --trace DIR           write a profile of each way: DIR/own, "
        "DIR/ahead,\n"
        "                        DIR/offload\n"
        "  --device N            which device (default 0)\n"
        "  --seed N              of the draws (default 1)\n"
        "  --json                one JSON object on stdout and nothing else\n"
        "  --help\n";

/* 0 means something here. */
static int
set_from_0(uint64_t *out, const char *what, const char *text, uint64_t most)
{
    if (strcmp(text, "0") == 0) {
        *out = 0;
        return 0;
    }
    return bench_set_number(PROGRAM, out, what, text, most);
}

static int
set_option(struct bench_npu_args *args, int option, const char *value)
{
    uint64_t number = 0;
    int code;

    switch (option) {
    case 'b':
        return bench_set_number(PROGRAM, &args->batch, "--batch", value, 65536);
    case 'w':
        return bench_set_number(PROGRAM, &args->width, "--width", value, 4096);
    case 'n':
        return bench_set_number(
                PROGRAM, &args->steps, "--steps", value, 1000000);
    case 'l':
        return bench_set_number(PROGRAM, &args->loop, "--loop", value, 4096);
    case 'r':
        return bench_set_number(PROGRAM, &args->rounds, "--rounds", value, 99);
    case 'L':
        code = set_from_0(&number, "--launch-latency", value, 1000000);
        args->launch_latency_ns = number * 1000;
        return code;
    case 'B':
        return set_from_0(&args->link_bytes_per_second, "--link-bandwidth",
                value, UINT64_MAX / 2);
    case 'J':
        return bench_set_number(
                PROGRAM, &args->jitter_scale, "--jitter-scale", value, 16);
    case 't':
        args->trace = value;
        return 0;
    case 'D':
        code = set_from_0(&number, "--device", value, RPS_NPU_DEVICES_MAX - 1);
        args->device = (uint32_t)number;
        return code;
    case 'S':
        return bench_set_seed(PROGRAM, value, &args->seed);
    case 'j':
        args->json = true;
        return 0;
    case 'h':
        fputs(usage, stdout);
        exit(EX_OK);
    default:
        fputs("recps-bench npu: see recps-bench npu --help\n", stderr);
        return EX_USAGE;
    }
}

int
bench_npu_args_read(struct bench_npu_args *args, int argc, char **argv)
{
    static const struct option options[] = {
            {"batch", required_argument, NULL, 'b'},
            {"width", required_argument, NULL, 'w'},
            {"steps", required_argument, NULL, 'n'},
            {"loop", required_argument, NULL, 'l'},
            {"rounds", required_argument, NULL, 'r'},
            {"launch-latency", required_argument, NULL, 'L'},
            {"link-bandwidth", required_argument, NULL, 'B'},
            {"jitter-scale", required_argument, NULL, 'J'},
            {"trace", required_argument, NULL, 't'},
            {"device", required_argument, NULL, 'D'},
            {"seed", required_argument, NULL, 'S'},
            {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'},
            {NULL, 0, NULL, 0}};
    int option = 0;

    *args = (struct bench_npu_args){.batch = 128,
            .width = 64,
            .steps = 320,
            .loop = 32,
            .rounds = 5,
            .launch_latency_ns = 200000,
            .link_bytes_per_second = 8000000000u,
            .jitter_scale = 2,
            .seed = 1};
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
