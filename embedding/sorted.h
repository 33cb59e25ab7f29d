/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a call that writes, hashed and sorted by shard. */
#ifndef RPS_EMBEDDING_SORTED_H
#define RPS_EMBEDDING_SORTED_H

#include "embedding/table_impl.h"

struct rps_sorted {
    size_t count;
    uint64_t *keys;   /* [count] by shard, else as given */
    uint64_t *hashes; /* [count] of them */
    size_t *order;    /* [count] position of each among the given */
    size_t *starts;   /* [shard_count + 1] */
};

/** Errors: NOMEM. Finish it also then. */
RPS_NODISCARD rps_status rps_sorted_init(struct rps_sorted *sorted,
        const struct rps_table *table, size_t count, const uint64_t *keys);
void rps_sorted_finish(struct rps_sorted *sorted);

#endif /* RPS_EMBEDDING_SORTED_H */
