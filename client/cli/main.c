/* SPDX-License-Identifier: Apache-2.0 */
/* recps: the operator's tool. */
#include "client/cli/args.h"
#include "client/cli/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
print_help(FILE *stream)
{
    fprintf(stream, "usage: recps COMMAND [OPTION]...\n\n"
                    "Run a job, or look at one. The cluster is TF_CONFIG, "
                    "TF_CONFIG_FILE or\n--ps-hosts.\n\n");
    for (size_t i = 0; i < rps_tool_count; i++) {
        fprintf(stream, "  %-10s %s\n", rps_tools[i]->name,
                rps_tools[i]->summary);
    }
    fprintf(stream, "\n`recps COMMAND --help` lists a command's options.\n");
}

/* in: "", or the command whose part is not known. */
static int
unknown(const char *in, const char *word, const char *near, bool json)
{
    if (near != NULL) {
        rps_tool_fail(
                0, in, "no command \"%s\"; did you mean \"%s\"?", word, near);
    } else {
        rps_tool_fail(0, in, "no command \"%s\" (see recps %s%s--help)", word,
                in, in[0] != '\0' ? " " : "");
    }
    if (json) {
        rps_tool_print_failure(RPS_TOOL_USAGE, NULL);
    }
    return RPS_TOOL_USAGE;
}

/* Where the subcommand stands; 0: there is none. */
static int
find_command(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-') {
            return i;
        }
        if (rps_args_takes_value(argv[i])) {
            i++;
        }
    }
    return 0;
}

/* A tool, or the part of it that the next word names. */
static int
run_part(const struct rps_tool *tool, int argc, char **argv)
{
    const int at = tool->parts != NULL ? find_command(argc, argv) : 0;
    const char *near = NULL;
    const struct rps_tool *part;

    if (at == 0) {
        return rps_tool_run(tool, argc, argv);
    }
    part = rps_tool_find(
            tool->parts, rps_tool_part_count(tool), argv[at], &near);
    if (part == NULL) {
        return unknown(
                tool->name, argv[at], near, rps_tool_wants_json(argc, argv));
    }
    memmove(&argv[at], &argv[at + 1], (size_t)(argc - at) * sizeof(*argv));
    return rps_tool_run(part, argc - 1, argv);
}

static int
run(int argc, char **argv)
{
    int at = find_command(argc, argv);
    const struct rps_tool *tool;
    const char *near = NULL;

    if (at == 0) {
        for (int i = 1; i < argc; i++) {
            if (strcmp(argv[i], "--version") == 0) {
                printf("recps %s\n", RPS_VERSION);
                return RPS_TOOL_OK;
            }
            if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
                print_help(stdout);
                return RPS_TOOL_OK;
            }
        }
        print_help(stderr);
        if (rps_tool_wants_json(argc, argv)) {
            rps_tool_print_failure(RPS_TOOL_USAGE, "give a command");
        }
        return RPS_TOOL_USAGE;
    }
    tool = rps_tool_find(rps_tools, rps_tool_count, argv[at], &near);
    if (tool == NULL) {
        return unknown("", argv[at], near, rps_tool_wants_json(argc, argv));
    }
    memmove(&argv[at], &argv[at + 1], (size_t)(argc - at) * sizeof(*argv));
    return run_part(tool, argc - 1, argv);
}

int
main(int argc, char **argv)
{
    return rps_tool_end(run(argc, argv));
}
