/* SPDX-License-Identifier: Apache-2.0 */
/* Owns nothing. No libm but sqrt and floor, which are exact. */
#include "embedding/catchup.h"

#include "base/real.h"

#include <math.h>

#define HEAD_MAX 1024u /* steps */
#define FOREVER  1e15  /* steps, after which every b^x, float b < 1, is 0 */

void
rps_catchup_init(struct rps_catchup *catchup, const rps_table_spec *spec,
        double keep, float learning_rate, uint64_t t)
{
    const double beta1 = (double)spec->beta1;
    const double beta2 = (double)spec->beta2;
    const double head = 6.0 / (1.0 - beta1);

    *catchup = (struct rps_catchup){
            .rate = (double)learning_rate,
            .keep = keep,
            .beta1 = beta1,
            .beta2 = beta2,
            .ratio = beta1 / sqrt(beta2),
            .t = t,
            .head = head < HEAD_MAX ? (uint64_t)head : HEAD_MAX,
    };
}

static double
correction(double beta1_t, double beta2_t)
{
    return sqrt(1.0 - beta2_t) / (1.0 - beta1_t);
}

/* f(x) between the whole steps around x: linear, as far as that goes. */
static double
correction_at(const struct rps_catchup *c, double x)
{
    const double far = x < FOREVER ? x : FOREVER;
    const double whole = floor(far);
    const double beta1_t = rps_power_whole(c->beta1, (uint64_t)whole);
    const double beta2_t = rps_power_whole(c->beta2, (uint64_t)whole);
    const double low = correction(beta1_t, beta2_t);
    const double high = correction(beta1_t * c->beta1, beta2_t * c->beta2);

    return low + (high - low) * (far - whole);
}

/* The mean of i = 1..k, weighted by q^i, q > 0; by (1/q)^(k + 1 - i) where
 * the late steps weigh more. */
static double
mean_step(double q, uint64_t k)
{
    const double length = (double)k;
    const double p = q > 1.0 ? 1.0 / q : q;
    const double last = rps_power_whole(p, k);
    double mean = (length + 1.0) / 2.0;

    if (p < 1.0 - 1e-7) {
        mean = 1.0 / (1.0 - p) - length * last / (1.0 - last);
        mean = q > 1.0 ? length + 1.0 - mean : mean;
    }
    mean = mean > 1.0 ? mean : 1.0;
    return mean < length ? mean : length;
}

/*
 * The sum over i = 1..k of keep^(k-i) ratio^i f(s + i), f being the bias
 * correction: f where it is weighed most, times the geometric sum.
 */
static double
tail_closed(const struct rps_catchup *c, uint64_t s, uint64_t k)
{
    const double a = rps_power_whole(c->keep, k);
    const double b = rps_power_whole(c->ratio, k);
    const double gap = c->keep - c->ratio;
    const double sum =
            fabs(gap) > 1e-9 ? c->ratio * (a - b) / gap : (double)k * b;
    /* a keep that is not positive belongs to no rate that trains */
    const double q = c->keep > 0.0 ? c->ratio / c->keep : 1.0;

    return sum * correction_at(c, (double)s + mean_step(q, k));
}

/* The same sum; its steps up to `head` one by one, where f still bends. */
static double
tail(const struct rps_catchup *c, uint64_t s, uint64_t k)
{
    double beta1_t = rps_power_whole(c->beta1, s);
    double beta2_t = rps_power_whole(c->beta2, s);
    double weight = 1.0;
    double sum = 0.0;
    uint64_t i = 0;

    while (i < k && s + i < c->head) {
        i++;
        beta1_t *= c->beta1;
        beta2_t *= c->beta2;
        weight *= c->ratio;
        sum = sum * c->keep + weight * correction(beta1_t, beta2_t);
    }
    if (i < k) {
        sum = sum * rps_power_whole(c->keep, k - i) +
              weight * tail_closed(c, s + i, k - i);
    }
    return sum;
}

void
rps_catchup_numbers(const struct rps_catchup *catchup, uint32_t skipped,
        struct rps_step_numbers *c)
{
    const uint64_t before = catchup->t - 1;
    const uint64_t k = skipped < before ? skipped : before;

    c->beta1 = (float)rps_power_whole(catchup->beta1, k + 1);
    c->beta2 = (float)rps_power_whole(catchup->beta2, k + 1);
    c->tail = (float)(catchup->rate * tail(catchup, before - k, k));
    c->tail_keep = (float)rps_power_whole(catchup->keep, k);
}
