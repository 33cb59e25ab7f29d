/* SPDX-License-Identifier: Apache-2.0 */
/* recps-bench: arguments, and which benchmark on which transport. */
#include "bench/table/main.h"

#include "base/text.h"
#include "bench/bench.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

static const char usage[] =
        "usage: recps-bench [lookup|push] [OPTION...]\n"
        "       recps-bench table [OPTION...]   (the engine alone; table "
        "--help)\n"
        "\n"
        "Times lookups or pushes (both without a word) of random rows, in\n"
        "process and over TCP to a recpsd that it starts, and checks every\n"
        "answer: a wrong one is exit code 1.\n"
        "\n"
        "  --rows N          rows of the table (default 1000000)\n"
        "  --dim N           floats a row (default 16)\n"
        "  --batch N         distinct keys a request (default 4096)\n"
        "  --seconds S       timed work of each benchmark (default 2)\n"
        "  --transport T     local, tcp or all (default all)\n"
        "  --json            one JSON object on stdout and nothing else\n"
        "  --help, --version\n";

struct plan {
    struct bench_args args;
    bool names[2];      /* lookup, push */
    bool transports[2]; /* local, tcp */
    bool json;
};

static int
refuse(const char *what, const char *value, const char *allowed)
{
    fprintf(stderr, "recps-bench: %s: \"%s\": %s\n", what, value, allowed);
    return EX_USAGE;
}

static int
set_number(uint64_t *out, const char *what, const char *text, uint64_t most)
{
    if (!rps_parse_u64(text, out) || *out == 0 || *out > most) {
        char allowed[64];
        snprintf(allowed, sizeof(allowed), "a whole number from 1 to %llu",
                (unsigned long long)most);
        return refuse(what, text, allowed);
    }
    return 0;
}

static int
set_transport(struct plan *plan, const char *name)
{
    const bool all = strcmp(name, "all") == 0;

    plan->transports[0] = all || strcmp(name, "local") == 0;
    plan->transports[1] = all || strcmp(name, "tcp") == 0;
    if (!plan->transports[0] && !plan->transports[1]) {
        return refuse("--transport", name, "must be local, tcp or all");
    }
    return 0;
}

static int
set_option(struct plan *plan, int option, const char *value)
{
    uint64_t number = 0;
    int code = 0;

    switch (option) {
    case 'r':
        return set_number(&plan->args.rows, "--rows", value, 1u << 30);
    case 'd':
        code = set_number(&number, "--dim", value, RPS_DIM_MAX);
        plan->args.dim = (uint32_t)number;
        return code;
    case 'b':
        code = set_number(&number, "--batch", value, 1u << 20);
        plan->args.batch = number;
        return code;
    case 's':
        if (!rps_parse_double(value, &plan->args.seconds) ||
                plan->args.seconds <= 0) {
            return refuse("--seconds", value, "a number above 0");
        }
        return 0;
    case 't':
        return set_transport(plan, value);
    case 'j':
        plan->json = true;
        return 0;
    case 'h':
        fputs(usage, stdout);
        exit(EX_OK);
    case 'v':
        puts("recps-bench " RPS_VERSION);
        exit(EX_OK);
    default:
        fputs("recps-bench: see recps-bench --help\n", stderr);
        return EX_USAGE;
    }
}

static int
read_args(struct plan *plan, int argc, char **argv)
{
    static const struct option options[] = {
            {"rows", required_argument, NULL, 'r'},
            {"dim", required_argument, NULL, 'd'},
            {"batch", required_argument, NULL, 'b'},
            {"seconds", required_argument, NULL, 's'},
            {"transport", required_argument, NULL, 't'},
            {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'},
            {"version", no_argument, NULL, 'v'}, {NULL, 0, NULL, 0}};
    int option = 0;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        const int code = set_option(plan, option, optarg);
        if (code != 0) {
            return code;
        }
    }
    for (int i = optind; i < argc; i++) {
        if (strcmp(argv[i], "lookup") != 0 && strcmp(argv[i], "push") != 0) {
            return refuse("benchmark", argv[i],
                    "must be lookup or push, or table as the first word");
        }
        plan->names[argv[i][0] == 'p'] = true;
    }
    if (optind == argc) {
        plan->names[0] = plan->names[1] = true;
    }
    if (plan->args.batch > plan->args.rows) {
        fputs("recps-bench: --batch must not exceed --rows (its keys are "
              "distinct)\n",
                stderr);
        return EX_USAGE;
    }
    return 0;
}

static rps_status
run_one(const struct plan *plan, int name, bool tcp,
        struct bench_result *result, struct rps_error *error)
{
    struct bench_args args = plan->args;
    struct bench_target target;
    rps_status status = RPS_OK;

    args.tcp = tcp;
    *result = (struct bench_result){.name = name == 0 ? "lookup" : "push",
            .transport = tcp ? "tcp" : "local"};
    status = bench_open(&target, &args, error);
    if (status == RPS_OK) {
        status = (name == 0 ? bench_lookup : bench_push)(
                &target, &args, result, error);
    }
    bench_close(&target);
    return status;
}

int
main(int argc, char **argv)
{
    struct plan plan = {
            .args = {.rows = 1000000,
                    .dim = 16,
                    .batch = 4096,
                    .seconds = 2,
                    .program = argv[0]},
            .transports = {true, true},
    };
    struct bench_result results[4];
    size_t count = 0;
    struct rps_error error = {.text = ""};
    rps_status status = RPS_OK;
    int code = 0;

    if (argc > 1 && strcmp(argv[1], "table") == 0) {
        static char name[] = "recps-bench table";
        argv[1] = name; /* what getopt's messages start with */
        return bench_table_main(argc - 1, argv + 1);
    }
    code = read_args(&plan, argc, argv);
    if (code != 0) {
        return code;
    }
    for (int i = 0; i < 4 && status == RPS_OK; i++) {
        const int name = i / 2;
        const bool tcp = i % 2 == 1;
        if (plan.names[name] && plan.transports[tcp]) {
            status = run_one(&plan, name, tcp, &results[count++], &error);
        }
    }
    if (status == RPS_OK) {
        bench_print(&plan.args, results, count, plan.json);
        if (fflush(stdout) != 0) {
            fprintf(stderr, "recps-bench: writing to stdout: %s\n",
                    strerror(errno));
            status = RPS_E_IO;
        }
    } else {
        fprintf(stderr, "recps-bench: %s\n", error.text);
    }
    for (size_t i = 0; i < count; i++) {
        free(results[i].samples);
    }
    return status == RPS_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
