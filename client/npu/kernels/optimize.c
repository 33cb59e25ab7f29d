/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/kernels/optimize.h"

#include <math.h>

static struct rps_npu_step_numbers
numbers_of(const struct rps_npu_optimize_args *args)
{
    const double rate = *args->learning_rate;
    struct rps_npu_step_numbers c = {
            .rate = rate,
            .keep = args->decoupled ? 1.0 - rate * args->decay : 1.0,
            .decay = args->decoupled ? 0.0 : args->decay,
            .beta1 = args->beta1,
            .beta1_rest = 1.0 - args->beta1,
            .beta2 = args->beta2,
            .beta2_rest = 1.0 - args->beta2,
    };

    if (args->adam) {
        const double root = sqrt(1.0 - pow(args->beta2, *args->step));

        c.rate = rate * root / (1.0 - pow(args->beta1, *args->step));
        c.epsilon = args->epsilon * root;
    }
    return c;
}

void
rps_npu_optimize_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_optimize_args *args = arguments;
    const struct rps_npu_elementwise *set = args->how.set;
    const bool precise = args->how.precise;
    struct rps_npu_step_numbers c;

    (void)workspace;
    if (args->finite != NULL && *args->finite == 0) {
        return;
    }
    c = numbers_of(args);
    if (args->adam) {
        rps_npu_adam_fn *adam = precise ? rps_npu_precise_adam : set->adam;

        adam(args->weight, args->gradient, args->m, args->v, args->n, &c);
    } else {
        rps_npu_sgd_fn *sgd = precise ? rps_npu_precise_sgd : set->sgd;

        sgd(args->weight, args->gradient, args->n, &c);
    }
}

void
rps_npu_unscale_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_unscale_args *args = arguments;
    bool finite = !args->accumulate || *args->finite != 0;

    (void)workspace;
    for (size_t r = 0; r < args->rows; r++) {
        float *x = args->x + r * args->stride;

        finite = args->set->finite(x, args->columns) && finite;
        if (args->factor != NULL) {
            args->set->scale(x, (float)*args->factor, x, args->columns);
        }
    }
    *args->finite = finite ? 1 : 0;
}

void
rps_npu_count_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_count_args *args = arguments;

    (void)workspace;
    if (args->finite == NULL || *args->finite != 0) {
        *args->counter += 1.0;
    }
}
