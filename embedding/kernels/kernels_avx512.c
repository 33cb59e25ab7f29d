/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/kernels/hash.h"
#include "embedding/kernels/lanes_avx512.h"

static double
square_sum(const float *g, size_t n)
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

#include "embedding/kernels/step.h"

void
rps_kernels_init_avx512(struct rps_kernels *k)
{
    k->hash = hash_keys;
    k->square_sum = square_sum;
    vector_init(k);
    convert_init(k);
    gather_init(k);
    step_init(k);
}
