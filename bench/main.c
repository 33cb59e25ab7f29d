/* SPDX-License-Identifier: Apache-2.0 */
/* recps-bench: which benchmark. */
#include "bench/allreduce/main.h"

#include "bench/checkpoint/main.h"
#include "bench/net/main.h"
#include "bench/npu/main.h"
#include "bench/table/main.h"

#include <recps/types.h>

#include <stdio.h>
#include <string.h>
#include <sysexits.h>

static const char usage[] =
        "usage: recps-bench net [OPTION...]\n"
        "       recps-bench table [OPTION...]\n"
        "       recps-bench checkpoint [OPTION...]\n"
        "       recps-bench allreduce [OPTION...]\n"
        "       recps-bench npu [OPTION...]\n"
        "\n"
        "Benchmarks that check what is answered: a wrong answer is exit code "
        "1.\n"
        "\n"
        "  net        a client and a server over a transport, beside bare "
        "messages\n"
        "             over it, the table in process, Redis and memcached\n"
        "  table      the table engine alone, in process, beside bare memory "
        "and\n"
        "             other hash tables\n"
        "  checkpoint saving and restoring a table, beside the bare disk\n"
        "  allreduce  bytes that each rank of an allreduce really sends\n"
        "  npu        launches, copies and loops of the simulated NPU\n"
        "\n"
        "  --help, --version\n"
        "\n"
        "Each has its own options: recps-bench net --help.\n";

int
main(int argc, char **argv)
{
    static char net_name[] = "recps-bench net";
    static char table_name[] = "recps-bench table";
    static char checkpoint_name[] = "recps-bench checkpoint";
    static char allreduce_name[] = "recps-bench allreduce";
    static char npu_name[] = "recps-bench npu";
    const char *word = argc > 1 ? argv[1] : "";

    if (strcmp(word, "net") == 0) {
        argv[1] = net_name; /* what getopt's messages start with */
        return bench_net_main(argc - 1, argv + 1);
    }
    if (strcmp(word, "table") == 0) {
        argv[1] = table_name;
        return bench_table_main(argc - 1, argv + 1);
    }
    if (strcmp(word, "checkpoint") == 0) {
        argv[1] = checkpoint_name;
        return bench_checkpoint_main(argc - 1, argv + 1);
    }
    if (strcmp(word, "allreduce") == 0) {
        argv[1] = allreduce_name;
        return bench_allreduce_main(argc - 1, argv + 1);
    }
    if (strcmp(word, "npu") == 0) {
        argv[1] = npu_name;
        return bench_npu_main(argc - 1, argv + 1);
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        fputs(usage, stdout);
        return EX_OK;
    }
    if (strcmp(word, "--version") == 0) {
        puts("recps-bench " RPS_VERSION);
        return EX_OK;
    }
    if (word[0] != '\0') {
        fprintf(stderr,
                "recps-bench: benchmark: \"%s\": must be net, table, "
                "checkpoint, allreduce or npu\n",
                word);
    }
    fputs("recps-bench: see recps-bench --help\n", stderr);
    return EX_USAGE;
}
