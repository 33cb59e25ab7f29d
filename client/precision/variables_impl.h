/* SPDX-License-Identifier: Apache-2.0 */
/* What variables.c and variables_rows.c have in common. */
#ifndef RPS_PRECISION_VARIABLES_IMPL_H
#define RPS_PRECISION_VARIABLES_IMPL_H

#include "client/precision/variables.h"
#include "embedding/checkpoint/replay.h"

/** Two checkpoints that are being compared. */
struct rps_variables_pair {
    const struct rps_ckpt_chain *chains[2];
    const struct rps_variables_options *options;
    size_t memory_bytes;
    bool by_hash;         /* another job seed: their slots hold other keys */
    uint64_t done, total; /* bytes read */
};

/** A table that is compared. */
struct rps_variables_table {
    const char *name;
    const rps_table_spec *specs[2]; /* NULL: that side does not have it */
    size_t first;                   /* vectors of the list */
    struct rps_variable *vectors;   /* [vector_count]: values, then slots */
    size_t vector_count;
};

/** All rows of a side's table, and its progress. */
struct rps_ckpt_replay rps_variables_replay(
        struct rps_variables_pair *pair, int side, const char *table);

/** Fill what its rows say into the table's vectors. Errors: CORRUPT, IO,
 * NOT_FOUND (a file), NOMEM: what they have is then of some of the rows. */
rps_status rps_variables_rows(struct rps_variables_pair *pair,
        struct rps_variables_table *table, struct rps_error *error);

/** What of each side cannot be read, "" where all can. Errors: NOMEM. */
rps_status rps_variables_unread(struct rps_variables_pair *pair,
        struct rps_variables_table *table, struct rps_error causes[2],
        struct rps_error *error);

#endif /* RPS_PRECISION_VARIABLES_IMPL_H */
