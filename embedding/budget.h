/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many bytes may be taken: one budget a table, whose parent is the
 * server's. What is taken from a table's is taken from the server's too.
 *
 * used <= limit at each level, but where the limit was lowered below what
 * was used already.
 *
 * Threads: any.
 */
#ifndef RPS_EMBEDDING_BUDGET_H
#define RPS_EMBEDDING_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct rps_budget {
    struct rps_budget *parent; /* set before use; NULL: none */
    _Atomic uint64_t limit;    /* bytes; 0: none */
    _Atomic uint64_t used;     /* bytes */
};

void rps_budget_init(
        struct rps_budget *budget, struct rps_budget *parent, uint64_t limit);

/** False: it would exceed a limit, nothing was taken. */
bool rps_budget_take(struct rps_budget *budget, uint64_t bytes);
void rps_budget_give(struct rps_budget *budget, uint64_t bytes);

#endif /* RPS_EMBEDDING_BUDGET_H */
