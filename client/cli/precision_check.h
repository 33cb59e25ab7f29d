/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recps precision check-deterministic: precision_check.c runs the command,
 * precision_check_answer.c says what its runs have in common.
 */
#ifndef RPS_CLIENT_CLI_PRECISION_CHECK_H
#define RPS_CLIENT_CLI_PRECISION_CHECK_H

#include "client/cli/tool.h"
#include "client/precision/losses.h"

#define RPS_CHECK_TIMES_MAX         100u
#define RPS_CHECK_TOLERANCE_DEFAULT 0.001

enum rps_check_flag {
    RPS_CHECK_TIMES,
    RPS_CHECK_TOLERANCE,
    RPS_CHECK_EXACT,
    RPS_CHECK_KEEP,
    RPS_CHECK_OUTPUT
};

struct rps_check {
    size_t times;
    double tolerance;
    bool exact;       /* CLOSE is not enough */
    const char *keep; /* folder that stays; NULL: none */
    const char *csv;  /* file; NULL: none */
    bool json;
    char **command;
    char *folder;                                /* of the logs; owned */
    struct rps_losses runs[RPS_CHECK_TIMES_MAX]; /* [times] */
};

/** Compare the runs, and say what came out. Returns an exit code. */
int rps_check_answer(const struct rps_check *check);

#endif /* RPS_CLIENT_CLI_PRECISION_CHECK_H */
