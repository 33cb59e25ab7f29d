/* SPDX-License-Identifier: Apache-2.0 */
/* What compose.c and compose_table.c share. */
#ifndef RPS_EMBEDDING_CHECKPOINT_COMPOSE_IMPL_H
#define RPS_EMBEDDING_CHECKPOINT_COMPOSE_IMPL_H

#include "embedding/checkpoint/beside.h"
#include "embedding/checkpoint/compose.h"

struct rps_ckpt_compose {
    struct rps_ckpt_beside beside;
    uint64_t job_seed;
    uint32_t parts;
    size_t memory_bytes;
    json_t *manifest;
    json_t **part; /* [parts]: what their files will hold */
    bool *lanes;   /* [parts]: written */
    struct rps_digest digest;
};

#endif /* RPS_EMBEDDING_CHECKPOINT_COMPOSE_IMPL_H */
