/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of floats as they travel: enum rps_value of a ROWS section. A row has
 *
 *   f32    dim floats                                   4 dim bytes
 *   f16    dim IEEE binary16                            2 dim bytes
 *   bf16   dim bfloat16                                 2 dim bytes
 *   i8     f32 scale | dim signed bytes | zeros up to   4 + dim, up to a
 *          a multiple of 4                              multiple of 4
 *
 * so that rows, one behind the other, keep their elements aligned.
 *
 * f16 and bf16: to nearest, ties to even; what is beyond the type is an
 * infinity (f16: 65520 and more). i8 is symmetric: with m the row's largest
 * size, scale = m / 127 (the next float below where 127 scale would be
 * infinite), q = x / scale to nearest, ties to even, at most 127 in size; x
 * is read as q scale. A scale is finite and not negative, or it is NaN: then
 * the row had an element that is not finite, and every element reads NaN.
 */
#ifndef RPS_PROTO_VALUE_H
#define RPS_PROTO_VALUE_H

#include "base/error.h"

#include <recps/types.h>

#include <stddef.h>
#include <stdint.h>

/** What the bags of one frame may add up, occurrences x dim, in floats: 64
 * times what a frame can hold, for reuse is what they are for; and no frame
 * keeps a loop for seconds. */
#define RPS_BAG_FLOATS_MAX (1u << 28)

/** Bytes of a row; 0: no such type. */
uint64_t rps_value_row_bytes(uint16_t value, uint32_t dim);

/** "f32"; "?" for others. */
const char *rps_value_str(uint16_t value);

/**
 * rows[n][dim] become `to`, n rows of the type, one behind the other.
 * Every bit of `to` is written.
 */
void rps_value_encode(
        uint16_t value, uint32_t dim, size_t n, const float *rows, void *to);

/** The other way. i8: scales must have been checked. */
void rps_value_decode(
        uint16_t value, uint32_t dim, size_t n, const void *from, float *rows);

/** The scales of i8; other types have nothing to check. INVAL names the
 * first row whose scale is negative or infinite. */
rps_status rps_value_check(uint16_t value, uint32_t dim, uint64_t n,
        const void *from, struct rps_error *error);

#endif /* RPS_PROTO_VALUE_H */
