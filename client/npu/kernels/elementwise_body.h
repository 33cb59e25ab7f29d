/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of elementwise.h's functions, which each set compiles with its own
 * flags. The file that includes it names the set and the bytes of its
 * vectors: RPS_NPU_SET, RPS_NPU_ISA, RPS_NPU_BYTES. What is left over at the
 * end of an array goes through a whole vector of its own, so that an element
 * is computed alike wherever it stands.
 */
#include "base/half.h"
#include "client/npu/kernels/elementwise.h"

#include <math.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define LANES (RPS_NPU_BYTES / (uint32_t)sizeof(float))

typedef float lanes __attribute__((vector_size(RPS_NPU_BYTES)));
typedef int32_t words __attribute__((vector_size(RPS_NPU_BYTES)));

/* The same, as they lie in memory. */
typedef float row_lanes
        __attribute__((vector_size(RPS_NPU_BYTES), aligned(4), may_alias));
typedef uint16_t halves
        __attribute__((vector_size(RPS_NPU_BYTES / 2u), aligned(2), may_alias));
typedef double row_doubles
        __attribute__((vector_size(2u * RPS_NPU_BYTES), aligned(8), may_alias));

#define AT(row)  (*(const row_lanes *)(const void *)(row))
#define PUT(row) (*(row_lanes *)(void *)(row))
#define INLINE   static inline __attribute__((always_inline))
#define ALL(x)   ((lanes){0.0f} + (x))
#define WORDS(x) ((words){0} + (x))

/* --- loops -----------------------------------------------------------------
 */

INLINE lanes
load(const float *x, size_t n)
{
    lanes tail = {0.0f};

    memcpy(&tail, x, n * sizeof(float));
    return tail;
}

INLINE void
map(const float *x, float *y, size_t n, lanes (*f)(lanes x))
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        PUT(y + i) = f(AT(x + i));
    }
    if (i < n) {
        const lanes tail = f(load(x + i, n - i));

        memcpy(y + i, &tail, (n - i) * sizeof(float));
    }
}

INLINE void
map_two(const float *a, const float *b, float *y, size_t n,
        lanes (*f)(lanes a, lanes b))
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        PUT(y + i) = f(AT(a + i), AT(b + i));
    }
    if (i < n) {
        const lanes tail = f(load(a + i, n - i), load(b + i, n - i));

        memcpy(y + i, &tail, (n - i) * sizeof(float));
    }
}

/* --- functions of lanes ----------------------------------------------------
 */

INLINE lanes
pick(words where, lanes a, lanes b)
{
    return (lanes)((where & (words)a) | (~where & (words)b));
}

INLINE lanes
magnitude(lanes x)
{
    return (lanes)((words)x & WORDS(0x7fffffff));
}

/* with the sign of `of` */
INLINE lanes
signed_as(lanes x, lanes of)
{
    return (lanes)((words)x | ((words)of & WORDS(INT32_MIN)));
}

/*
 * e^x = 2^k e^r, k = x / log 2 to the nearest, |r| <= log 2 / 2; e^r by the
 * polynomial of Cephes' expf. log 2 is subtracted in two parts, the first one
 * short enough for an exact product. Within 2 ulp. 2^k goes in two factors,
 * for what is subnormal, or just below the largest number.
 */
INLINE lanes
exponential(lanes x)
{
    const lanes shift = ALL(0x1.8p23f); /* rounds to whole numbers */
    const lanes high = pick(x > ALL(89.0f), ALL(89.0f), x);
    const lanes in = pick(high < ALL(-104.0f), ALL(-104.0f), high);
    const lanes whole = in * ALL(0x1.715476p0f) + shift;
    const words k = (words)whole - (words)shift;
    const words half = k >> 1;
    const lanes n = whole - shift;
    const lanes r = in - n * ALL(0.693359375f) - n * ALL(-2.12194440e-4f);
    lanes p = ALL(1.9875691500e-4f);

    p = p * r + ALL(1.3981999507e-3f);
    p = p * r + ALL(8.3334519073e-3f);
    p = p * r + ALL(4.1665795894e-2f);
    p = p * r + ALL(1.6666665459e-1f);
    p = p * r + ALL(5.0000001201e-1f);
    p = (p * (r * r) + r) + ALL(1.0f);
    return p * (lanes)((half + 127) << 23) * (lanes)((k - half + 127) << 23);
}

/* 1 / (1 + e^-x), and what is missing to 1, neither by a difference */
struct share {
    lanes of;
    lanes rest;
};

INLINE struct share
logistic(lanes x)
{
    const lanes e = exponential(-magnitude(x));
    const lanes large = ALL(1.0f) / (ALL(1.0f) + e);
    const words negative = x < ALL(0.0f);

    return (struct share){.of = pick(negative, e * large, large),
            .rest = pick(negative, large, e * large)};
}

INLINE lanes
relu_of(lanes x)
{
    return pick(x <= ALL(0.0f), ALL(0.0f), x); /* a NaN stays one */
}

INLINE lanes
sigmoid_of(lanes x)
{
    return logistic(x).of;
}

/* Small ones by the polynomial of Cephes' tanhf, as 1 - 2 / (e^2x + 1) would
 * lose their digits. Within 3 ulp. */
INLINE lanes
tanh_of(lanes x)
{
    const lanes a = magnitude(x);
    const lanes z = x * x;
    const lanes e = exponential(a + a);
    const lanes large = ALL(1.0f) - ALL(2.0f) / (e + ALL(1.0f));
    lanes p = ALL(-5.70498872745e-3f);

    p = p * z + ALL(2.06390887954e-2f);
    p = p * z + ALL(-5.37397155531e-2f);
    p = p * z + ALL(1.33314422036e-1f);
    p = p * z + ALL(-3.33332819422e-1f);
    return pick(a < ALL(0.625f), p * z * x + x, signed_as(large, x));
}

#define GELU_IN    0.797884560802865355f /* sqrt(2 / pi) */
#define GELU_CUBIC 0.044715f

/* (1 + tanh u) / 2 = 1 / (1 + e^-2u), without the difference that a negative
 * x would make of it */
INLINE lanes
gelu_twice(lanes x)
{
    return ALL(2.0f * GELU_IN) * (x + ALL(GELU_CUBIC) * x * x * x);
}

INLINE lanes
gelu_of(lanes x)
{
    return x * logistic(gelu_twice(x)).of;
}

INLINE lanes
relu_back_of(lanes y, lanes dy)
{
    return pick(y <= ALL(0.0f), ALL(0.0f), dy);
}

INLINE lanes
tanh_back_of(lanes y, lanes dy)
{
    return (ALL(1.0f) - y * y) * dy;
}

INLINE lanes
sigmoid_back_of(lanes y, lanes dy)
{
    return (y * (ALL(1.0f) - y)) * dy;
}

/* s + x s (1 - s) (2 u)'; beyond ±16 it is 1 or 0 to the last bit */
INLINE lanes
gelu_back_of(lanes x, lanes dy)
{
    const lanes low = pick(x > ALL(16.0f), ALL(16.0f), x);
    const lanes in = pick(low < ALL(-16.0f), ALL(-16.0f), low);
    const struct share s = logistic(gelu_twice(in));
    const lanes slope = ALL(2.0f * GELU_IN) *
                        (ALL(1.0f) + ALL(3.0f * GELU_CUBIC) * in * in);

    return (s.of + in * slope * (s.of * s.rest)) * dy;
}

INLINE lanes
add_of(lanes a, lanes b)
{
    return a + b;
}

INLINE lanes
square_root(lanes x)
{
#if RPS_NPU_BYTES == 64u
    return (lanes)_mm512_sqrt_ps((__m512)x);
#elif RPS_NPU_BYTES == 32u
    return (lanes)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
    return (lanes)_mm_sqrt_ps((__m128)x);
#else
    for (uint32_t l = 0; l < LANES; l++) {
        x[l] = sqrtf(x[l]);
    }
    return x;
#endif
}

/* The bits of the bf16 next to x, in the upper half; ties to even. */
INLINE words
bf16_bits(lanes x)
{
    const words bits = (words)x;
    /* signed sums may not overflow; the carry is that of the unsigned ones */
    typedef uint32_t naturals __attribute__((vector_size(RPS_NPU_BYTES)));
    const naturals odd = (naturals)(bits >> 16 & WORDS(1));
    const naturals sum = (naturals)bits + odd + RPS_BF16_HALF;
    const words quiet = bits | WORDS(RPS_BF16_QUIET << 16);
    const words nan = x != x;

    return ((nan & quiet) | (~nan & (words)sum)) & WORDS((int32_t)0xffff0000u);
}

INLINE lanes
round_of(lanes x)
{
    return (lanes)bf16_bits(x);
}

/* --- the set ---------------------------------------------------------------
 */

/* clang-format off */
#define APPLY(name)                                         \
    static void name##_all(const float *x, float *y, size_t n) \
    {                                                       \
        map(x, y, n, name##_of);                            \
    }
#define APPLY_BACK(name)                                    \
    static void name##_back_all(                            \
            const float *kept, const float *dy, float *dx, size_t n) \
    {                                                       \
        map_two(kept, dy, dx, n, name##_back_of);           \
    }
/* clang-format on */

APPLY(relu)
APPLY(gelu)
APPLY(tanh)
APPLY(sigmoid)
APPLY(round)
APPLY_BACK(relu)
APPLY_BACK(gelu)
APPLY_BACK(tanh)
APPLY_BACK(sigmoid)

static void
add_all(const float *a, const float *b, float *y, size_t n)
{
    map_two(a, b, y, n, add_of);
}

static void
scale_all(const float *x, float factor, float *y, size_t n)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        PUT(y + i) = AT(x + i) * factor;
    }
    for (; i < n; i++) {
        y[i] = x[i] * factor;
    }
}

static void
divide_all(const float *x, float by, float *y, size_t n)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        PUT(y + i) = AT(x + i) / by;
    }
    for (; i < n; i++) {
        y[i] = x[i] / by;
    }
}

static bool
finite_all(const float *x, size_t n)
{
    const words exponent = WORDS(0x7f800000);
    words bad = {0};
    size_t i = 0;
    bool good = true;

    for (; i + LANES <= n; i += LANES) {
        bad |= ((words)AT(x + i) & exponent) == exponent;
    }
    bad |= ((words)load(x + i, n - i) & exponent) == exponent;
    for (uint32_t l = 0; l < LANES; l++) {
        good = good && bad[l] == 0;
    }
    return good;
}

static void
widen_all(const uint16_t *x, float *y, size_t n)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        const halves in = *(const halves *)(const void *)(x + i);

        PUT(y + i) = (lanes)(__builtin_convertvector(in, words) << 16);
    }
    for (; i < n; i++) {
        y[i] = rps_float_of_bf16(x[i]);
    }
}

static void
narrow_all(const float *x, uint16_t *y, size_t n)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        const words bits = bf16_bits(AT(x + i)) >> 16;

        *(halves *)(void *)(y + i) = __builtin_convertvector(bits, halves);
    }
    for (; i < n; i++) {
        y[i] = rps_float_to_bf16(x[i]);
    }
}

static void
to_f64_all(const float *x, double *y, size_t n)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        *(row_doubles *)(void *)(y + i) =
                __builtin_convertvector(AT(x + i), row_doubles);
    }
    for (; i < n; i++) {
        y[i] = (double)x[i];
    }
}

static void
from_f64_all(const double *x, float *y, size_t n)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        PUT(y + i) = __builtin_convertvector(
                *(const row_doubles *)(const void *)(x + i), row_lanes);
    }
    for (; i < n; i++) {
        y[i] = (float)x[i];
    }
}

static void
add_f64_all(const float *x, double *sum, size_t n)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        *(row_doubles *)(void *)(sum + i) +=
                __builtin_convertvector(AT(x + i), row_doubles);
    }
    for (; i < n; i++) {
        sum[i] += (double)x[i];
    }
}

INLINE lanes
sgd_lanes(lanes w, lanes g, const struct rps_npu_step_numbers *c)
{
    return (float)c->keep * w - (float)c->rate * (g + (float)c->decay * w);
}

static void
sgd_all(float *w, const float *g, size_t n,
        const struct rps_npu_step_numbers *c)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        PUT(w + i) = sgd_lanes(AT(w + i), AT(g + i), c);
    }
    if (i < n) {
        const lanes new = sgd_lanes(load(w + i, n - i), load(g + i, n - i), c);

        memcpy(w + i, &new, (n - i) * sizeof(float));
    }
}

INLINE lanes
adam_lanes(lanes w, lanes g, lanes *m, lanes *v,
        const struct rps_npu_step_numbers *c)
{
    g = g + (float)c->decay * w;
    *m = (float)c->beta1 * *m + (float)c->beta1_rest * g;
    *v = (float)c->beta2 * *v + (float)c->beta2_rest * (g * g);
    return (float)c->keep * w -
           ((float)c->rate * *m) / (square_root(*v) + (float)c->epsilon);
}

static void
adam_all(float *w, const float *g, float *m, float *v, size_t n,
        const struct rps_npu_step_numbers *c)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        lanes mean = AT(m + i), square = AT(v + i);

        PUT(w + i) = adam_lanes(AT(w + i), AT(g + i), &mean, &square, c);
        PUT(m + i) = mean;
        PUT(v + i) = square;
    }
    if (i < n) {
        const size_t bytes = (n - i) * sizeof(float);
        lanes mean = load(m + i, n - i), square = load(v + i, n - i);
        const lanes new = adam_lanes(
                load(w + i, n - i), load(g + i, n - i), &mean, &square, c);

        memcpy(w + i, &new, bytes);
        memcpy(m + i, &mean, bytes);
        memcpy(v + i, &square, bytes);
    }
}

const struct rps_npu_elementwise RPS_NPU_SET = {
        .isa = RPS_NPU_ISA,
        .apply = {relu_all, gelu_all, tanh_all, sigmoid_all},
        .apply_back = {relu_back_all, gelu_back_all, tanh_back_all,
                sigmoid_back_all},
        .add = add_all,
        .scale = scale_all,
        .divide = divide_all,
        .finite = finite_all,
        .widen = widen_all,
        .narrow = narrow_all,
        .round = round_all,
        .to_f64 = to_f64_all,
        .from_f64 = from_f64_all,
        .add_f64 = add_f64_all,
        .sgd = sgd_all,
        .adam = adam_all,
};
