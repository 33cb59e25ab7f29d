/* SPDX-License-Identifier: Apache-2.0 */
/* Owns nothing: sums that nothing else is ordered by, so relaxed atomics. */
#include "embedding/budget.h"

#include <assert.h>
#include <stddef.h>

void
rps_budget_init(
        struct rps_budget *budget, struct rps_budget *parent, uint64_t limit)
{
    budget->parent = parent;
    atomic_init(&budget->limit, limit);
    atomic_init(&budget->used, 0);
}

static bool
take_one(struct rps_budget *budget, uint64_t bytes)
{
    const uint64_t limit =
            atomic_load_explicit(&budget->limit, memory_order_relaxed);
    uint64_t used = atomic_load_explicit(&budget->used, memory_order_relaxed);

    do {
        if (limit != 0 && (used > limit || bytes > limit - used)) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&budget->used, &used,
            used + bytes, memory_order_relaxed, memory_order_relaxed));
    return true;
}

static void
give_one(struct rps_budget *budget, uint64_t bytes)
{
    const uint64_t before = atomic_fetch_sub_explicit(
            &budget->used, bytes, memory_order_relaxed);

    assert(before >= bytes);
    (void)before;
}

void
rps_budget_adopt(struct rps_budget *budget, struct rps_budget *parent)
{
    const uint64_t used =
            atomic_load_explicit(&budget->used, memory_order_relaxed);

    budget->parent = parent;
    /* relaxed, as all of these: sums that order nothing */
    for (; parent != NULL; parent = parent->parent) {
        atomic_fetch_add_explicit(&parent->used, used, memory_order_relaxed);
    }
}

bool
rps_budget_join(struct rps_budget *budget, struct rps_budget *parent)
{
    const uint64_t used =
            atomic_load_explicit(&budget->used, memory_order_relaxed);

    if (!rps_budget_take(parent, used)) {
        return false;
    }
    budget->parent = parent;
    return true;
}

uint64_t
rps_budget_left(const struct rps_budget *budget)
{
    const uint64_t limit =
            atomic_load_explicit(&budget->limit, memory_order_relaxed);
    const uint64_t used =
            atomic_load_explicit(&budget->used, memory_order_relaxed);

    return limit == 0 ? UINT64_MAX : limit < used ? 0 : limit - used;
}

const struct rps_budget *
rps_budget_tightest(const struct rps_budget *budget)
{
    const struct rps_budget *tightest = budget;

    for (; budget != NULL; budget = budget->parent) {
        if (rps_budget_left(budget) < rps_budget_left(tightest)) {
            tightest = budget;
        }
    }
    return tightest;
}

bool
rps_budget_take(struct rps_budget *budget, uint64_t bytes)
{
    if (!take_one(budget, bytes)) {
        return false;
    }
    if (budget->parent != NULL && !rps_budget_take(budget->parent, bytes)) {
        give_one(budget, bytes);
        return false;
    }
    return true;
}

void
rps_budget_give(struct rps_budget *budget, uint64_t bytes)
{
    for (; budget != NULL; budget = budget->parent) {
        give_one(budget, bytes);
    }
}

void
rps_budget_add(struct rps_budget *budget, uint64_t bytes)
{
    for (; budget != NULL; budget = budget->parent) {
        atomic_fetch_add_explicit(&budget->used, bytes, memory_order_relaxed);
    }
}
