/* SPDX-License-Identifier: Apache-2.0 */
/* recps profile summary DIR, recps profile compare A B. */
#include "client/cli/profile.h"

#include "base/text.h"

#include <string.h>

#define TOP_DEFAULT 20u
#define TOP_MAX     65536u

static const char usage[] =
        "usage: recps profile summary DIR [--top N] [--json]\n"
        "       recps profile compare A B [--top N] [--json]\n"
        "\n"
        "What a step of recps-train --profile DIR is made of: its time, that\n"
        "of operators, copies, communication and scheduling, and of each of\n"
        "these what takes longest. compare says what takes another time in B\n"
        "than in A: the step, then the classes, then their parts. DIR, A and\n"
        "B are folders of a profile, of one rank of it, or traces; one may be\n"
        "a trace of PyTorch's profiler (export_chrome_trace).\n";

enum {
    FLAG_TOP
};

static struct rps_tool_flag flags[] = {
        [FLAG_TOP] = {.name = "top",
                .argument = "N",
                .help = "so many of each class at most (20)"},
        {.name = NULL},
};

static int
summary(const struct rps_tool_call *call, uint64_t top)
{
    struct rps_profile_side side = {.path = NULL};
    int code = rps_profile_load(&side, call->operands[1]);

    if (code == RPS_TOOL_OK) {
        code = rps_profile_summary(&side, top, call->options->json);
    }
    rps_profile_side_finish(&side);
    return code;
}

static int
compare(const struct rps_tool_call *call, uint64_t top)
{
    struct rps_profile_side a = {.path = NULL}, b = {.path = NULL};
    int code = rps_profile_load(&a, call->operands[1]);

    if (code == RPS_TOOL_OK) {
        code = rps_profile_load(&b, call->operands[2]);
    }
    if (code == RPS_TOOL_OK) {
        code = rps_profile_compare(&a, &b, top, call->options->json);
    }
    rps_profile_side_finish(&a);
    rps_profile_side_finish(&b);
    return code;
}

static int
run(const struct rps_tool_call *call)
{
    const char *text = call->flags[FLAG_TOP].value;
    const char *word = call->operand_count > 0 ? call->operands[0] : "";
    uint64_t top = TOP_DEFAULT;

    if (text != NULL &&
            (!rps_parse_u64(text, &top) || top == 0 || top > TOP_MAX)) {
        return rps_tool_fail(RPS_TOOL_USAGE, "profile",
                "--top %s: must be from 1 to %u", text, TOP_MAX);
    }
    if (strcmp(word, "summary") == 0) {
        return call->operand_count == 2
                       ? summary(call, top)
                       : rps_tool_fail(RPS_TOOL_USAGE, "profile",
                                 "summary takes one folder or file");
    }
    if (strcmp(word, "compare") == 0) {
        return call->operand_count == 3
                       ? compare(call, top)
                       : rps_tool_fail(RPS_TOOL_USAGE, "profile",
                                 "compare takes two folders or files");
    }
    return rps_tool_fail(RPS_TOOL_USAGE, "profile",
            "say what to do: summary DIR, or compare A B");
}

const struct rps_tool rps_tool_profile = {
        .name = "profile",
        .usage = usage,
        .summary = "what a step's time is made of; compare two profiles",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 3,
        .words = "summary|compare",
        .takes_folder = true,
        .run = run,
};
