/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/kernels/hash.h"
#include "embedding/kernels/lanes_avx2.h"

static double
square_sum(const float *g, size_t n)
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

#include "embedding/kernels/step.h"

void
rps_kernels_init_avx2(struct rps_kernels *k)
{
    k->hash = hash_keys;
    k->square_sum = square_sum;
    vector_init(k);
    convert_init(k);
    gather_init(k);
    step_init(k);
}
