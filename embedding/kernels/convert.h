/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of rows to and from floats, for the lanes included before.
 * Includes vector.h's loop.
 */
#ifndef RPS_EMBEDDING_KERNELS_CONVERT_H
#define RPS_EMBEDDING_KERNELS_CONVERT_H

#include "embedding/kernels/vector.h"

#include <recps/types.h>

/* What rounds to an infinity: half a step beyond the type's largest. */
#define F16_LIMIT  65520.0f
#define BF16_LIMIT 0x1.ffp+127f

static void
widen_f32(float *restrict to, const void *restrict from, size_t n)
{
    const float *floats = from;

    LANES_EACH(n, lanes_store(to + j, count, lanes_load(floats + j, count)));
}

static void
widen_f16(float *restrict to, const void *restrict from, size_t n)
{
    const uint16_t *halves = from;

    LANES_EACH(n, lanes_store(to + j, count, lanes_of_f16(halves + j, count)));
}

static void
widen_bf16(float *restrict to, const void *restrict from, size_t n)
{
    const uint16_t *halves = from;

    LANES_EACH(n, lanes_store(to + j, count, lanes_of_bf16(halves + j, count)));
}

/* A NaN, or a size not below `limit`, is noted as a flaw. */
static inline lanes_flaws
note_above(lanes_flaws flaws, lanes x, float limit, size_t count)
{
    const lanes zero = lanes_all(0.0f);
    const lanes size = lanes_above(zero, x, zero - x, x);

    return lanes_flaw(flaws,
            lanes_above(lanes_all(limit), size, zero, lanes_all(INFINITY)),
            count);
}

static bool
narrow_f32(void *restrict to, const float *restrict from, size_t n)
{
    float *floats = to;
    lanes_flaws flaws = lanes_flaws_none();

    LANES_EACH(n, {
        const lanes x = lanes_load(from + j, count);
        flaws = lanes_flaw(flaws, x, count);
        lanes_store(floats + j, count, x);
    });
    return lanes_flawless(flaws);
}

static bool
narrow_f16(void *restrict to, const float *restrict from, size_t n)
{
    uint16_t *halves = to;
    lanes_flaws flaws = lanes_flaws_none();

    LANES_EACH(n, {
        const lanes x = lanes_load(from + j, count);
        flaws = note_above(flaws, x, F16_LIMIT, count);
        lanes_to_f16(halves + j, count, x);
    });
    return lanes_flawless(flaws);
}

static bool
narrow_bf16(void *restrict to, const float *restrict from, size_t n)
{
    uint16_t *halves = to;
    lanes_flaws flaws = lanes_flaws_none();

    LANES_EACH(n, {
        const lanes x = lanes_load(from + j, count);
        flaws = note_above(flaws, x, BF16_LIMIT, count);
        lanes_to_bf16(halves + j, count, x);
    });
    return lanes_flawless(flaws);
}

static void
convert_init(struct rps_kernels *k)
{
    k->widen[RPS_VALUE_F32] = widen_f32;
    k->widen[RPS_VALUE_F16] = widen_f16;
    k->widen[RPS_VALUE_BF16] = widen_bf16;
    k->narrow[RPS_VALUE_F32] = narrow_f32;
    k->narrow[RPS_VALUE_F16] = narrow_f16;
    k->narrow[RPS_VALUE_BF16] = narrow_bf16;
}

#endif /* RPS_EMBEDDING_KERNELS_CONVERT_H */
