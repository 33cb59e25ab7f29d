/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options that the benchmarks share. Each function answers 0, or EX_USAGE
 * after saying on stderr what is wrong; `program` begins those lines.
 */
#ifndef RPS_BENCH_OPTIONS_H
#define RPS_BENCH_OPTIONS_H

#include "bench/dist.h"

#include <recps/types.h>

#include <stddef.h>
#include <stdint.h>

#define BENCH_BATCH_MAX (1u << 20)
#define BENCH_WORD_MAX  64u

enum bench_op {
    BENCH_OP_LOOKUP,
    BENCH_OP_PUSH,
    BENCH_OP_INSERT,
    BENCH_OP_COUNT
};

int bench_refuse(const char *program, const char *what, const char *value,
        const char *allowed);

/** From 1 to `most`. */
int bench_set_number(const char *program, uint64_t *out, const char *what,
        const char *text, uint64_t most);

int bench_set_dist(
        const char *program, const char *text, struct bench_dist_spec *dist);

/** "lookup:80,push:15,insert:5" */
int bench_set_mix(const char *program, const char *text,
        uint64_t weights[BENCH_OP_COUNT]);

/** f32, f16 or bf16. */
int bench_set_value(
        const char *program, const char *text, enum rps_value *value);
int bench_set_optimizer(
        const char *program, const char *text, enum rps_optimizer *optimizer);
int bench_set_seconds(const char *program, const char *text, double *seconds);
int bench_set_seed(const char *program, const char *text, uint64_t *seed);

/**
 * The next word of *at up to `mark`, NUL-terminated; NULL: none is left, or
 * too long a one.
 */
const char *bench_next_word(
        const char **at, char mark, char word[BENCH_WORD_MAX]);

/** "f32", "f16", "bf16", "i8". */
const char *bench_value_str(enum rps_value value);

#endif /* RPS_BENCH_OPTIONS_H */
