/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint written anew as a full one, whatever it stands on: with
 * another number of parts, values of another type, or more tables. Without
 * the last two its content digest stays the same.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_REWRITE_H
#define RPS_EMBEDDING_CHECKPOINT_REWRITE_H

#include "embedding/checkpoint/chain.h"

struct rps_ckpt_compose;

struct rps_ckpt_rewrite {
    struct rps_ckpt_chain *chain; /* every part of every link is here */
    const char *dir;              /* where ckpt-<step> will stand */
    uint32_t parts;               /* 0: as many as the last link has */
    bool replace;                 /* what stands there */
    size_t memory_bytes;          /* 0: some 512 MiB */
    /** Another spec for a table: only value_dtype may change; NULL: none. */
    void (*respec)(void *context, rps_table_spec *spec);
    /** Writes more tables (compose.h); NULL: none. */
    rps_status (*more)(void *context, struct rps_ckpt_compose *compose,
            struct rps_error *error);
    /** More fields of the manifest; NULL: none. */
    const json_t *fields;
    void (*progress)(void *context, uint64_t done, uint64_t total); /* NULL */
    void *context;
};

/**
 * Write it beside, read it again, compare the digests, give it its name.
 * Errors: those of the readers, of rps_ckpt_compose_install(), NONFINITE (a
 * value that the new type cannot hold), INVAL. OK with words in *error: done,
 * but what was replaced could not be removed.
 */
rps_status rps_ckpt_rewrite(const struct rps_ckpt_rewrite *how,
        struct rps_digest *digest_out, struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_REWRITE_H */
