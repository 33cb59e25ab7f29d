/* SPDX-License-Identifier: Apache-2.0 */
/* What a change of policy shares with the rest of a table. */
#ifndef RPS_EMBEDDING_ALTER_H
#define RPS_EMBEDDING_ALTER_H

#include "embedding/table_impl.h"

/** Bytes that a table of such rows and such a policy needs to work at all. */
uint64_t rps_table_least_limit(
        const struct rps_table *table, const rps_table_spec *spec);

/** INVAL naming the least memory_limit that a table of such rows can have. */
rps_status rps_table_check_limit(const struct rps_table *table,
        const rps_table_spec *spec, struct rps_error *error);

/**
 * Where ticks have another unit since rps_table_set_policy(): every row is
 * stamped `tick`, the first of the new unit. No shard's lock is held.
 *
 * Threads: any; one does it.
 */
void rps_table_restamp_due(struct rps_table *table, uint64_t tick);

#endif /* RPS_EMBEDDING_ALTER_H */
