/* SPDX-License-Identifier: Apache-2.0 */
/* The files of one table, out of a cut. */
#ifndef RPS_EMBEDDING_CHECKPOINT_SAVE_H
#define RPS_EMBEDDING_CHECKPOINT_SAVE_H

#include "embedding/checkpoint/checkpoint.h"

/** One PREPARE. */
struct rps_ckpt_save {
    const struct rps_checkpoint_id *id;
    const char *folder;
    struct rps_cut *cut;
    bool is_delta;
    const struct rps_cut_aside *aside;
    json_t *part; /* "tables" and "files" are added to */
    struct rps_error *error;
};

/** What a table's part comes to. */
struct rps_ckpt_saved {
    bool changed_only; /* a delta has its changed rows, else all */
    uint64_t rows;
    uint64_t erased;
    uint64_t admission;
    struct rps_digest digest;
};

/**
 * Before any row is written, of all tables: which rows it will be. Makes the
 * table's folder and writes the counts of keys without a row.
 */
rps_status rps_ckpt_save_begin(const struct rps_ckpt_save *save, size_t table,
        struct rps_ckpt_saved *saved);

/** Write rows and erased keys, and list all that was written. */
rps_status rps_ckpt_save_table(const struct rps_ckpt_save *save, size_t table,
        struct rps_ckpt_saved *saved);

/* save_lists.c: files of a table that are there only where they have entries;
 * each is written and listed. Errors: IO, NOMEM, WRONG_ROUTE (an entry that
 * is not this PS's). */

/** Counts of keys without a row (admission.h). */
rps_status rps_ckpt_admission_save(
        const struct rps_ckpt_save *save, size_t table, uint64_t *entries_out);
/** Erased keys (erased.h); adds their terms to *digest. */
rps_status rps_ckpt_erased_save(const struct rps_ckpt_save *save, size_t table,
        uint64_t *entries_out, struct rps_digest *digest);

#endif /* RPS_EMBEDDING_CHECKPOINT_SAVE_H */
