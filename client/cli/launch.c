/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/launch.h"

#include "client/cli/tool.h"

#include <inttypes.h>
#include <string.h>

#define RESTARTS_MAX 10u

static const char usage[] =
        "usage: recps launch --ps N --workers M [--chief] [--evaluator] "
        "[--mpi]\n"
        "                    [--restart on-failure [--max-restarts N]]\n"
        "                    [OPTION]... -- COMMAND [ARGUMENT]...\n"
        "\n"
        "Start N recpsd on free loopback ports, and COMMAND once for each\n"
        "worker, the chief and the evaluator, each with its TF_CONFIG. Their\n"
        "output is labelled and merged; everything is stopped at the end; the\n"
        "exit code is that of the first failure. With --on-lost=leave the\n"
        "end of a worker that is not the chief is said and is no failure.\n"
        "\n"
        "Options of the job and of recpsd go to every process through the\n"
        "\"recps\" object of its TF_CONFIG. TERM or INT lets the chief save "
        "and\n"
        "end the job; a second one kills everything.\n"
        "\n"
        "With --mpi the workers are the ranks of one mpirun (Open MPI), which "
        "ends\n"
        "all of them when one is lost; recps-train --dense allreduce needs "
        "that.\n"
        "\n"
        "With --restart=on-failure a process that fails is started again, "
        "after\n"
        "0.1 s and each time longer, up to 5 s; the job goes back to its "
        "newest\n"
        "checkpoint and on from there (\"recover\" of its TF_CONFIG). What a\n"
        "restart cannot help (a wrong option, damaged data: 64 to 66, 77, 78)"
        "\n"
        "ends the job at once.\n";

enum {
    FLAG_PS,
    FLAG_WORKERS,
    FLAG_CHIEF,
    FLAG_EVALUATOR,
    FLAG_MPI,
    FLAG_RESTART,
    FLAG_MAX_RESTARTS
};

static struct rps_tool_flag flags[] = {
        [FLAG_PS] = {.name = "ps",
                .argument = "N",
                .help = "parameter servers (1); 0: tables inside the worker"},
        [FLAG_WORKERS] = {.name = "workers",
                .argument = "M",
                .help = "workers (1)"},
        [FLAG_CHIEF] = {.name = "chief",
                .help = "a chief beside them, which trains, too"},
        [FLAG_EVALUATOR] = {.name = "evaluator",
                .help = "an evaluator, waited for 60 s at most at the end"},
        [FLAG_MPI] = {.name = "mpi",
                .help = "the workers under one mpirun, for --dense allreduce"},
        [FLAG_RESTART] = {.name = "restart",
                .argument = "WHEN",
                .help = "never (the default), or on-failure"},
        [FLAG_MAX_RESTARTS] = {.name = "max-restarts",
                .argument = "N",
                .help = "of one process in 10 minutes (10)"},
        {.name = NULL},
};

static bool
count_of(const struct rps_tool_flag *flag, uint32_t max, uint32_t *out)
{
    uint64_t number = 0;

    if (flag->value == NULL) {
        *out = 1;
        return true;
    }
    if (!rps_parse_u64(flag->value, &number) || number > max) {
        rps_tool_fail(0, "launch", "--%s %s: must be a number of 0..%" PRIu32,
                flag->name, flag->value, max);
        return false;
    }
    *out = (uint32_t)number;
    return true;
}

/* Combinations that no job has; false: said why. */
static bool
check(const struct rps_launch *launch)
{
    const char *why = NULL;

    if (launch->command == NULL || launch->command[0] == NULL) {
        why = "give the command after \"--\": recps launch --ps 2 "
              "--workers 2 -- recps-train …";
    } else if (launch->worker_count == 0 && !launch->chief) {
        why = "--workers 0 needs --chief: somebody must train";
    } else if (launch->ps_count == 0 &&
               (launch->worker_count != 1 || launch->chief ||
                       launch->evaluator)) {
        why = "--ps 0 keeps the tables inside the one worker: it goes with "
              "--workers 1, without --chief and --evaluator";
    } else if (launch->evaluator &&
               (launch->options->checkpoint_dir == NULL ||
                       launch->options->checkpoint_dir[0] == '\0')) {
        why = "--evaluator needs --checkpoint-dir: it evaluates checkpoints";
    }
    if (why != NULL) {
        rps_tool_fail(0, "launch", "%s", why);
    }
    return why == NULL;
}

/* false: said why. */
static bool
read_restart(struct rps_launch *launch)
{
    const char *when = flags[FLAG_RESTART].value;
    const bool counted = flags[FLAG_MAX_RESTARTS].value != NULL;

    launch->restart = when != NULL && strcmp(when, "on-failure") == 0;
    if (when != NULL && !launch->restart && strcmp(when, "never") != 0) {
        rps_tool_fail(
                0, "launch", "--restart %s: must be never or on-failure", when);
        return false;
    }
    if (counted && !launch->restart) {
        rps_tool_fail(
                0, "launch", "--max-restarts goes with --restart=on-failure");
        return false;
    }
    launch->restarts_max = RESTARTS_MAX;
    if (counted && (!count_of(&flags[FLAG_MAX_RESTARTS],
                            RPS_LAUNCH_RESTARTS_MAX, &launch->restarts_max) ||
                           launch->restarts_max == 0)) {
        if (launch->restarts_max == 0) {
            rps_tool_fail(0, "launch",
                    "--max-restarts 0: for none give --restart=never");
        }
        return false;
    }
    return true;
}

static int
run(const struct rps_tool_call *call)
{
    struct rps_launch launch = {.options = call->options,
            .command = call->command,
            .chief = flags[FLAG_CHIEF].value != NULL,
            .evaluator = flags[FLAG_EVALUATOR].value != NULL,
            .mpi = flags[FLAG_MPI].value != NULL};
    struct rps_launch_plan plan;
    int code;

    if (!count_of(&flags[FLAG_PS], RPS_LAUNCH_PS_MAX, &launch.ps_count) ||
            !count_of(&flags[FLAG_WORKERS], RPS_LAUNCH_WORKERS_MAX,
                    &launch.worker_count) ||
            !read_restart(&launch) || !check(&launch)) {
        return RPS_TOOL_USAGE;
    }
    memset(&plan, 0, sizeof(plan));
    code = rps_launch_plan_make(&plan, &launch);
    if (code == RPS_TOOL_OK) {
        code = rps_launch_run(&plan);
    }
    rps_launch_plan_finish(&plan);
    return code;
}

const struct rps_tool rps_tool_launch = {
        .name = "launch",
        .usage = usage,
        .summary = "start servers and workers on this machine, and watch them",
        .flags = flags,
        .scope = RPS_SCOPE_LAUNCH,
        .runs_command = true,
        .makes_cluster = true,
        .run = run,
};
