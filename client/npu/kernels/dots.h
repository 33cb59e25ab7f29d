/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dots of every pair of a sample's vectors, and back.
 *
 * forward:  z[i (i - 1) / 2 + j] = sum over k of v[i][k] v[j][k], j < i < n
 * backward: g[i][k] = sum over j != i of dz(i, j) v[j][k]
 *
 * Shapes:  v, g [n][stride], stride a multiple of RPS_DOTS_LANES, columns
 *          [stride][room], room a multiple of it, n at least; z, dz
 *          [n (n - 1) / 2].
 * Bits:    each sum adds in the order of k, or of j, from 0 on, products
 *          rounded first: one result for every set.
 */
#ifndef RPS_NPU_KERNELS_DOTS_H
#define RPS_NPU_KERNELS_DOTS_H

#include <stddef.h>
#include <stdint.h>

#define RPS_DOTS_LANES 16u

struct rps_dots_shape {
    uint32_t n;
    uint32_t width;  /* of a vector; the rest of its stride is zeros */
    uint32_t stride; /* floats from a vector to the next */
    uint32_t room;   /* floats from a column to the next */
};

struct rps_dots {
    const char *isa;
    /* columns: room for v transposed */
    void (*forward)(const struct rps_dots_shape *shape, const float *v,
            float *columns, float *z);
    void (*backward)(const struct rps_dots_shape *shape, const float *v,
            const float *dz, float *g);
};

struct rps_dots_shape rps_dots_shape_of(uint32_t n, uint32_t width);

/** The sets that this CPU runs, the best one last, capped by RPS_ISA as
 * embedding/kernels are. Returns how many. */
size_t rps_dots_sets(struct rps_dots sets[3]);

/** The best of them, looked for once. Threads: any. */
const struct rps_dots *rps_dots_best(void);

/* For dots.c: one a file that is compiled with its own flags. */
extern const struct rps_dots rps_dots_scalar;
extern const struct rps_dots rps_dots_avx2;
extern const struct rps_dots rps_dots_avx512;

#endif /* RPS_NPU_KERNELS_DOTS_H */
