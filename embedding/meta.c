/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counter c stands for n(c) = A ((1 + 1/A)^c - 1) uses with A = 16
 * (R. Morris, Counting large numbers of events in small registers, 1978).
 * The table is built by products in order, so that no libm has a say.
 */
#include "embedding/meta.h"

#include "base/hash.h"

#include <assert.h>
#include <pthread.h>

#define SPREAD 16.0

static double estimates[RPS_USES_MAX + 1]; /* constant after estimates_once */
struct rps_uses_ones rps_uses_ones;        /* likewise */

static pthread_once_t estimates_once = PTHREAD_ONCE_INIT;

/* The counter that n(uses) + count is at least, and the odds of the next. */
static uint32_t
rest_of(uint32_t uses, uint64_t count, double *odds_out)
{
    const double target = estimates[uses] + (double)count;

    while (uses < RPS_USES_MAX && estimates[uses + 1] <= target) {
        uses++;
    }
    *odds_out = uses == RPS_USES_MAX
                        ? 0.0
                        : (target - estimates[uses]) /
                                  (estimates[uses + 1] - estimates[uses]);
    return uses;
}

static void
estimates_fill(void)
{
    struct rps_uses_ones *ones = &rps_uses_ones;
    double step = 1.0;

    for (uint32_t c = 0; c < RPS_USES_MAX; c++) {
        estimates[c + 1] = estimates[c] + step;
        step *= 1.0 + 1.0 / SPREAD;
    }
    for (uint32_t c = 0; c <= RPS_USES_MAX; c++) {
        double odds = 0.0;
        double draws = 0.0;
        ones->from[c] = (uint8_t)rest_of(c, 1, &odds);
        draws = odds * 0x1.0p53; /* exact: a power of two */
        ones->odds[c] = (uint64_t)draws;
        ones->odds[c] += (double)ones->odds[c] < draws;
    }
}

void
rps_uses_prepare(void)
{
    pthread_once(&estimates_once, estimates_fill);
}

double
rps_uses_estimate(uint32_t uses)
{
    assert(uses <= RPS_USES_MAX);
    pthread_once(&estimates_once, estimates_fill);
    return estimates[uses];
}

/*
 * n(c) + count lies between two neighbours; the draw picks one of them with
 * the odds that keep the mean. For count 1 this is Morris' own rule: up by
 * one with probability (1 + 1/A)^-c.
 */
uint32_t
rps_uses_add(uint32_t uses, uint64_t count, uint64_t draw)
{
    double odds = 0.0;

    rps_uses_prepare();
    uses = rest_of(uses, count, &odds);
    return rps_unit_double(draw) < odds ? uses + 1 : uses;
}
