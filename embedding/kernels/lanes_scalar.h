/* SPDX-License-Identifier: Apache-2.0 */
/* One lane: plain C, the specification of the wider sets. */
#ifndef RPS_EMBEDDING_KERNELS_LANES_SCALAR_H
#define RPS_EMBEDDING_KERNELS_LANES_SCALAR_H

#include "embedding/kernels/element.h"

#define LANES 1u

typedef float lanes;
typedef uint32_t lanes_flaws;

static inline lanes
lanes_all(float x)
{
    return x;
}

static inline lanes
lanes_load(const float *from, size_t count)
{
    (void)count;
    return *from;
}

static inline void
lanes_store(float *to, size_t count, lanes x)
{
    (void)count;
    *to = x;
}

static inline lanes
lanes_root(lanes x)
{
    return sqrtf(x);
}

/** Lane by lane: a > b ? yes : no (a NaN is not above). */
static inline lanes
lanes_above(lanes a, lanes b, lanes yes, lanes no)
{
    return a > b ? yes : no;
}

static inline lanes_flaws
lanes_flaws_none(void)
{
    return 0;
}

/** Note the lanes that hold a NaN or an infinity: x - x is no zero there. */
static inline lanes_flaws
lanes_flaw(lanes_flaws flaws, lanes x, size_t count)
{
    (void)count;
    return flaws | rps_float_bits(x - x);
}

static inline bool
lanes_flawless(lanes_flaws flaws)
{
    return flaws == 0;
}

static inline lanes
lanes_of_f16(const uint16_t *from, size_t count)
{
    (void)count;
    return rps_float_of_f16(*from);
}

static inline lanes
lanes_of_bf16(const uint16_t *from, size_t count)
{
    (void)count;
    return rps_float_of_bf16(*from);
}

static inline void
lanes_to_f16(uint16_t *to, size_t count, lanes x)
{
    (void)count;
    *to = rps_float_to_f16(x);
}

static inline void
lanes_to_bf16(uint16_t *to, size_t count, lanes x)
{
    (void)count;
    *to = rps_float_to_bf16(x);
}

#endif /* RPS_EMBEDDING_KERNELS_LANES_SCALAR_H */
