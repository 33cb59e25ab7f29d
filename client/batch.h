/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lookup and push share: a table's keys as the caller gave them, with
 * or without bags, checked; and the arithmetic between rows and bags.
 */
#ifndef RPS_CLIENT_BATCH_H
#define RPS_CLIENT_BATCH_H

#include "client/dedup.h"
#include "client/handle.h"

/** The common part of rps_lookup and rps_push, checked. */
struct rps_batch {
    rps_embedding_table *table;
    const uint64_t *keys;
    size_t key_count;
    const uint32_t *offsets; /* [bag_count + 1], or NULL: a row a key */
    size_t bag_count;
    enum rps_pooling pooling;
    uint32_t flags;
    uint64_t padding_key;
    size_t stride; /* bytes from row to row of the caller's array */
    enum rps_value value;
    enum rps_value wire; /* of the rows or gradients as they travel */
    const void *array;   /* rows or gradients; not NULL if there are any */
};

/** Check all of it; `what` and `index` name it in words; sets the stride. */
rps_status rps_batch_check(const rps_client *client, struct rps_batch *batch,
        const char *what, size_t index);

rps_status rps_batch_dedup(const rps_client *client,
        const struct rps_batch *batch, struct rps_dedup *dedup);

/** Do the servers pool its bags? */
static inline bool
rps_batch_pools_there(const struct rps_batch *batch)
{
    return batch->offsets != NULL && (batch->flags & RPS_POOL_ON_SERVER) != 0;
}

/** into[dim] = row, or += row. A copy keeps -0.0. */
void rps_batch_add(float *into, const float *row, uint32_t dim, bool is_first);

/** row[dim] divided as a bag of n keys asks; n > 0. */
void rps_batch_divide(
        float *row, uint32_t dim, enum rps_pooling pooling, uint32_t n);

/**
 * rows[bag_count] of the caller from distinct[count][dim]: float32, in the
 * bag's order; padding is left out, also of n; an empty bag is zeros.
 */
void rps_batch_pool(const struct rps_batch *batch,
        const struct rps_dedup *dedup, const float *distinct, void *rows);

/** Distinct key i has one gradient, a row of its own: nothing to sum. */
static inline bool
rps_batch_is_single(
        const struct rps_batch *batch, const struct rps_dedup *dedup, size_t i)
{
    return batch->offsets == NULL && dedup->counts[i] == 1;
}

/**
 * sums[count][dim]: each distinct key's gradients, float32, in the order of
 * its occurrences. A bag's goes to each of its keys: as it is for sum,
 * divided by n for mean, by sqrt(n) for sqrtn. Rows of single keys are not
 * written.
 */
void rps_batch_sum(const struct rps_batch *batch, const struct rps_dedup *dedup,
        const void *gradients, float *sums);

#endif /* RPS_CLIENT_BATCH_H */
