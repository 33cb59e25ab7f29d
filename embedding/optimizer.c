/* SPDX-License-Identifier: Apache-2.0 */
/* Owns nothing: the formulas' constants and the choice of the kernel. */
#include "embedding/optimizer.h"

#include "base/draw.h"
#include "base/real.h"
#include "base/spec.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

static bool
is_adam(enum rps_optimizer optimizer)
{
    return optimizer == RPS_OPTIMIZER_ADAM ||
           optimizer == RPS_OPTIMIZER_ADAMW ||
           optimizer == RPS_OPTIMIZER_ADAM_CATCHUP ||
           optimizer == RPS_OPTIMIZER_ADAMW_CATCHUP;
}

static bool
catches_up(enum rps_optimizer optimizer)
{
    return optimizer == RPS_OPTIMIZER_ADAM_CATCHUP ||
           optimizer == RPS_OPTIMIZER_ADAMW_CATCHUP;
}

/* Decoupled: the weights shrink by themselves, not through the gradient. */
static bool
decay_is_decoupled(enum rps_optimizer optimizer)
{
    return optimizer == RPS_OPTIMIZER_ADAMW ||
           optimizer == RPS_OPTIMIZER_ADAMW_CATCHUP;
}

/*
 * The bias corrections are folded into two constants, which leaves the
 * kernel one formula: with c1 = 1 - b1^t and c2 = sqrt(1 - b2^t)
 *   lr (m / c1) / (sqrt(v) / c2 + eps) = (lr c2 / c1) m / (sqrt(v) + eps c2)
 * Betas are floats; what goes with them is worked out in double from those
 * floats, so that 1 - b and 1 - b^t stay in step with b itself.
 */
static void
adam_numbers(struct rps_step_numbers *c, const rps_table_spec *spec,
        float learning_rate, uint64_t t)
{
    const double beta1 = (double)spec->beta1;
    const double beta2 = (double)spec->beta2;
    const double c1 = 1.0 - rps_power_whole(beta1, t);
    const double c2 = sqrt(1.0 - rps_power_whole(beta2, t));
    const float epsilon = (float)((double)spec->epsilon * c2);

    c->rate = (float)((double)learning_rate * c2 / c1);
    c->beta1 = spec->beta1;
    c->beta1_rest = (float)(1.0 - beta1);
    c->beta2 = spec->beta2;
    c->beta2_rest = (float)(1.0 - beta2);
    /* never 0, or a row without any gradient would be 0 / 0 */
    c->epsilon = epsilon > 0.0f ? epsilon : FLT_TRUE_MIN;
}

/* A rate of 0, as a warm-up begins with, moves nothing; FTRL divides by it. */
static bool
step_nothing(float *restrict w, float *restrict slots, const float *restrict g,
        size_t n, const struct rps_step_numbers *c, float *restrict before)
{
    return true;
}

static uint64_t
step_no_rows(float *const *rows, const float *const *gradients, size_t count,
        const struct rps_step_numbers *c, float *before)
{
    return 0;
}

static const struct rps_stepper stepper_of_nothing = {
        .row = step_nothing, .rows = step_no_rows};

static struct rps_stepper
ftrl_of(const struct rps_kernels *kernels, const rps_table_spec *spec,
        float learning_rate)
{
    if (learning_rate == 0.0f) {
        return stepper_of_nothing;
    }
    return spec->learning_rate_power == -0.5f ? kernels->ftrl
                                              : kernels->ftrl_power;
}

static struct rps_stepper
kernel_of(const struct rps_kernels *kernels, const rps_table_spec *spec,
        float learning_rate)
{
    switch (spec->optimizer) {
    case RPS_OPTIMIZER_SGD:
        return kernels->sgd;
    case RPS_OPTIMIZER_MOMENTUM:
        return spec->nesterov != 0 ? kernels->nesterov : kernels->momentum;
    case RPS_OPTIMIZER_ADAGRAD:
        return kernels->adagrad;
    case RPS_OPTIMIZER_ROWWISE_ADAGRAD:
        return kernels->rowwise_adagrad;
    case RPS_OPTIMIZER_ADAM:
    case RPS_OPTIMIZER_ADAMW:
    case RPS_OPTIMIZER_ADAM_CATCHUP:
    case RPS_OPTIMIZER_ADAMW_CATCHUP:
        return kernels->adam;
    case RPS_OPTIMIZER_FTRL:
        return ftrl_of(kernels, spec, learning_rate);
    case RPS_OPTIMIZER_RMSPROP:
        return kernels->rmsprop;
    case RPS_OPTIMIZER_COUNT:
        break;
    }
    assert(!"the spec check lets known optimizers pass only");
    return stepper_of_nothing;
}

void
rps_step_init(struct rps_step *step, const struct rps_kernels *kernels,
        const rps_table_spec *spec, float learning_rate, uint64_t t)
{
    const bool decoupled = decay_is_decoupled(spec->optimizer);
    const double keep =
            decoupled ? 1.0 - (double)learning_rate * (double)spec->weight_decay
                      : 1.0;

    assert(t >= 1);
    *step = (struct rps_step){
            .kernels = kernels,
            .kernel = kernel_of(kernels, spec, learning_rate),
            .numbers = {.dim = spec->dim,
                    .rate = learning_rate,
                    .keep = (float)keep,
                    .momentum = spec->momentum,
                    .beta2_rest = (float)(1.0 - (double)spec->rho),
                    .epsilon = spec->epsilon,
                    .l1 = spec->l1,
                    .l2 = 2.0f * spec->l2,
                    .shrinkage = 2.0f * spec->l2_shrinkage,
                    .power = -spec->learning_rate_power},
            .value_bytes = rps_spec_value_bytes(spec),
            .catches_up = catches_up(spec->optimizer),
            .draws = spec->stochastic_rounding != 0,
            .value = spec->value_dtype,
            .slot_count = rps_spec_slot_count(spec),
            .slot_width = rps_spec_slot_width(spec, 0),
            .decay = decoupled ? 0.0f : spec->weight_decay,
    };
    step->plain = step->value == RPS_VALUE_F32 && !step->catches_up &&
                  step->decay == 0.0f;
    if (is_adam(spec->optimizer)) {
        adam_numbers(&step->numbers, spec, learning_rate, t);
    }
    if (step->catches_up) {
        rps_catchup_init(&step->catchup, spec, keep, learning_rate, t);
    }
}

/* before [3 dim] | decayed gradient [dim] | value [dim] | narrow [dim] |
 * draws [dim] */
#define SCRATCH_ROWS 7u

size_t
rps_step_scratch_floats(const rps_table_spec *spec)
{
    return SCRATCH_ROWS * (size_t)spec->dim;
}

static bool
run_kernel(const struct rps_step *step, float *w, float *slots,
        const float *gradient, size_t n, uint32_t skipped, float *scratch)
{
    if (step->decay != 0.0f) {
        float *decayed = scratch + 3 * step->numbers.dim;
        step->kernels->decay(decayed, gradient, w, step->decay, n);
        gradient = decayed;
    }
    if (step->catches_up && skipped > 0) {
        struct rps_step_numbers numbers = step->numbers;
        rps_catchup_numbers(&step->catchup, skipped, &numbers);
        return step->kernels->adam_catchup.row(
                w, slots, gradient, n, &numbers, scratch);
    }
    return step->kernel.row(w, slots, gradient, n, &step->numbers, scratch);
}

static bool
narrow(const struct rps_step *step, void *to, const float *from, size_t n,
        uint64_t draw, uint32_t *draws)
{
    if (!step->draws) {
        return step->kernels->narrow[step->value](to, from, n);
    }
    for (size_t j = 0; j < n; j++) {
        draws[j] = (uint32_t)(rps_draw_column(draw, j) >> 32);
    }
    return step->kernels->narrow_drawn[step->value](to, from, draws, n);
}

/* The kernel kept what the slots held: it goes back. */
static void
restore_slots(const struct rps_step *step, float *slots, size_t n,
        const float *before)
{
    const size_t dim = step->numbers.dim;
    const size_t live = n < step->slot_width ? n : step->slot_width;

    for (uint32_t s = 0; s < step->slot_count; s++) {
        memcpy(slots + s * dim, before + (s + 1) * dim, live * sizeof(*slots));
    }
}

bool
rps_step_row_general(const struct rps_step *step, void *row,
        const float *gradient, size_t n, uint32_t skipped, uint64_t draw,
        float *scratch)
{
    const size_t dim = step->numbers.dim;
    float *slots = (float *)(void *)((char *)row + step->value_bytes);
    float *wide = scratch + 4 * dim;
    float *narrowed = wide + dim;
    uint32_t *draws = (uint32_t *)(void *)(narrowed + dim);

    if (step->value == RPS_VALUE_F32) {
        return run_kernel(step, row, slots, gradient, n, skipped, scratch);
    }
    step->kernels->widen[step->value](wide, row, n);
    if (!run_kernel(step, wide, slots, gradient, n, skipped, scratch)) {
        return false;
    }
    if (!narrow(step, narrowed, wide, n, draw, draws)) {
        restore_slots(step, slots, n, scratch);
        return false;
    }
    memcpy(row, narrowed, n * sizeof(uint16_t));
    return true;
}

float
rps_slot_fresh(const rps_table_spec *spec, uint32_t slot)
{
    switch (spec->optimizer) {
    case RPS_OPTIMIZER_ADAGRAD:
    case RPS_OPTIMIZER_ROWWISE_ADAGRAD:
    case RPS_OPTIMIZER_FTRL:
    case RPS_OPTIMIZER_RMSPROP:
        return slot == 0 ? spec->initial_accumulator : 0.0f;
    default:
        return 0.0f;
    }
}

void
rps_slots_fresh(const rps_table_spec *spec, float *slots)
{
    const uint32_t count = rps_spec_slot_count(spec);

    for (uint32_t s = 0; s < count; s++) {
        const uint32_t width = rps_spec_slot_width(spec, s);
        const float fresh = rps_slot_fresh(spec, s);
        for (uint32_t j = 0; j < width; j++) {
            *slots++ = fresh;
        }
    }
}
