/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/schedule.h"

#include <math.h>

/* TensorFlow's polynomial_decay */
static double
polynomial(const struct rps_schedule *schedule, double base, uint64_t at)
{
    double span = (double)schedule->steps;
    double step = (double)at;

    if (schedule->cycle) {
        span *= at == 0 ? 1.0 : ceil(step / span);
    }
    if (step > span) {
        step = span;
    }
    return (base - schedule->end) * pow(1.0 - step / span, schedule->power) +
           schedule->end;
}

static double
exponential(const struct rps_schedule *schedule, double base, uint64_t at)
{
    const double turns = schedule->staircase
                                 ? (double)(at / schedule->steps)
                                 : (double)at / (double)schedule->steps;

    return base * pow(schedule->factor, turns);
}

static double
piecewise(const struct rps_schedule *schedule, double base, uint64_t done)
{
    double rate = base;

    for (uint32_t i = 0; i < schedule->piece_count; i++) {
        if (done >= schedule->pieces[i].from) {
            rate = schedule->pieces[i].rate;
        }
    }
    return rate;
}

double
rps_schedule_rate(
        const struct rps_schedule *schedule, double base, uint64_t done)
{
    const uint64_t at = done > schedule->begin ? done - schedule->begin : 0;
    double rate = base;

    switch (schedule->kind) {
    case RPS_SCHEDULE_CONSTANT:
        break;
    case RPS_SCHEDULE_POLYNOMIAL:
        rate = polynomial(schedule, base, at);
        break;
    case RPS_SCHEDULE_EXPONENTIAL:
        rate = exponential(schedule, base, at);
        break;
    case RPS_SCHEDULE_PIECEWISE:
        rate = piecewise(schedule, base, done);
        break;
    }
    if (done < schedule->warmup) {
        rate *= (double)(done + 1) / (double)schedule->warmup;
    }
    return rate;
}
