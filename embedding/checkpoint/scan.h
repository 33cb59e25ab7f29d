/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of one table in one part, in batches: what restore and verify
 * have in common.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_SCAN_H
#define RPS_EMBEDDING_CHECKPOINT_SCAN_H

#include "embedding/checkpoint/checkpoint.h"
#include "embedding/checkpoint/manifest.h"

/** Arrays belong to the scan; the callback may reorder them in place. */
struct rps_ckpt_batch {
    size_t n;
    uint64_t *keys;
    char *values;       /* [n][value_bytes], of the spec's value_dtype */
    float *slots;       /* [n][slot floats] */
    uint32_t *meta;     /* [n] last | uses << 24 */
    uint64_t *hashes;   /* [n] of the keys */
    size_t value_bytes; /* of one row */
    size_t file_bytes;  /* of the files, that these rows took */
};

struct rps_ckpt_scan {
    const struct rps_ckpt_folder *folder;
    const struct rps_ckpt_part *part;
    const struct rps_ckpt_table *table; /* as this part says it */
    uint64_t job_seed;
    rps_status (*batch)(void *context, struct rps_ckpt_batch *batch,
            struct rps_error *error);
    void *context;
    /** Threads that call it, side by side and in no order; 0: the one that
     * scans calls it, in the order of the rows. */
    uint32_t workers;
};

/**
 * Read every file of the table's part side by side, check shapes, types,
 * checksums, and that each key belongs to the part's slots. What has failed
 * at its end may have given the callback rows before. Errors: CORRUPT,
 * IO, NOMEM, or the callback's.
 */
rps_status rps_ckpt_scan_table(
        const struct rps_ckpt_scan *scan, struct rps_error *error);

/** lanes-<i>-of-<n>.npy; *lanes_out is free()d by the caller. */
rps_status rps_ckpt_scan_lanes(const struct rps_ckpt_folder *folder,
        const struct rps_ckpt_part *part, struct rps_lane_record **lanes_out,
        size_t *count_out, struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_SCAN_H */
