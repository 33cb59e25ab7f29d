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
    uint64_t key;
    uint64_t hash;
    const float *gradient; /* [live floats of the key] */
    uint32_t uses;         /* multiplicity */
    uint32_t next;         /* entry of the same key, or RPS_ENTRY_NONE */
};

/** One distinct key. */
struct rps_group {
    uint32_t first; /* entry */
    uint32_t last;
};

struct rps_grouping {
    struct rps_entry *entries; /* [entry_count]: those that are finite */
    size_t entry_count;
    struct rps_group *groups; /* [group_count], by shard */
    size_t group_count;
    size_t *group_starts;   /* [shard_count + 1] */
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
