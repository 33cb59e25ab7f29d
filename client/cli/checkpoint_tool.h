/* SPDX-License-Identifier: Apache-2.0 */
/* What the tools have in common that work on checkpoints, without a job. */
#ifndef RPS_CLIENT_CLI_CHECKPOINT_TOOL_H
#define RPS_CLIENT_CLI_CHECKPOINT_TOOL_H

#include "client/cli/tool.h"
#include "embedding/checkpoint/chain.h"

/** Bytes done, on a terminal only; zeroed it has shown nothing. */
struct rps_checkpoint_progress {
    uint64_t shown_ms;
    bool shown;
    bool is_terminal;
};

void rps_checkpoint_progress_begin(struct rps_checkpoint_progress *progress);
/** `context` is the progress. */
void rps_checkpoint_progress_show(void *context, uint64_t done, uint64_t total);
void rps_checkpoint_progress_end(struct rps_checkpoint_progress *progress);

/** The status's exit code and the words of *error: what a checkpoint lacks or
 * is not what its child was made on is damage (65). */
int rps_checkpoint_fail(
        const char *tool, rps_status status, const struct rps_error *error);

/**
 * The checkpoint at `path` (a ckpt-STEP folder, or a checkpoint_dir: its
 * newest step that was not abandoned) with all that it stands on and all of
 * their parts. Returns an exit code; what is wrong has been said, and the
 * chain is closed.
 */
int rps_checkpoint_open(
        const char *tool, const char *path, struct rps_ckpt_chain *chain);

/** The folder that a path means, as above; free(). */
int rps_checkpoint_find(const char *tool, const char *path, char **folder_out);

/** --memory of `flag`: bytes, 0 where it is not given. */
int rps_checkpoint_memory(
        const char *tool, const struct rps_tool_flag *flag, size_t *bytes_out);

#define RPS_MEMORY_FLAG                                                    \
    {                                                                      \
        .name = "memory", .argument = "SIZE",                              \
        .help = "use about so much memory (256m) for rows and keys; what " \
                "does not fit is done in several passes"                   \
    }

#endif /* RPS_CLIENT_CLI_CHECKPOINT_TOOL_H */
