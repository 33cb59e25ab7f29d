/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recps precision ckpt: precision_ckpt.c finds and compares the checkpoints,
 * precision_ckpt_answer.c says what came out.
 */
#ifndef RPS_CLIENT_CLI_PRECISION_CKPT_H
#define RPS_CLIENT_CLI_PRECISION_CKPT_H

#include "client/cli/checkpoint_tool.h"
#include "client/precision/variables.h"

#define RPS_CKPT_COS_DEFAULT 0.98

/** What is asked for, and what has been compared. */
struct rps_ckpt_asked {
    const char *paths[2];
    struct rps_variables_options options;
    bool first;       /* the first of all steps that both have */
    const char *csv;  /* file; NULL: none */
    const char *html; /* likewise */
    bool json;
    /* of what was compared */
    char *folders[2]; /* owned */
    uint64_t steps[2];
    uint64_t compared; /* pairs of checkpoints, this one with them */
    bool damaged;      /* something of one could not be read, and was named */
    /* the newest step before it of which both have a checkpoint */
    bool has_before;
    uint64_t before;
    struct rps_variables variables;
    struct rps_checkpoint_progress progress;
};

/** Is a variable below, or a row of one? */
static inline bool
rps_ckpt_shows(const struct rps_variables *variables)
{
    return variables->below > 0 || variables->with_rows_below > 0;
}

/** Say it, and write the files. Returns an exit code. */
int rps_ckpt_answer(const struct rps_ckpt_asked *asked);

#endif /* RPS_CLIENT_CLI_PRECISION_CKPT_H */
