/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A new, full checkpoint made by a tool, without tables in memory: of any
 * number of parts, from rows that come in any order (beside.h: where).
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_COMPOSE_H
#define RPS_EMBEDDING_CHECKPOINT_COMPOSE_H

#include "embedding/checkpoint/admission.h"
#include "embedding/checkpoint/checkpoint.h"
#include "embedding/checkpoint/keys.h"

/** Where the rows of one table come from. A range of slots may be asked for
 * more than once; rows outside it may not come. */
struct rps_ckpt_source {
    void *context;
    /** The keys of all rows in slots first..last: to number them. */
    rps_status (*keys)(void *context, uint32_t first, uint32_t last,
            rps_status (*take)(void *taker, struct rps_ckpt_keys *keys,
                    struct rps_error *error),
            void *taker, struct rps_error *error);
    /** The rows themselves: values of the new spec's type. */
    rps_status (*rows)(void *context, uint32_t first, uint32_t last,
            rps_status (*take)(void *taker, struct rps_ckpt_batch *batch,
                    struct rps_error *error),
            void *taker, struct rps_error *error);
    /** Counts of keys without a row; NULL: there are none. */
    rps_status (*counts)(void *context, uint32_t first, uint32_t last,
            rps_status (*take)(void *taker, struct rps_ckpt_counts *counts,
                    struct rps_error *error),
            void *taker, struct rps_error *error);
    /** A new part's count of pushes; NULL: 0. */
    uint64_t (*pushes)(void *context, uint32_t part, uint32_t parts);
};

/** What the new checkpoint is. */
struct rps_ckpt_new {
    const char *dir; /* made if it is not there */
    uint64_t step;
    uint32_t epoch;
    uint32_t parts;
    uint64_t job_seed;
    /** A manifest whose other fields are taken over (job_id, data_position);
     * borrowed for the call. */
    const json_t *like;
    size_t memory_bytes; /* of files that are open at once; 0: 256 MiB */
};

struct rps_ckpt_compose;

/** Errors: INVAL, and those of rps_ckpt_beside_open(). */
rps_status rps_ckpt_compose_create(struct rps_ckpt_compose **compose_out,
        const struct rps_ckpt_new *what, struct rps_error *error);

/** Write a table. `spec` goes into the files as it is. Errors: IO, NOMEM,
 * NONFINITE, or the source's. After an error only destroy() is left. */
rps_status rps_ckpt_compose_table(struct rps_ckpt_compose *compose,
        const rps_table_spec *spec, const struct rps_ckpt_source *source,
        struct rps_error *error);

/** The verdicts of a part's lanes, after its tables; a part without a call
 * has none. */
rps_status rps_ckpt_compose_lanes(struct rps_ckpt_compose *compose,
        uint32_t part, const struct rps_lane_record *lanes, size_t count,
        struct rps_error *error);

/**
 * Part files and manifest, all fsynced: the folder `path` is whole, and has
 * not its name yet. `folded`: the digest of the delta that it replaces, or
 * NULL.
 */
rps_status rps_ckpt_compose_seal(struct rps_ckpt_compose *compose,
        const struct rps_digest *folded, struct rps_error *error);
const char *rps_ckpt_compose_path(const struct rps_ckpt_compose *compose);
struct rps_digest rps_ckpt_compose_digest(
        const struct rps_ckpt_compose *compose);

/** rps_ckpt_beside_install(). */
rps_status rps_ckpt_compose_install(struct rps_ckpt_compose *compose,
        bool replace, struct rps_error *error);

/** Removes what was not installed. NULL is allowed. */
void rps_ckpt_compose_destroy(struct rps_ckpt_compose *compose);

#endif /* RPS_EMBEDDING_CHECKPOINT_COMPOSE_H */
