/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one law of start values and other draws: a number depends on (seed,
 * table name, key, column) and on nothing else. docs/TABLE.md has it in
 * words.
 */
#ifndef RPS_BASE_DRAW_H
#define RPS_BASE_DRAW_H

#include "base/hash.h"

#include <stddef.h>
#include <stdint.h>

/** The stream of draws that a table's seed and name give. */
uint64_t rps_draw_stream(uint64_t seed, const char *name);

/** Where the draws of a key's row start. */
static inline uint64_t
rps_draw_row(uint64_t stream, uint64_t key)
{
    return rps_mix64(stream ^ rps_mix64(key));
}

/** The draw of column j: splitmix64 run from the row's start. */
static inline uint64_t
rps_draw_column(uint64_t row, size_t j)
{
    return rps_mix64(row + j * UINT64_C(0x9e3779b97f4a7c15));
}

/** Uniform floats in [low, high); low alone where they are equal. */
struct rps_uniform {
    double low;
    double width;
    float high;  /* no value reaches it */
    float below; /* the largest float below high */
};

struct rps_uniform rps_uniform_init(float low, float high);
float rps_uniform_value(const struct rps_uniform *uniform, uint64_t draw);

/** A standard normal number, |z| < 8.3: the quantile of the draw's 52 bits. */
double rps_normal_value(uint64_t draw);

/** The same of a standard normal number that lies within [-2, 2]. */
double rps_truncated_normal_value(uint64_t draw);

#endif /* RPS_BASE_DRAW_H */
