/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a row as their files hold them, by type. */
#ifndef RPS_EMBEDDING_CHECKPOINT_VALUES_H
#define RPS_EMBEDDING_CHECKPOINT_VALUES_H

#include <recps/types.h>

#include <stdbool.h>
#include <stddef.h>

/**
 * NumPy's name of the array items: "<f4", "<f2"; bfloat16, which NumPy does
 * not have, is its bits, "<u2".
 */
const char *rps_ckpt_value_dtype(enum rps_value type);

/** Bytes of a row's values: dim items, nothing between or behind them. */
size_t rps_ckpt_value_bytes(const rps_table_spec *spec);

/** No NaN and no infinity among n values. */
bool rps_ckpt_values_finite(enum rps_value type, const void *values, size_t n);

/** floats[n] of n values: exact, but for i8, which no table has. */
void rps_ckpt_values_floats(
        enum rps_value type, const void *values, size_t n, float *floats);

/** The way back, rounded to the nearest (of two, the even one); what a
 * shorter type cannot hold becomes an infinity. `values` may be `floats`. */
void rps_ckpt_values_of_floats(
        enum rps_value type, const float *floats, size_t n, void *values);

/** What the slots of a new row hold: all of the spec's floats. */
void rps_ckpt_slots_fresh(const rps_table_spec *spec, float *slots);

#endif /* RPS_EMBEDDING_CHECKPOINT_VALUES_H */
