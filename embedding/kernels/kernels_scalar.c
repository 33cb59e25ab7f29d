/* SPDX-License-Identifier: Apache-2.0 */
/* The specification, and what is the same in every set. */
#include "base/hash.h"
#include "base/real.h"
#include "embedding/kernels/lanes_scalar.h"

static double
square_sum(const float *g, size_t n)
{
    double sums[RPS_SQUARE_SUMS] = {0.0};

    return element_square_sum(sums, g, 0, n);
}

#include "embedding/kernels/step.h"

INLINED struct lanes_row
ftrl_power_formula(
        struct lanes_row at, lanes g, const struct rps_step_numbers *c)
{
    const float root0 = (float)rps_power((double)at.s0, (double)c->power);

    at.s0 = at.s0 + g * g;
    return ftrl_rest(
            at, g, root0, (float)rps_power((double)at.s0, (double)c->power), c);
}

STEP(ftrl_power, 2)

static bool
narrow_f16_drawn(void *restrict to, const float *restrict from,
        const uint32_t *restrict draws, size_t n)
{
    uint16_t *halves = to;
    bool finite = true;

    for (size_t j = 0; j < n; j++) {
        halves[j] = element_to_f16_drawn(from[j], draws[j]);
        finite = finite && (halves[j] & 0x7c00u) != 0x7c00u;
    }
    return finite;
}

static bool
narrow_bf16_drawn(void *restrict to, const float *restrict from,
        const uint32_t *restrict draws, size_t n)
{
    uint16_t *halves = to;
    bool finite = true;

    for (size_t j = 0; j < n; j++) {
        halves[j] = element_to_bf16_drawn(from[j], draws[j]);
        finite = finite && (halves[j] & 0x7f80u) != 0x7f80u;
    }
    return finite;
}

static void
hash_keys(const uint64_t *keys, size_t n, uint64_t seed, uint64_t *hashes)
{
    rps_key_hashes(n, keys, seed, hashes);
}

void
rps_kernels_init_scalar(struct rps_kernels *k)
{
    *k = (struct rps_kernels){.hash = hash_keys, .square_sum = square_sum};
    vector_init(k);
    convert_init(k);
    gather_init(k);
    step_init(k);
    k->ftrl_power = STEPPER(ftrl_power);
    k->narrow_drawn[RPS_VALUE_F16] = narrow_f16_drawn;
    k->narrow_drawn[RPS_VALUE_BF16] = narrow_bf16_drawn;
}
