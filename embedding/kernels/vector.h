/* SPDX-License-Identifier: Apache-2.0 */
/* Sums, clips and tests of float arrays, for the lanes included before. */
#ifndef RPS_EMBEDDING_KERNELS_VECTOR_H
#define RPS_EMBEDDING_KERNELS_VECTOR_H

#include "base/hash.h"
#include "embedding/kernels/kernels.h"

/*
 * Run `body` for every group of lanes: j is where it starts, count its
 * lanes. The body stands twice, so that the whole groups know their count.
 */
#define LANES_EACH(n, body)                    \
    do {                                       \
        size_t j = 0;                          \
        for (; j + LANES <= (n); j += LANES) { \
            const size_t count = LANES;        \
            body;                              \
        }                                      \
        if (LANES > 1 && j < (n)) {            \
            const size_t count = (n)-j;        \
            body;                              \
        }                                      \
    } while (0)

/* No lanes of floats: the compiler's own vectors of 64 bits. */
static void
vector_draw(uint64_t *restrict draws, const uint64_t *restrict keys, size_t n,
        uint64_t seed, uint64_t step)
{
    for (size_t i = 0; i < n; i++) {
        draws[i] = rps_mix64(rps_mix64(seed ^ keys[i]) ^ step);
    }
}

static void
vector_add(float *restrict sum, const float *restrict g, size_t n)
{
    LANES_EACH(
            n, lanes_store(sum + j, count,
                       lanes_load(sum + j, count) + lanes_load(g + j, count)));
}

static void
vector_scale(float *g, float factor, size_t n)
{
    const lanes factors = lanes_all(factor);

    LANES_EACH(
            n, lanes_store(g + j, count, lanes_load(g + j, count) * factors));
}

static inline lanes
clipped(lanes x, lanes low, lanes high)
{
    x = lanes_above(x, low, x, low);
    return lanes_above(high, x, x, high);
}

static void
vector_clip(float *g, float limit, size_t n)
{
    const lanes low = lanes_all(-limit);
    const lanes high = lanes_all(limit);

    LANES_EACH(n, lanes_store(g + j, count,
                          clipped(lanes_load(g + j, count), low, high)));
}

static bool
vector_finite(const float *g, size_t n)
{
    lanes_flaws flaws = lanes_flaws_none();
    size_t done = 0;

    for (; done + 4 * LANES <= n; done += 4 * LANES) {
        for (size_t i = 0; i < 4; i++) {
            const size_t at = done + i * LANES;
            flaws = lanes_flaw(flaws, lanes_load(g + at, LANES), LANES);
        }
    }
    g += done;
    n -= done;
    LANES_EACH(n, flaws = lanes_flaw(flaws, lanes_load(g + j, count), count));
    return lanes_flawless(flaws);
}

static void
vector_decay(float *restrict out, const float *restrict g,
        const float *restrict w, float factor, size_t n)
{
    const lanes factors = lanes_all(factor);

    LANES_EACH(n, lanes_store(out + j, count,
                          lanes_load(g + j, count) +
                                  factors * lanes_load(w + j, count)));
}

static void
vector_init(struct rps_kernels *k)
{
    k->draw = vector_draw;
    k->add = vector_add;
    k->scale = vector_scale;
    k->clip = vector_clip;
    k->finite = vector_finite;
    k->decay = vector_decay;
}

#endif /* RPS_EMBEDDING_KERNELS_VECTOR_H */
