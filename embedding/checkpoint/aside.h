/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that were kept and are in the way: a file beside the checkpoint that
 * is being written, which no name leads to and no crash leaves behind.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_ASIDE_H
#define RPS_EMBEDDING_CHECKPOINT_ASIDE_H

#include "embedding/cut.h"

struct rps_ckpt_aside {
    const char *folder; /* where the file is; borrowed */
    struct rps_error *error;
    int fd; /* -1: none was needed yet */
    uint64_t end;
};

void rps_ckpt_aside_init(struct rps_ckpt_aside *aside, const char *folder,
        struct rps_error *error);
void rps_ckpt_aside_finish(struct rps_ckpt_aside *aside);

/** For rps_cut_visit(). Errors: IO naming the folder. */
struct rps_cut_aside rps_ckpt_aside_of(struct rps_ckpt_aside *aside);

#endif /* RPS_EMBEDDING_CHECKPOINT_ASIDE_H */
