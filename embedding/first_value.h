/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first value of a row: a function of (seed, table name, key, column)
 * and the initializer alone, so that any PS, in any order, answers the same
 * before and after the row exists. docs/TABLE.md has the formulas.
 */
#ifndef RPS_EMBEDDING_FIRST_VALUE_H
#define RPS_EMBEDDING_FIRST_VALUE_H

#include "base/draw.h"

#include <recps/types.h>

#include <stddef.h>
#include <stdint.h>

struct rps_first_value {
    uint64_t stream; /* of the table: seed and name */
    struct rps_uniform uniform;
    double mean;      /* of the normal kinds */
    double deviation; /* of the normal kinds */
    enum rps_initializer initializer;
};

void rps_first_value_init(
        struct rps_first_value *first, const rps_table_spec *spec);

/** Columns 0..n-1 of the row of `key`. */
void rps_first_value_fill(const struct rps_first_value *first, uint64_t key,
        float *row, size_t n);

#endif /* RPS_EMBEDDING_FIRST_VALUE_H */
