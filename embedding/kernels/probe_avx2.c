/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/kernels/kernels.h"

#include <immintrin.h>

/* Four bits a question: is it the key, is the place free. No branch: which
 * keys lie beyond their line cannot be foretold. */
static uint8_t
lane_of(const struct rps_index_line *line, __m256i key)
{
    const __m256i keys = _mm256_load_si256((const __m256i *)line->keys);
    const __m128i rows = _mm_load_si128((const __m128i *)line->rows);
    const unsigned same = (unsigned)_mm256_movemask_pd(
            _mm256_castsi256_pd(_mm256_cmpeq_epi64(keys, key)));
    const unsigned freed = (unsigned)_mm_movemask_ps(
            _mm_castsi128_ps(_mm_cmpeq_epi32(rows, _mm_setzero_si128())));
    const unsigned otherwise =
            freed != 0 ? 1u << RPS_LANE_ABSENT : 1u << RPS_LANE_BEYOND;

    return (uint8_t)__builtin_ctz((same & ~freed) | otherwise);
}

static void
probe_avx2(const struct rps_index_line *const *lines, const uint64_t *keys,
        size_t n, uint8_t *lanes)
{
    for (size_t i = 0; i < n; i++) {
        lanes[i] = lane_of(lines[i], _mm256_set1_epi64x((long long)keys[i]));
    }
}

void
rps_probe_init_avx2(struct rps_kernels *k)
{
    k->probe = probe_avx2;
}
