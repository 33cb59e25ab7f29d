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

/**
 * Give a budget its parent, with what is taken already, also where that
 * exceeds the parent's limit. Nobody uses the budget meanwhile.
 */
void rps_budget_adopt(struct rps_budget *budget, struct rps_budget *parent);

/** The same; false: what is taken exceeds the parent's, nothing was done. */
bool rps_budget_join(struct rps_budget *budget, struct rps_budget *parent);

/** Bytes that may be taken at this level; UINT64_MAX: it has no limit. */
uint64_t rps_budget_left(const struct rps_budget *budget);

/** Of it and those above it the one with the fewest bytes left. */
const struct rps_budget *rps_budget_tightest(const struct rps_budget *budget);

/** False: it would exceed a limit, nothing was taken. */
bool rps_budget_take(struct rps_budget *budget, uint64_t bytes);
void rps_budget_give(struct rps_budget *budget, uint64_t bytes);

/** Taken already, also beyond a limit. */
void rps_budget_add(struct rps_budget *budget, uint64_t bytes);

#endif /* RPS_EMBEDDING_BUDGET_H */
