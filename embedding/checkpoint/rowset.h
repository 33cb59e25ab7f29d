/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a checkpoint's table in memory, found by key. */
#ifndef RPS_EMBEDDING_CHECKPOINT_ROWSET_H
#define RPS_EMBEDDING_CHECKPOINT_ROWSET_H

#include "embedding/checkpoint/scan.h"

/** Zeroed with the widths set it is empty. */
struct rps_rowset {
    size_t value_bytes;
    size_t slot_floats;
    size_t count;
    size_t room;
    uint64_t *keys;
    char *values; /* [room][value_bytes] */
    float *slots; /* [room][slot_floats] */
    uint32_t *meta;
    bool *seen;       /* the user's */
    uint32_t *places; /* hash table: row + 1, 0: free */
    size_t mask;      /* places - 1; count <= places / 2 */
};

#define RPS_ROWSET_MAX (UINT32_MAX / 2)

/** Bytes that a row takes, about. */
size_t rps_rowset_bytes(size_t value_bytes, size_t slot_floats);

/** Every row of a batch: their keys are new. false: no memory. */
bool rps_rowset_add(
        struct rps_rowset *rows, const struct rps_ckpt_batch *batch);

/** Its row, or SIZE_MAX. */
size_t rps_rowset_find(const struct rps_rowset *rows, uint64_t key);

void rps_rowset_clear(struct rps_rowset *rows);
void rps_rowset_finish(struct rps_rowset *rows);

#endif /* RPS_EMBEDDING_CHECKPOINT_ROWSET_H */
