/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a cut, for cut.c and cut_read.c. */
#ifndef RPS_EMBEDDING_CUT_IMPL_H
#define RPS_EMBEDDING_CUT_IMPL_H

#include "embedding/cut.h"
#include "embedding/track.h"

struct rps_cut_table {
    struct rps_table *table;
    rps_table_spec spec;
    uint64_t pushes;
    bool changed_only; /* rps_cut_choose() */
};

struct rps_cut {
    struct rps_store *store;
    struct rps_save_buffer *buffer;
    struct rps_cut_table *tables; /* [count] */
    size_t count;
};

#endif /* RPS_EMBEDDING_CUT_IMPL_H */
