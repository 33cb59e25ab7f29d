/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/kernels/element.h"
#include "embedding/kernels/kernels.h"

#include <immintrin.h>

static void
add_avx2(float *restrict sum, const float *restrict g, size_t n)
{
    size_t j = 0;

    for (; j + 8 <= n; j += 8) {
        _mm256_storeu_ps(sum + j, _mm256_add_ps(_mm256_loadu_ps(sum + j),
                                          _mm256_loadu_ps(g + j)));
    }
    for (; j < n; j++) {
        sum[j] += g[j];
    }
}

static void
scale_avx2(float *g, float factor, size_t n)
{
    const __m256 factors = _mm256_set1_ps(factor);
    size_t j = 0;

    for (; j + 8 <= n; j += 8) {
        _mm256_storeu_ps(g + j, _mm256_mul_ps(_mm256_loadu_ps(g + j), factors));
    }
    for (; j < n; j++) {
        g[j] *= factor;
    }
}

static void
clip_avx2(float *g, float limit, size_t n)
{
    const __m256 high = _mm256_set1_ps(limit);
    const __m256 low = _mm256_set1_ps(-limit);
    size_t j = 0;

    for (; j + 8 <= n; j += 8) {
        __m256 x = _mm256_max_ps(_mm256_loadu_ps(g + j), low);
        _mm256_storeu_ps(g + j, _mm256_min_ps(x, high));
    }
    for (; j < n; j++) {
        g[j] = element_clip(g[j], limit);
    }
}

static bool
finite_avx2(const float *g, size_t n)
{
    const __m256i exponent = _mm256_set1_epi32(0x7f800000);
    __m256i bad = _mm256_setzero_si256();
    bool finite = true;
    size_t j = 0;

    for (; j + 8 <= n; j += 8) {
        __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(g + j));
        bits = _mm256_and_si256(bits, exponent);
        bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(bits, exponent));
    }
    for (; j < n; j++) {
        finite = finite && element_finite(g[j]);
    }
    return finite && _mm256_testz_si256(bad, bad);
}

static double
square_sum_avx2(const float *g, size_t n)
{
    double sums[RPS_SQUARE_SUMS];
    __m256d part[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(),
            _mm256_setzero_pd(), _mm256_setzero_pd()};
    size_t j = 0;

    for (; j + 16 <= n; j += 16) {
        for (size_t i = 0; i < 4; i++) {
            __m256d x = _mm256_cvtps_pd(_mm_loadu_ps(g + j + 4 * i));
            part[i] = _mm256_add_pd(part[i], _mm256_mul_pd(x, x));
        }
    }
    for (size_t i = 0; i < 4; i++) {
        _mm256_storeu_pd(sums + 4 * i, part[i]);
    }
    return element_square_sum(sums, g, j, n);
}

static void
sgd_avx2(float *restrict w, const float *restrict g, float lr, size_t n)
{
    const __m256 rate = _mm256_set1_ps(lr);
    size_t j = 0;

    for (; j + 8 <= n; j += 8) {
        __m256 delta = _mm256_mul_ps(rate, _mm256_loadu_ps(g + j));
        _mm256_storeu_ps(w + j, _mm256_sub_ps(_mm256_loadu_ps(w + j), delta));
    }
    for (; j < n; j++) {
        element_sgd(&w[j], g[j], lr);
    }
}

static void
adagrad_avx2(float *restrict w, float *restrict a, const float *restrict g,
        float lr, size_t n)
{
    const __m256 rate = _mm256_set1_ps(lr);
    const __m256 zero = _mm256_setzero_ps();
    size_t j = 0;

    for (; j + 8 <= n; j += 8) {
        const __m256 x = _mm256_loadu_ps(g + j);
        const __m256 old = _mm256_loadu_ps(w + j);
        const __m256 sum =
                _mm256_add_ps(_mm256_loadu_ps(a + j), _mm256_mul_ps(x, x));
        const __m256 delta =
                _mm256_div_ps(_mm256_mul_ps(rate, x), _mm256_sqrt_ps(sum));
        const __m256 moves = _mm256_cmp_ps(sum, zero, _CMP_GT_OQ);
        _mm256_storeu_ps(a + j, sum);
        _mm256_storeu_ps(
                w + j, _mm256_blendv_ps(old, _mm256_sub_ps(old, delta), moves));
    }
    for (; j < n; j++) {
        element_adagrad(&w[j], &a[j], g[j], lr);
    }
}

static void
adam_avx2(float *restrict w, float *restrict m, float *restrict v,
        const float *restrict g, const struct rps_adam *c, size_t n)
{
    const __m256 rate = _mm256_set1_ps(c->rate);
    const __m256 beta1 = _mm256_set1_ps(c->beta1);
    const __m256 beta1_rest = _mm256_set1_ps(c->beta1_rest);
    const __m256 beta2 = _mm256_set1_ps(c->beta2);
    const __m256 beta2_rest = _mm256_set1_ps(c->beta2_rest);
    const __m256 epsilon = _mm256_set1_ps(c->epsilon);
    size_t j = 0;

    for (; j + 8 <= n; j += 8) {
        const __m256 x = _mm256_loadu_ps(g + j);
        const __m256 m1 =
                _mm256_add_ps(_mm256_mul_ps(beta1, _mm256_loadu_ps(m + j)),
                        _mm256_mul_ps(beta1_rest, x));
        const __m256 v1 =
                _mm256_add_ps(_mm256_mul_ps(beta2, _mm256_loadu_ps(v + j)),
                        _mm256_mul_ps(beta2_rest, _mm256_mul_ps(x, x)));
        const __m256 delta = _mm256_div_ps(_mm256_mul_ps(rate, m1),
                _mm256_add_ps(_mm256_sqrt_ps(v1), epsilon));
        _mm256_storeu_ps(m + j, m1);
        _mm256_storeu_ps(v + j, v1);
        _mm256_storeu_ps(w + j, _mm256_sub_ps(_mm256_loadu_ps(w + j), delta));
    }
    for (; j < n; j++) {
        element_adam(&w[j], &m[j], &v[j], g[j], c);
    }
}

void
rps_kernels_init_avx2(struct rps_kernels *k)
{
    k->add = add_avx2;
    k->scale = scale_avx2;
    k->clip = clip_avx2;
    k->finite = finite_avx2;
    k->square_sum = square_sum_avx2;
    k->sgd = sgd_avx2;
    k->adagrad = adagrad_avx2;
    k->adam = adam_avx2;
}
