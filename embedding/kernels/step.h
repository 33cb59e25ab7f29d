/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The optimizers, for the lanes included before. A formula says what becomes
 * of a weight and its slots; step_lanes() loads, keeps what was there, stores
 * and looks for what is not finite, so that a row is walked once.
 *
 * lanes are floats to the compiler too: + - * / work on each lane. The build
 * has -ffp-contract=off, so that no two of them become one.
 */
#ifndef RPS_EMBEDDING_KERNELS_STEP_H
#define RPS_EMBEDDING_KERNELS_STEP_H

#include "embedding/kernels/gather.h"

struct lanes_row {
    lanes w;
    lanes s0;
    lanes s1;
};

typedef struct lanes_row formula_fn(
        struct lanes_row at, lanes g, const struct rps_step_numbers *c);

INLINED struct lanes_row
sgd_formula(struct lanes_row at, lanes g, const struct rps_step_numbers *c)
{
    at.w = at.w - lanes_all(c->rate) * g;
    return at;
}

INLINED struct lanes_row
momentum_formula(struct lanes_row at, lanes g, const struct rps_step_numbers *c)
{
    at.s0 = lanes_all(c->momentum) * at.s0 + g;
    at.w = at.w - lanes_all(c->rate) * at.s0;
    return at;
}

INLINED struct lanes_row
nesterov_formula(struct lanes_row at, lanes g, const struct rps_step_numbers *c)
{
    const lanes rate = lanes_all(c->rate);
    const lanes momentum = lanes_all(c->momentum);

    at.s0 = momentum * at.s0 + g;
    at.w = at.w - (g * rate + (at.s0 * momentum) * rate);
    return at;
}

INLINED struct lanes_row
adagrad_formula(struct lanes_row at, lanes g, const struct rps_step_numbers *c)
{
    at.s0 = at.s0 + g * g;
    at.w = lanes_above(at.s0, lanes_all(0.0f),
            at.w - (lanes_all(c->rate) * g) / lanes_root(at.s0), at.w);
    return at;
}

INLINED struct lanes_row
adam_formula(struct lanes_row at, lanes g, const struct rps_step_numbers *c)
{
    at.s0 = lanes_all(c->beta1) * at.s0 + lanes_all(c->beta1_rest) * g;
    at.s1 = lanes_all(c->beta2) * at.s1 + lanes_all(c->beta2_rest) * (g * g);
    at.w = lanes_all(c->keep) * at.w -
           (lanes_all(c->rate) * at.s0) /
                   (lanes_root(at.s1) + lanes_all(c->epsilon));
    return at;
}

INLINED struct lanes_row
adam_catchup_formula(
        struct lanes_row at, lanes g, const struct rps_step_numbers *c)
{
    at.w = lanes_all(c->tail_keep) * at.w -
           (lanes_all(c->tail) * at.s0) /
                   (lanes_root(at.s1) + lanes_all(c->epsilon));
    return adam_formula(at, g, c);
}

/* What both of FTRL's forms do with the roots of n and n1. */
INLINED struct lanes_row
ftrl_rest(struct lanes_row at, lanes g, lanes root0, lanes root1,
        const struct rps_step_numbers *c)
{
    const lanes zero = lanes_all(0.0f);
    const lanes rate = lanes_all(c->rate);
    const lanes l1 = lanes_all(c->l1);
    lanes signed_l1 = zero;
    lanes size = zero;

    at.s1 = at.s1 + ((g + lanes_all(c->shrinkage) * at.w) -
                            ((root1 - root0) / rate) * at.w);
    signed_l1 = lanes_above(at.s1, zero, l1, zero - l1);
    size = lanes_above(at.s1, zero, at.s1, zero - at.s1);
    at.w = lanes_above(size, l1,
            (signed_l1 - at.s1) / (root1 / rate + lanes_all(c->l2)), zero);
    return at;
}

INLINED struct lanes_row
ftrl_formula(struct lanes_row at, lanes g, const struct rps_step_numbers *c)
{
    const lanes root0 = lanes_root(at.s0);

    at.s0 = at.s0 + g * g;
    return ftrl_rest(at, g, root0, lanes_root(at.s0), c);
}

INLINED struct lanes_row
rmsprop_formula(struct lanes_row at, lanes g, const struct rps_step_numbers *c)
{
    at.s0 = at.s0 + (g * g - at.s0) * lanes_all(c->beta2_rest);
    at.s1 = lanes_all(c->momentum) * at.s1 +
            (g * lanes_all(c->rate)) /
                    lanes_root(at.s0 + lanes_all(c->epsilon));
    at.w = at.w - at.s1;
    return at;
}

/* Where the arrays of one row are. */
struct step_row {
    float *restrict w;
    float *restrict s0;
    float *restrict s1;
    const float *restrict g;
    float *restrict before; /* w, then the slots, dim floats apart */
    size_t dim;
};

INLINED lanes_flaws
step_lanes(formula_fn *formula, unsigned slots, const struct step_row *r,
        const struct rps_step_numbers *c, size_t j, size_t count,
        lanes_flaws flaws)
{
    struct lanes_row at = {
            lanes_load(r->w + j, count), lanes_all(0.0f), lanes_all(0.0f)};

    lanes_store(r->before + j, count, at.w);
    if (slots > 0) {
        at.s0 = lanes_load(r->s0 + j, count);
        lanes_store(r->before + r->dim + j, count, at.s0);
    }
    if (slots > 1) {
        at.s1 = lanes_load(r->s1 + j, count);
        lanes_store(r->before + 2 * r->dim + j, count, at.s1);
    }
    at = formula(at, lanes_load(r->g + j, count), c);
    lanes_store(r->w + j, count, at.w);
    flaws = lanes_flaw(flaws, at.w, count);
    if (slots > 0) {
        lanes_store(r->s0 + j, count, at.s0);
        flaws = lanes_flaw(flaws, at.s0, count);
    }
    if (slots > 1) {
        lanes_store(r->s1 + j, count, at.s1);
        flaws = lanes_flaw(flaws, at.s1, count);
    }
    return flaws;
}

/* By value: a struct that is pointed to would have to lie in memory. */
static __attribute__((noinline, cold)) bool
take_back(float *w, float *s, const float *before, unsigned slots, size_t dim,
        size_t n)
{
    memcpy(w, before, n * sizeof(*w));
    for (unsigned i = 0; i < slots; i++) {
        memcpy(s + i * dim, before + (i + 1) * dim, n * sizeof(*s));
    }
    return false;
}

/* whole: n is a number of whole groups, there is no tail. */
INLINED bool
step_all(formula_fn *formula, unsigned slots, bool whole, float *restrict w,
        float *restrict s, const float *restrict g, size_t n,
        const struct rps_step_numbers *c, float *restrict before)
{
    /* copies, whose fields no store to the row can seem to change */
    const struct rps_step_numbers numbers = *c;
    const struct step_row r = {
            w, s, slots > 1 ? s + c->dim : s, g, before, c->dim};
    lanes_flaws flaws = lanes_flaws_none();
    size_t j = 0;

    for (; j + LANES <= n; j += LANES) {
        flaws = step_lanes(formula, slots, &r, &numbers, j, LANES, flaws);
    }
    if (!whole && j < n) {
        flaws = step_lanes(formula, slots, &r, &numbers, j, n - j, flaws);
    }
    return __builtin_expect(lanes_flawless(flaws), true) ||
           take_back(w, s, before, slots, c->dim, n);
}

/* Groups of a row that is stored only when all its results are known to be
 * finite: they wait in registers. */
#define SHORT 4u

INLINED bool
step_short(formula_fn *formula, unsigned slots, float *restrict w,
        const float *restrict g, size_t dim, const struct rps_step_numbers *c)
{
    struct lanes_row at[SHORT];
    lanes_flaws flaws = lanes_flaws_none();

    for (size_t j = 0, i = 0; j < dim; j += LANES, i++) {
        at[i].w = lanes_load(w + j, LANES);
        at[i].s0 = slots > 0 ? lanes_load(w + dim + j, LANES) : at[i].w;
        at[i].s1 = slots > 1 ? lanes_load(w + 2 * dim + j, LANES) : at[i].w;
        at[i] = formula(at[i], lanes_load(g + j, LANES), c);
        flaws = lanes_flaw(flaws, at[i].w, LANES);
        flaws = slots > 0 ? lanes_flaw(flaws, at[i].s0, LANES) : flaws;
        flaws = slots > 1 ? lanes_flaw(flaws, at[i].s1, LANES) : flaws;
    }
    if (__builtin_expect(!lanes_flawless(flaws), false)) {
        return false;
    }
    for (size_t j = 0, i = 0; j < dim; j += LANES, i++) {
        lanes_store(w + j, LANES, at[i].w);
        if (slots > 0) {
            lanes_store(w + dim + j, LANES, at[i].s0);
        }
        if (slots > 1) {
            lanes_store(w + 2 * dim + j, LANES, at[i].s1);
        }
    }
    return true;
}

/* c->dim is dim, which may be a constant. */
INLINED uint64_t
step_each(formula_fn *formula, unsigned slots, float *const *rows,
        const float *const *gradients, size_t count, size_t dim,
        const struct rps_step_numbers *c, float *restrict before)
{
    struct rps_step_numbers numbers = *c;
    uint64_t refused = 0;

    numbers.dim = dim;
    for (size_t i = 0; i < count; i++) {
        float *w = rows[i];
        bool finite = true;
        if (w == NULL) {
            continue;
        }
        if (__builtin_constant_p(dim) && dim % LANES == 0 &&
                dim <= SHORT * LANES) {
            finite = step_short(formula, slots, w, gradients[i], dim, &numbers);
        } else {
            finite = step_all(formula, slots, dim % LANES == 0, w, w + dim,
                    gradients[i], dim, &numbers, before);
        }
        refused |= (uint64_t)!finite << i;
    }
    return refused;
}

/* Most rows are whole groups: theirs is a function without a tail, which
 * has fewer registers to save. */
#define STEP(name, slots)                                                     \
    static __attribute__((noinline)) bool step_##name##_tail(                 \
            float *restrict w, float *restrict s, const float *restrict g,    \
            size_t n, const struct rps_step_numbers *c,                       \
            float *restrict before)                                           \
    {                                                                         \
        return step_all(name##_formula, slots, false, w, s, g, n, c, before); \
    }                                                                         \
                                                                              \
    static bool step_##name(float *restrict w, float *restrict s,             \
            const float *restrict g, size_t n,                                \
            const struct rps_step_numbers *c, float *restrict before)         \
    {                                                                         \
        if (n % LANES != 0) {                                                 \
            return step_##name##_tail(w, s, g, n, c, before);                 \
        }                                                                     \
        return step_all(name##_formula, slots, true, w, s, g, n, c, before);  \
    }                                                                         \
                                                                              \
    static uint64_t step_##name##_rows(float *const *rows,                    \
            const float *const *gradients, size_t count,                      \
            const struct rps_step_numbers *c, float *before)                  \
    {                                                                         \
        switch (c->dim) {                                                     \
        case 16:                                                              \
            return step_each(name##_formula, slots, rows, gradients, count,   \
                    16, c, before);                                           \
        case 64:                                                              \
            return step_each(name##_formula, slots, rows, gradients, count,   \
                    64, c, before);                                           \
        default:                                                              \
            return step_each(name##_formula, slots, rows, gradients, count,   \
                    c->dim, c, before);                                       \
        }                                                                     \
    }

STEP(sgd, 0)
STEP(momentum, 1)
STEP(nesterov, 1)
STEP(adagrad, 1)
STEP(adam, 2)
STEP(adam_catchup, 2)
STEP(ftrl, 2)
STEP(rmsprop, 2)

/* One accumulator a row: the rate is the row's, the rest is sgd. */
static bool
step_rowwise_adagrad(float *restrict w, float *restrict s,
        const float *restrict g, size_t n, const struct rps_step_numbers *c,
        float *restrict before)
{
    struct rps_step_numbers row = *c;
    float sum = 0.0f;
    float root = 0.0f;

    if (n == 0) {
        return true;
    }
    before[c->dim] = *s;
    sum = *s + (float)(square_sum(g, n) / (double)n);
    root = sqrtf(sum) + c->epsilon;
    row.rate = root > 0.0f ? c->rate / root : 0.0f;
    if (!isfinite(sum) || !step_sgd(w, s, g, n, &row, before)) {
        return false;
    }
    *s = sum;
    return true;
}

static uint64_t
step_rowwise_adagrad_rows(float *const *rows, const float *const *gradients,
        size_t count, const struct rps_step_numbers *c, float *before)
{
    uint64_t refused = 0;

    for (size_t i = 0; i < count; i++) {
        float *w = rows[i];
        if (w != NULL && !step_rowwise_adagrad(w, w + c->dim, gradients[i],
                                 c->dim, c, before)) {
            refused |= (uint64_t)1 << i;
        }
    }
    return refused;
}

#define STEPPER(name)                                  \
    (struct rps_stepper)                               \
    {                                                  \
        .row = step_##name, .rows = step_##name##_rows \
    }

static void
step_init(struct rps_kernels *k)
{
    k->sgd = STEPPER(sgd);
    k->momentum = STEPPER(momentum);
    k->nesterov = STEPPER(nesterov);
    k->adagrad = STEPPER(adagrad);
    k->rowwise_adagrad = STEPPER(rowwise_adagrad);
    k->adam = STEPPER(adam);
    k->adam_catchup = STEPPER(adam_catchup);
    k->ftrl = STEPPER(ftrl);
    k->rmsprop = STEPPER(rmsprop);
}

#endif /* RPS_EMBEDDING_KERNELS_STEP_H */
