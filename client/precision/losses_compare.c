/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of several runs, each against the first one's. */
#include "client/precision/losses.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* How far two are apart: 0 where they are the same, or neither is finite. */
static double
apart(double a, double b)
{
    if (!isfinite(a) || !isfinite(b)) {
        return isfinite(a) == isfinite(b) ? 0.0 : (double)INFINITY;
    }
    return fabs(a - b);
}

/* -0 is not 0: their bits are compared, but for what is not finite. */
static bool
same(double a, double b)
{
    return (!isfinite(a) && !isfinite(b)) || memcmp(&a, &b, sizeof(a)) == 0;
}

/* Steps in which a run goes along with the first one. */
static size_t
even_steps(const struct rps_losses *a, const struct rps_losses *b)
{
    size_t i = 0;

    while (i < a->count && i < b->count && a->list[i].step == b->list[i].step) {
        i++;
    }
    return i;
}

static void
note_uneven(struct rps_losses_compared *compared, const struct rps_losses *runs,
        size_t run)
{
    const size_t even = even_steps(&runs[0], &runs[run]);

    compared->steps = even < compared->steps ? even : compared->steps;
    if (compared->uneven_run == 0 &&
            (even < runs[0].count || even < runs[run].count)) {
        compared->uneven_run = run;
        compared->even_steps = even;
    }
}

static void
note_step(struct rps_losses_compared *compared, const struct rps_losses *runs,
        size_t run, size_t at)
{
    const struct rps_loss *a = &runs[0].list[at];
    const struct rps_loss *b = &runs[run].list[at];
    const double by = apart(a->value, b->value);

    if (!compared->not_finite && !isfinite(b->value)) {
        compared->not_finite = true;
        compared->not_finite_step = b->step;
        compared->not_finite_run = run;
    }
    if (same(a->value, b->value)) {
        return;
    }
    if (compared->first_run == 0) {
        compared->first_step = a->step;
        compared->first_run = run;
        compared->first_loss[0] = a->value;
        compared->first_loss[1] = b->value;
    }
    if (compared->largest_run == 0 || by > compared->largest) {
        compared->largest = by;
        compared->largest_step = a->step;
        compared->largest_run = run;
    }
}

static enum rps_losses_verdict
judge(const struct rps_losses_compared *compared,
        const struct rps_losses *first, double tolerance)
{
    if (compared->first_run == 0) {
        return compared->uneven_run == 0 ? RPS_LOSSES_EQUAL : RPS_LOSSES_UNEVEN;
    }
    if (compared->first_step == first->list[0].step ||
            !(compared->largest < tolerance)) {
        return RPS_LOSSES_DIFFER;
    }
    return compared->uneven_run == 0 ? RPS_LOSSES_CLOSE : RPS_LOSSES_UNEVEN;
}

struct rps_losses_compared
rps_losses_compare(
        const struct rps_losses *runs, size_t count, double tolerance)
{
    struct rps_losses_compared compared = {.exact = true};

    assert(count >= 1 && runs[0].count > 0);
    compared.steps = runs[0].count;
    for (size_t run = 0; run < count; run++) {
        compared.exact = compared.exact && runs[run].exact;
        note_uneven(&compared, runs, run);
    }
    /* step by step, so that the first one of all runs is found first */
    for (size_t at = 0; at < compared.steps; at++) {
        for (size_t run = 0; run < count; run++) {
            note_step(&compared, runs, run, at);
        }
    }
    compared.verdict = judge(&compared, &runs[0], tolerance);
    return compared;
}
