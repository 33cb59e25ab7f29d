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

/* The rows of a line, 64 bits each, but 0 where the place is another key's.
 * That of a free place is 0, too. */
static inline __m256i
rows_of(const struct rps_index_line *line, __m256i key)
{
    const __m256i keys = _mm256_load_si256((const __m256i *)line->keys);
    const __m128i rows = _mm_load_si128((const __m128i *)line->rows);

    return _mm256_and_si256(
            _mm256_cmpeq_epi64(keys, key), _mm256_cvtepu32_epi64(rows));
}

/* Bit i: rows[i] is 0; i < n. */
static uint64_t
zeros_of(const uint32_t *rows, size_t n)
{
    uint64_t zeros = 0;

    for (size_t i = 0; i < n; i += 8) {
        const __m256i eight =
                _mm256_loadu_si256((const __m256i *)(const void *)(rows + i));
        const __m256i is_zero =
                _mm256_cmpeq_epi32(eight, _mm256_setzero_si256());
        const uint64_t mask =
                (uint64_t)_mm256_movemask_ps(_mm256_castsi256_ps(is_zero));
        zeros |= mask << i;
    }
    return n % 64 == 0 ? zeros : zeros & (((uint64_t)1 << n % 64) - 1);
}

/* At most one row is not 0: OR joins them. */
static inline __attribute__((always_inline)) uint64_t
find(const struct rps_index_line *const *lines, size_t width,
        const uint64_t *keys, size_t n, uint32_t *rows)
{
    for (size_t i = 0; i < n; i++) {
        const __m256i key = _mm256_set1_epi64x((long long)keys[i]);
        __m256i four = rows_of(lines[i * width], key);
        __m128i two;
        for (size_t j = 1; j < width; j++) {
            four = _mm256_or_si256(four, rows_of(lines[i * width + j], key));
        }
        two = _mm_or_si128(_mm256_castsi256_si128(four),
                _mm256_extracti128_si256(four, 1));
        two = _mm_or_si128(two, _mm_unpackhi_epi64(two, two));
        rows[i] = (uint32_t)_mm_cvtsi128_si32(two);
    }
    return zeros_of(rows, n);
}

static uint64_t
find_avx2(const struct rps_index_line *const *lines, size_t width,
        const uint64_t *keys, size_t n, uint32_t *rows)
{
    return width == 1 ? find(lines, 1, keys, n, rows)
                      : find(lines, RPS_LINES_NEXT, keys, n, rows);
}

void
rps_probe_init_avx2(struct rps_kernels *k)
{
    k->probe = probe_avx2;
    k->find = find_avx2;
}
