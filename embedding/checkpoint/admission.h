/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table-<name>/<i>-of-<n>.admission.npy: what was pushed of keys without a
 * row. <u8 [entries, 2]: id, count; what an id is follows from the spec's
 * admission (embedding/table.h). There is no file where there is no entry.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_ADMISSION_H
#define RPS_EMBEDDING_CHECKPOINT_ADMISSION_H

#include "embedding/checkpoint/scan.h"

#define RPS_CKPT_ADMISSION_WORDS 2u /* id, count */

/** Arrays belong to the scan; the callback may reorder them in place. */
struct rps_ckpt_counts {
    size_t n;
    struct rps_admission_count *entries;
    uint32_t *slots;   /* of their keys, each one of the part's */
    size_t file_bytes; /* of the file, that these took */
};

/**
 * Read the file, if the table's part has entries: every one is checked.
 * `take` gets scan->context. Errors: CORRUPT, IO, NOMEM, or the callback's.
 */
rps_status rps_ckpt_admission_scan(const struct rps_ckpt_scan *scan,
        rps_status (*take)(void *context, struct rps_ckpt_counts *counts,
                struct rps_error *error),
        struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_ADMISSION_H */
