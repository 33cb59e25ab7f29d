/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An update's contributions, turned from (replica, position) to (shard,
 * distinct key): for each key the gradients that count, in the order of
 * contributions, then of positions. That order is part of the gradient law,
 * and it does not depend on shards.
 *
 *   groups:  | shard 0: key a, key b | shard 2: key c | ...
 *   entries:   a -> first -> next -> next      (ascending position)
 */
#ifndef RPS_EMBEDDING_GROUP_H
#define RPS_EMBEDDING_GROUP_H

#include "embedding/table_impl.h"

#define RPS_ENTRY_NONE UINT32_MAX

/** One gradient of one contribution. */
struct rps_entry {
    const float *gradient; /* [live floats of the key] */
    uint32_t uses;         /* multiplicity */
    uint32_t next;         /* entry of the same key, or RPS_ENTRY_NONE */
};

/** Group g is the key keys[g]; groups lie by shard, starts[shard] on. */
struct rps_grouping {
    struct rps_entry *entries; /* [entry_count]: those that are finite; the
                                * other arrays but starts lie behind */
    size_t entry_count;
    size_t group_count;
    uint64_t *keys;         /* [group_count] distinct */
    uint64_t *hashes;       /* [group_count] */
    uint32_t *firsts;       /* [group_count] entry */
    uint32_t *lasts;        /* [group_count] entry, where it is another one */
    size_t *starts;         /* [shard_count + 1] groups */
    uint64_t nonfinite;     /* contributions to a row that were refused */
    uint64_t nonfinite_key; /* the first of them */
};

/**
 * Build. Borrows the gradients. Finish it also after a failure.
 * Errors: NOMEM, LIMIT (2^32 - 1 gradients or more at once).
 */
RPS_NODISCARD rps_status rps_grouping_init(struct rps_grouping *grouping,
        const struct rps_table *table,
        const struct rps_contribution *contributions, size_t n);
void rps_grouping_finish(struct rps_grouping *grouping);

#endif /* RPS_EMBEDDING_GROUP_H */
