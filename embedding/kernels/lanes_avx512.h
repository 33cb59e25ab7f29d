/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sixteen lanes (AVX-512F). `count` is LANES, or less at the end of an
 * array: what is behind is neither read nor written, and loads as zeros.
 */
#ifndef RPS_EMBEDDING_KERNELS_LANES_AVX512_H
#define RPS_EMBEDDING_KERNELS_LANES_AVX512_H

#include "embedding/kernels/element.h"

#include <immintrin.h>

#define LANES 16u

typedef __m512 lanes;
typedef __m512i lanes_flaws;

static inline lanes
lanes_all(float x)
{
    return _mm512_set1_ps(x);
}

static inline __mmask16
lanes_mask(size_t count)
{
    return (__mmask16)((1u << count) - 1u);
}

static inline lanes
lanes_load(const float *from, size_t count)
{
    return count == LANES ? _mm512_loadu_ps(from)
                          : _mm512_maskz_loadu_ps(lanes_mask(count), from);
}

static inline void
lanes_store(float *to, size_t count, lanes x)
{
    if (count == LANES) {
        _mm512_storeu_ps(to, x);
    } else {
        _mm512_mask_storeu_ps(to, lanes_mask(count), x);
    }
}

static inline lanes
lanes_root(lanes x)
{
    return _mm512_sqrt_ps(x);
}

static inline lanes
lanes_above(lanes a, lanes b, lanes yes, lanes no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), no, yes);
}

static inline lanes_flaws
lanes_flaws_none(void)
{
    return _mm512_setzero_si512();
}

static inline lanes_flaws
lanes_flaw(lanes_flaws flaws, lanes x, size_t count)
{
    const __m512i flaw = _mm512_castps_si512(_mm512_sub_ps(x, x));

    return count == LANES ? _mm512_or_si512(flaws, flaw)
                          : _mm512_mask_or_epi32(
                                    flaws, lanes_mask(count), flaws, flaw);
}

static inline bool
lanes_flawless(lanes_flaws flaws)
{
    return _mm512_test_epi32_mask(flaws, flaws) == 0;
}

/* Eight halves (a row of dim 8) come and go as one register. */
static inline __m256i
lanes_load_halves(const uint16_t *from, size_t count)
{
    uint16_t whole[LANES] = {0};

    if (count == LANES) {
        return _mm256_loadu_si256((const __m256i *)(const void *)from);
    }
    if (count == LANES / 2) {
        return _mm256_inserti128_si256(_mm256_setzero_si256(),
                _mm_loadu_si128((const __m128i *)(const void *)from), 0);
    }
    memcpy(whole, from, count * sizeof(*from));
    return _mm256_loadu_si256((const __m256i *)(const void *)whole);
}

static inline void
lanes_store_halves(uint16_t *to, size_t count, __m256i halves)
{
    uint16_t whole[LANES];

    if (count == LANES) {
        _mm256_storeu_si256((__m256i *)(void *)to, halves);
    } else if (count == LANES / 2) {
        _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(halves));
    } else {
        _mm256_storeu_si256((__m256i *)(void *)whole, halves);
        memcpy(to, whole, count * sizeof(*to));
    }
}

static inline lanes
lanes_of_f16(const uint16_t *from, size_t count)
{
    return _mm512_cvtph_ps(lanes_load_halves(from, count));
}

static inline lanes
lanes_of_bf16(const uint16_t *from, size_t count)
{
    const __m512i wide = _mm512_cvtepu16_epi32(lanes_load_halves(from, count));

    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline void
lanes_to_f16(uint16_t *to, size_t count, lanes x)
{
    lanes_store_halves(
            to, count, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

static inline void
lanes_to_bf16(uint16_t *to, size_t count, lanes x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i half =
            _mm512_add_epi32(odd, _mm512_set1_epi32((int)RPS_BF16_HALF));
    const __m512i near = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
    const __m512i quiet =
            _mm512_or_si512(high, _mm512_set1_epi32(RPS_BF16_QUIET));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);

    lanes_store_halves(to, count,
            _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, near, quiet)));
}

#endif /* RPS_EMBEDDING_KERNELS_LANES_AVX512_H */
