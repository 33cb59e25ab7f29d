/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/kernels/element.h"
#include "embedding/kernels/kernels.h"

#include <immintrin.h>

static void
add_avx512(float *restrict sum, const float *restrict g, size_t n)
{
    size_t j = 0;

    for (; j + 16 <= n; j += 16) {
        _mm512_storeu_ps(sum + j, _mm512_add_ps(_mm512_loadu_ps(sum + j),
                                          _mm512_loadu_ps(g + j)));
    }
    for (; j < n; j++) {
        sum[j] += g[j];
    }
}

static void
scale_avx512(float *g, float factor, size_t n)
{
    const __m512 factors = _mm512_set1_ps(factor);
    size_t j = 0;

    for (; j + 16 <= n; j += 16) {
        _mm512_storeu_ps(g + j, _mm512_mul_ps(_mm512_loadu_ps(g + j), factors));
    }
    for (; j < n; j++) {
        g[j] *= factor;
    }
}

static void
clip_avx512(float *g, float limit, size_t n)
{
    const __m512 high = _mm512_set1_ps(limit);
    const __m512 low = _mm512_set1_ps(-limit);
    size_t j = 0;

    for (; j + 16 <= n; j += 16) {
        __m512 x = _mm512_max_ps(_mm512_loadu_ps(g + j), low);
        _mm512_storeu_ps(g + j, _mm512_min_ps(x, high));
    }
    for (; j < n; j++) {
        g[j] = element_clip(g[j], limit);
    }
}

static bool
finite_avx512(const float *g, size_t n)
{
    const __m512i exponent = _mm512_set1_epi32(0x7f800000);
    __mmask16 bad = 0;
    bool finite = true;
    size_t j = 0;

    for (; j + 16 <= n; j += 16) {
        __m512i bits = _mm512_castps_si512(_mm512_loadu_ps(g + j));
        bits = _mm512_and_si512(bits, exponent);
        bad = (__mmask16)(bad | _mm512_cmpeq_epi32_mask(bits, exponent));
    }
    for (; j < n; j++) {
        finite = finite && element_finite(g[j]);
    }
    return finite && bad == 0;
}

static double
square_sum_avx512(const float *g, size_t n)
{
    double sums[RPS_SQUARE_SUMS];
    __m512d low = _mm512_setzero_pd();
    __m512d high = _mm512_setzero_pd();
    size_t j = 0;

    for (; j + 16 <= n; j += 16) {
        const __m512d x = _mm512_cvtps_pd(_mm256_loadu_ps(g + j));
        const __m512d y = _mm512_cvtps_pd(_mm256_loadu_ps(g + j + 8));
        low = _mm512_add_pd(low, _mm512_mul_pd(x, x));
        high = _mm512_add_pd(high, _mm512_mul_pd(y, y));
    }
    _mm512_storeu_pd(sums, low);
    _mm512_storeu_pd(sums + 8, high);
    return element_square_sum(sums, g, j, n);
}

static void
sgd_avx512(float *restrict w, const float *restrict g, float lr, size_t n)
{
    const __m512 rate = _mm512_set1_ps(lr);
    size_t j = 0;

    for (; j + 16 <= n; j += 16) {
        __m512 delta = _mm512_mul_ps(rate, _mm512_loadu_ps(g + j));
        _mm512_storeu_ps(w + j, _mm512_sub_ps(_mm512_loadu_ps(w + j), delta));
    }
    for (; j < n; j++) {
        element_sgd(&w[j], g[j], lr);
    }
}

static void
adagrad_avx512(float *restrict w, float *restrict a, const float *restrict g,
        float lr, size_t n)
{
    const __m512 rate = _mm512_set1_ps(lr);
    const __m512 zero = _mm512_setzero_ps();
    size_t j = 0;

    for (; j + 16 <= n; j += 16) {
        const __m512 x = _mm512_loadu_ps(g + j);
        const __m512 old = _mm512_loadu_ps(w + j);
        const __m512 sum =
                _mm512_add_ps(_mm512_loadu_ps(a + j), _mm512_mul_ps(x, x));
        const __m512 delta =
                _mm512_div_ps(_mm512_mul_ps(rate, x), _mm512_sqrt_ps(sum));
        const __mmask16 moves = _mm512_cmp_ps_mask(sum, zero, _CMP_GT_OQ);
        _mm512_storeu_ps(a + j, sum);
        _mm512_storeu_ps(w + j, _mm512_mask_sub_ps(old, moves, old, delta));
    }
    for (; j < n; j++) {
        element_adagrad(&w[j], &a[j], g[j], lr);
    }
}

static void
adam_avx512(float *restrict w, float *restrict m, float *restrict v,
        const float *restrict g, const struct rps_adam *c, size_t n)
{
    const __m512 rate = _mm512_set1_ps(c->rate);
    const __m512 beta1 = _mm512_set1_ps(c->beta1);
    const __m512 beta1_rest = _mm512_set1_ps(c->beta1_rest);
    const __m512 beta2 = _mm512_set1_ps(c->beta2);
    const __m512 beta2_rest = _mm512_set1_ps(c->beta2_rest);
    const __m512 epsilon = _mm512_set1_ps(c->epsilon);
    size_t j = 0;

    for (; j + 16 <= n; j += 16) {
        const __m512 x = _mm512_loadu_ps(g + j);
        const __m512 m1 =
                _mm512_add_ps(_mm512_mul_ps(beta1, _mm512_loadu_ps(m + j)),
                        _mm512_mul_ps(beta1_rest, x));
        const __m512 v1 =
                _mm512_add_ps(_mm512_mul_ps(beta2, _mm512_loadu_ps(v + j)),
                        _mm512_mul_ps(beta2_rest, _mm512_mul_ps(x, x)));
        const __m512 delta = _mm512_div_ps(_mm512_mul_ps(rate, m1),
                _mm512_add_ps(_mm512_sqrt_ps(v1), epsilon));
        _mm512_storeu_ps(m + j, m1);
        _mm512_storeu_ps(v + j, v1);
        _mm512_storeu_ps(w + j, _mm512_sub_ps(_mm512_loadu_ps(w + j), delta));
    }
    for (; j < n; j++) {
        element_adam(&w[j], &m[j], &v[j], g[j], c);
    }
}

void
rps_kernels_init_avx512(struct rps_kernels *k)
{
    k->add = add_avx512;
    k->scale = scale_avx512;
    k->clip = clip_avx512;
    k->finite = finite_avx512;
    k->square_sum = square_sum_avx512;
    k->sgd = sgd_avx512;
    k->adagrad = adagrad_avx512;
    k->adam = adam_avx512;
}
