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
static pthread_once_t estimates_once = PTHREAD_ONCE_INIT;

static void
estimates_fill(void)
{
    double step = 1.0;

    for (uint32_t c = 0; c < RPS_USES_MAX; c++) {
        estimates[c + 1] = estimates[c] + step;
        step *= 1.0 + 1.0 / SPREAD;
    }
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
    const double target = rps_uses_estimate(uses) + (double)count;
    double odds = 0.0;

    while (uses < RPS_USES_MAX && rps_uses_estimate(uses + 1) <= target) {
        uses++;
    }
    if (uses == RPS_USES_MAX) {
        return uses;
    }
    odds = (target - estimates[uses]) / (estimates[uses + 1] - estimates[uses]);
    return rps_unit_double(draw) < odds ? uses + 1 : uses;
}
