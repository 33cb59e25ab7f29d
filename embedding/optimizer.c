/* SPDX-License-Identifier: Apache-2.0 */
/* Owns nothing: the formulas' constants and the choice of the kernel. */
#include "embedding/optimizer.h"

#include "base/spec.h"

#include <assert.h>
#include <float.h>
#include <math.h>

/* x^n by squaring: the same bits everywhere, which pow() does not promise. */
static double
power(double x, uint64_t n)
{
    double result = 1.0;

    for (; n > 0; n >>= 1) {
        if ((n & 1) != 0) {
            result *= x;
        }
        x *= x;
    }
    return result;
}

/*
 * The bias corrections are folded into two constants, which leaves the
 * kernel one formula: with c1 = 1 - b1^t and c2 = sqrt(1 - b2^t)
 *   lr (m / c1) / (sqrt(v) / c2 + eps) = (lr c2 / c1) m / (sqrt(v) + eps c2)
 * Betas are floats; what goes with them is worked out in double from those
 * floats, so that 1 - b and 1 - b^t stay in step with b itself.
 */
static struct rps_adam
adam_constants(const rps_table_spec *spec, float learning_rate, uint64_t t)
{
    const double beta1 = (double)spec->beta1;
    const double beta2 = (double)spec->beta2;
    const double c1 = 1.0 - power(beta1, t);
    const double c2 = sqrt(1.0 - power(beta2, t));
    const float epsilon = (float)((double)spec->epsilon * c2);

    return (struct rps_adam){
            .rate = (float)((double)learning_rate * c2 / c1),
            .beta1 = spec->beta1,
            .beta1_rest = (float)(1.0 - beta1),
            .beta2 = spec->beta2,
            .beta2_rest = (float)(1.0 - beta2),
            /* never 0, or a row without any gradient would be 0 / 0 */
            .epsilon = epsilon > 0.0f ? epsilon : FLT_TRUE_MIN,
    };
}

void
rps_step_init(struct rps_step *step, const struct rps_kernels *kernels,
        const rps_table_spec *spec, float learning_rate, uint64_t t)
{
    assert(t >= 1);

    *step = (struct rps_step){
            .kernels = kernels,
            .optimizer = spec->optimizer,
            .dim = spec->dim,
            .learning_rate = learning_rate,
    };
    if (spec->optimizer == RPS_OPTIMIZER_ADAM) {
        step->adam = adam_constants(spec, learning_rate, t);
    }
}

void
rps_step_row(const struct rps_step *step, float *row, const float *gradient,
        size_t n)
{
    float *slot0 = row + step->dim;
    float *slot1 = slot0 + step->dim;

    switch (step->optimizer) {
    case RPS_OPTIMIZER_SGD:
        step->kernels->sgd(row, gradient, step->learning_rate, n);
        break;
    case RPS_OPTIMIZER_ADAGRAD:
        step->kernels->adagrad(row, slot0, gradient, step->learning_rate, n);
        break;
    case RPS_OPTIMIZER_ADAM:
        step->kernels->adam(row, slot0, slot1, gradient, &step->adam, n);
        break;
    default:
        assert(!"the spec check lets built optimizers pass only");
        break;
    }
}

float
rps_slot_fresh(const rps_table_spec *spec)
{
    return spec->optimizer == RPS_OPTIMIZER_ADAGRAD ? spec->initial_accumulator
                                                    : 0.0f;
}

void
rps_slots_fresh(const rps_table_spec *spec, float *slots)
{
    const uint32_t count = rps_spec_slot_floats(spec);
    const float fresh = rps_slot_fresh(spec);

    for (uint32_t j = 0; j < count; j++) {
        slots[j] = fresh;
    }
}
