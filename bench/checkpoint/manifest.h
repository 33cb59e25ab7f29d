/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest of a checkpoint of one part and one table. */
#ifndef RPS_BENCH_CHECKPOINT_MANIFEST_H
#define RPS_BENCH_CHECKPOINT_MANIFEST_H

#include "base/digest.h"
#include "base/error.h"

#include <jansson.h>
#include <stdint.h>

/** What a delta stands on. */
struct bench_parent {
    uint64_t step; /* 0: none, the checkpoint is a full one */
    char digest[RPS_DIGEST_HEX_BYTES];
};

/**
 * answer: what PREPARE answered. *text_out: free(); `self`: what a delta on
 * this one stands on. Errors: NOMEM.
 */
rps_status bench_manifest_make(uint64_t step, const json_t *answer,
        const struct bench_parent *parent, char **text_out,
        struct bench_parent *self, struct rps_error *error);

#endif /* RPS_BENCH_CHECKPOINT_MANIFEST_H */
