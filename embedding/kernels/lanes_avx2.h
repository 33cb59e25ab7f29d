/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight lanes (AVX2 and F16C). `count` is LANES, or less at the end of an
 * array: what is behind is neither read nor written, and loads as zeros.
 */
#ifndef RPS_EMBEDDING_KERNELS_LANES_AVX2_H
#define RPS_EMBEDDING_KERNELS_LANES_AVX2_H

#include "embedding/kernels/element.h"

#include <immintrin.h>

#define LANES 8u

typedef __m256 lanes;
typedef __m256 lanes_flaws;

static inline lanes
lanes_all(float x)
{
    return _mm256_set1_ps(x);
}

/* All ones in the first `count` of 8 lanes. */
static inline __m256i
lanes_mask(size_t count)
{
    static const int32_t ones_then_zeros[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

    return _mm256_loadu_si256(
            (const __m256i *)(const void *)(ones_then_zeros + 8 - count));
}

static inline lanes
lanes_load(const float *from, size_t count)
{
    return count == LANES ? _mm256_loadu_ps(from)
                          : _mm256_maskload_ps(from, lanes_mask(count));
}

/* By pieces: a masked store is slow on several CPUs. */
static inline void
lanes_store(float *to, size_t count, lanes x)
{
    __m128 part = _mm256_castps256_ps128(x);

    if (count == LANES) {
        _mm256_storeu_ps(to, x);
        return;
    }
    if ((count & 4) != 0) {
        _mm_storeu_ps(to, part);
        part = _mm256_extractf128_ps(x, 1);
        to += 4;
    }
    if ((count & 2) != 0) {
        _mm_storel_pi((__m64 *)(void *)to, part);
        part = _mm_movehl_ps(part, part);
        to += 2;
    }
    if ((count & 1) != 0) {
        _mm_store_ss(to, part);
    }
}

static inline lanes
lanes_root(lanes x)
{
    return _mm256_sqrt_ps(x);
}

static inline lanes
lanes_above(lanes a, lanes b, lanes yes, lanes no)
{
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
}

static inline lanes_flaws
lanes_flaws_none(void)
{
    return _mm256_setzero_ps();
}

static inline lanes_flaws
lanes_flaw(lanes_flaws flaws, lanes x, size_t count)
{
    __m256 flaw = _mm256_sub_ps(x, x);

    if (count != LANES) {
        flaw = _mm256_and_ps(flaw, _mm256_castsi256_ps(lanes_mask(count)));
    }
    return _mm256_or_ps(flaws, flaw);
}

static inline bool
lanes_flawless(lanes_flaws flaws)
{
    const __m256i bits = _mm256_castps_si256(flaws);

    return _mm256_testz_si256(bits, bits) != 0;
}

static inline __m128i
lanes_load_halves(const uint16_t *from, size_t count)
{
    uint16_t whole[LANES] = {0};

    if (count == LANES) {
        return _mm_loadu_si128((const __m128i *)(const void *)from);
    }
    memcpy(whole, from, count * sizeof(*from));
    return _mm_loadu_si128((const __m128i *)(const void *)whole);
}

static inline void
lanes_store_halves(uint16_t *to, size_t count, __m128i halves)
{
    uint16_t whole[LANES];

    if (count == LANES) {
        _mm_storeu_si128((__m128i *)(void *)to, halves);
        return;
    }
    _mm_storeu_si128((__m128i *)(void *)whole, halves);
    memcpy(to, whole, count * sizeof(*to));
}

static inline lanes
lanes_of_f16(const uint16_t *from, size_t count)
{
    return _mm256_cvtph_ps(lanes_load_halves(from, count));
}

static inline lanes
lanes_of_bf16(const uint16_t *from, size_t count)
{
    const __m256i wide = _mm256_cvtepu16_epi32(lanes_load_halves(from, count));

    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline void
lanes_to_f16(uint16_t *to, size_t count, lanes x)
{
    lanes_store_halves(
            to, count, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

static inline void
lanes_to_bf16(uint16_t *to, size_t count, lanes x)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i half =
            _mm256_add_epi32(odd, _mm256_set1_epi32((int)RPS_BF16_HALF));
    const __m256i near = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    const __m256i quiet =
            _mm256_or_si256(high, _mm256_set1_epi32(RPS_BF16_QUIET));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i word = _mm256_blendv_epi8(near, quiet, nan);

    lanes_store_halves(to, count,
            _mm_packus_epi32(_mm256_castsi256_si128(word),
                    _mm256_extracti128_si256(word, 1)));
}

#endif /* RPS_EMBEDDING_KERNELS_LANES_AVX2_H */
