/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of the table engine: one struct of function pointers, filled
 * for the CPU at hand. vector.h, convert.h, gather.h and step.h are written
 * once, for the lanes that a lanes_*.h declares: one float (kernels_scalar.c,
 * the specification), eight (AVX2) or sixteen (AVX-512). tests/kernel/ holds
 * the wide sets to the scalar one.
 *
 * For all of them
 * Shapes: arrays of n f32, any alignment of 4 bytes, not overlapping.
 * Bits:   those of the scalar kernel, which does one IEEE operation after
 *         the other in the order written: no FMA, no reciprocal estimates.
 *         Only which NaN a NaN is may differ.
 */
#ifndef RPS_EMBEDDING_KERNELS_H
#define RPS_EMBEDDING_KERNELS_H

#include "embedding/kernels/line.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Instruction sets, each including the ones below it. */
enum rps_isa {
    RPS_ISA_SCALAR,
    RPS_ISA_AVX2,
    RPS_ISA_AVX512,
    RPS_ISA_COUNT
};

/** Value types that rows have in memory: f32, f16, bf16 (enum rps_value). */
#define RPS_ROW_VALUES 3u

/** The numbers of one step; each kernel says which ones it reads. */
struct rps_step_numbers {
    size_t dim; /* floats from slot to slot */
    float rate; /* the learning rate; of Adam lr sqrt(1 - b2^t) / (1 - b1^t) */
    float keep; /* 1 - lr weight_decay where that is decoupled, else 1 */
    float momentum;
    float beta1;      /* b1; catching up: b1^(k + 1), k steps were skipped */
    float beta1_rest; /* 1 - b1 */
    float beta2;      /* b2, or b2^(k + 1) */
    float beta2_rest; /* 1 - b2, or 1 - rho */
    float epsilon;    /* Adam: eps sqrt(1 - b2^t), above 0 */
    float tail;       /* catching up: the rates of the skipped steps, summed */
    float tail_keep;  /* catching up: keep^k */
    float l1;
    float l2;        /* 2 l2 */
    float shrinkage; /* 2 l2_shrinkage */
    float power;     /* -learning_rate_power, >= 0 */
};

/**
 * One optimizer step of one row, in float32.
 *
 * Shapes:  w[n], g[n]; slots: slot s begins at slots + s * c->dim and has n
 *          live floats (rowwise_adagrad: one); before: as long as w and the
 *          slots together with dim floats each; not overlapping.
 * Returns: whether every result is finite. If not, w and the slots hold
 *          what they held before, bit for bit.
 */
typedef bool rps_step_fn(float *restrict w, float *restrict slots,
        const float *restrict g, size_t n, const struct rps_step_numbers *c,
        float *restrict before);

/**
 * The same of `count` <= 64 rows, each all dim of c->dim floats long: row i
 * has its weights at rows[i] and the slots right behind them. A row that is
 * NULL is left out, whatever its gradient is.
 *
 * Shapes:  rows[count], gradients[count][dim]; before: as above, whose
 *          content is void afterwards.
 * Returns: bit i: row i has a result that is not finite, and holds what it
 *          held before.
 */
typedef uint64_t rps_step_rows_fn(float *const *rows,
        const float *const *gradients, size_t count,
        const struct rps_step_numbers *c, float *before);

#define RPS_STEP_ROWS_MAX 64u

/** An optimizer. */
struct rps_stepper {
    rps_step_fn *row;
    rps_step_rows_fn *rows;
};

struct rps_kernels {
    /** hashes[i] = rps_key_hash(keys[i], seed) (base/hash.h) */
    void (*hash)(
            const uint64_t *keys, size_t n, uint64_t seed, uint64_t *hashes);

    /**
     * lanes[i] = where keys[i] lies in *lines[i]: 0..3; RPS_LANE_ABSENT if
     * it is not there and a place is free, RPS_LANE_BEYOND if none is.
     */
    void (*probe)(const struct rps_index_line *const *lines,
            const uint64_t *keys, size_t n, uint8_t *lanes);

    /**
     * rows[i] = the row of keys[i] in lines[i * width .. + width - 1], in one
     * of which it is at most; 0: in none. n <= 64; width: 1 or RPS_LINES_NEXT.
     *
     * Shapes:  rows[n up to a multiple of 8]; behind n they mean nothing.
     * Returns: bit i: keys[i] is in none.
     */
    uint64_t (*find)(const struct rps_index_line *const *lines, size_t width,
            const uint64_t *keys, size_t n, uint32_t *rows);

    /** draws[i] = mix64(mix64(seed ^ keys[i]) ^ step): base/hash.h */
    void (*draw)(uint64_t *restrict draws, const uint64_t *restrict keys,
            size_t n, uint64_t seed, uint64_t step);

    /** sum[j] += g[j] */
    void (*add)(float *restrict sum, const float *restrict g, size_t n);

    /** g[j] *= factor */
    void (*scale)(float *g, float factor, size_t n);

    /** g[j] = min(max(g[j], -limit), limit); limit >= 0, no NaN in g */
    void (*clip)(float *g, float limit, size_t n);

    /** Whether no element is an infinity or a NaN. */
    bool (*finite)(const float *g, size_t n);

    /**
     * Sum of squares, in double.
     *
     * Bits: 16 partial sums, sum i takes the elements i, i + 16, ... in
     *       order; then sum i += sum i + 8 (i < 8), += i + 4, += i + 2, += 1.
     */
    double (*square_sum)(const float *g, size_t n);

    /** out[j] = g[j] + factor * w[j] */
    void (*decay)(float *restrict out, const float *restrict g,
            const float *restrict w, float factor, size_t n);

    /** to[j] = the float that from[j] is; by enum rps_value. */
    void (*widen[RPS_ROW_VALUES])(
            float *restrict to, const void *restrict from, size_t n);

    /**
     * to[j] = from[j], to nearest, ties to even; by enum rps_value.
     * Returns whether each is finite in the narrow type.
     */
    bool (*narrow[RPS_ROW_VALUES])(
            void *restrict to, const float *restrict from, size_t n);

    /**
     * The same with stochastic rounding: down, or up where the top bits of
     * draws[j] say so, with the odds that keep the mean. Not of f32 (NULL).
     */
    bool (*narrow_drawn[RPS_ROW_VALUES])(void *restrict to,
            const float *restrict from, const uint32_t *restrict draws,
            size_t n);

    /**
     * For each i < n: the dim values at sources[i], of the type that chose the
     * kernel, go as floats to the row at
     * (char *)rows + positions[i] * stride_bytes.
     */
    void (*gather[RPS_ROW_VALUES])(float *rows, size_t stride_bytes,
            const uint16_t *positions, const void *const *sources, size_t n,
            size_t dim);

    /** w -= rate * g */
    struct rps_stepper sgd;

    /** a = momentum * a + g; w -= rate * a */
    struct rps_stepper momentum;

    /** a = momentum * a + g; w -= g * rate + (a * momentum) * rate */
    struct rps_stepper nesterov;

    /** a += g * g; if a > 0: w -= (rate * g) / sqrt(a) */
    struct rps_stepper adagrad;

    /**
     * a += float(square_sum(g) / n); d = sqrt(a) + epsilon
     * if d > 0: w -= (rate / d) * g
     */
    struct rps_stepper rowwise_adagrad;

    /**
     * m = beta1 * m + beta1_rest * g
     * v = beta2 * v + beta2_rest * (g * g)
     * w = keep * w - (rate * m) / (sqrt(v) + epsilon)
     */
    struct rps_stepper adam;

    /** w = tail_keep * w - (tail * m) / (sqrt(v) + epsilon); then adam */
    struct rps_stepper adam_catchup;

    /**
     * n1 = n + g * g; s = (sqrt(n1) - sqrt(n)) / rate
     * z += (g + shrinkage * w) - s * w; n = n1
     * w = |z| > l1 ? (sign(z) * l1 - z) / (sqrt(n1) / rate + l2) : 0
     */
    struct rps_stepper ftrl;

    /** ftrl with pow(x, power) for sqrt(x); the same code in every set */
    struct rps_stepper ftrl_power;

    /**
     * s += (g * g - s) * beta2_rest
     * a = momentum * a + (g * rate) / sqrt(s + epsilon); w -= a
     */
    struct rps_stepper rmsprop;
};

/** Best set this CPU runs, capped by the environment variable RPS_ISA. */
enum rps_isa rps_isa_detect(void);

/** "scalar", "avx2" or "avx512". */
const char *rps_isa_str(enum rps_isa isa);

/** Fill *k for `isa`. */
void rps_kernels_init(struct rps_kernels *k, enum rps_isa isa);

void rps_probe_init_scalar(struct rps_kernels *k);
void rps_probe_init_avx2(struct rps_kernels *k);
void rps_kernels_init_scalar(struct rps_kernels *k);
void rps_kernels_init_avx2(struct rps_kernels *k);
void rps_kernels_init_avx512(struct rps_kernels *k);

#endif /* RPS_EMBEDDING_KERNELS_H */
