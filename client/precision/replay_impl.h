/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the laws (replay_*.c) share: inputs by their labels, checked; outputs
 * as references that they fill. The first thing that is wrong stays in the
 * call and makes what follows do nothing.
 */
#ifndef RPS_PRECISION_REPLAY_IMPL_H
#define RPS_PRECISION_REPLAY_IMPL_H

#include "client/precision/replay.h"

#define RPS_REPLAY_F32 0x1p-24 /* half of a last digit of 1 */
#define RPS_REPLAY_F64 0x1p-53
/* a subnormal f32's last digit: where products or parts of them underflow */
#define RPS_REPLAY_TINY 0x1p-149
/* below it functions may flush */
#define RPS_REPLAY_NORMAL 0x1p-126

/** What an output should be. */
struct rps_reference {
    const struct rps_dumped_tensor *tensor; /* borrowed; NULL: not wanted */
    uint64_t count;
    double *value;     /* [count]; zeros to begin with */
    double *tolerance; /* [count]; INFINITY: anything agrees */
};

/** An input. */
struct rps_operand {
    const struct rps_dumped_tensor *tensor; /* borrowed; NULL: there is none */
    const double *n;                        /* [count]; borrowed of the call */
    uint64_t count;
};

struct rps_replay_call {
    const struct rps_dumped_operator *op;
    bool mixed;   /* factors of products are rounded to bf16 */
    bool precise; /* sums and functions are f64 */
    struct rps_dumped_values inputs[RPS_DUMP_TENSORS_MAX];
    bool loaded[RPS_DUMP_TENSORS_MAX];
    struct rps_reference outputs[RPS_DUMP_TENSORS_MAX];
    enum rps_replay_verdict verdict; /* AGREES: so far nothing is wrong */
    bool no_memory;
    char words[RPS_ERROR_BYTES];
};

typedef void rps_replay_law(struct rps_replay_call *call);

/** The law cannot be followed: `verdict` and why. */
void rps_replay_stop(struct rps_replay_call *call,
        enum rps_replay_verdict verdict, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
static inline bool
rps_replay_stopped(const struct rps_replay_call *call)
{
    return call->verdict != RPS_REPLAY_AGREES || call->no_memory;
}

/** An input by one of its labels, "x" or "x|z"; none, or stopped: zeroed. */
struct rps_operand rps_replay_input(
        struct rps_replay_call *call, const char *labels);
/** The same, which the law cannot do without, of `count` elements
 * (UINT64_MAX: any). */
struct rps_operand rps_replay_need(
        struct rps_replay_call *call, const char *labels, uint64_t count);
/** The i-th input, whatever its label. */
struct rps_operand rps_replay_nth(struct rps_replay_call *call, uint32_t index);

/** An output's reference; NULL: it is not wanted, or stopped. */
struct rps_reference *rps_replay_output(
        struct rps_replay_call *call, const char *labels);
/** The same, which there must be, of `count` elements (UINT64_MAX: any). */
struct rps_reference *rps_replay_result(
        struct rps_replay_call *call, const char *labels, uint64_t count);
struct rps_reference *rps_replay_nth_output(
        struct rps_replay_call *call, uint32_t index);

/** rows * columns = count: of the last dimension. */
uint64_t rps_replay_columns(const struct rps_dumped_tensor *tensor);

/** [count] zeros that the caller frees; NULL: stopped, for lack of memory. */
double *rps_replay_array(struct rps_replay_call *call, uint64_t count);

/* Attributes. */

/** false: there is none. */
bool rps_replay_has_word(
        const struct rps_replay_call *call, const char *key, const char *word);
/** Stops where it is no number. */
double rps_replay_number(struct rps_replay_call *call, const char *key);
uint64_t rps_replay_whole(struct rps_replay_call *call, const char *key);

/** What stood in an output before, where the operator adds to it; stops where
 * it is not in the dump. */
struct rps_operand rps_replay_old(
        struct rps_replay_call *call, const char *labels, uint64_t count);

/* Arithmetic. */

/** To bf16, nearest, ties to even. */
double rps_replay_bf16(double x);

/** How far a sum of `terms` terms may be off. */
double rps_replay_sum_tolerance(const struct rps_replay_call *call,
        uint64_t terms, double magnitude, double value);

/** A factor of a product: element (i, j) is n[i * row + j * column]. */
struct rps_factor {
    const double *n;
    const double *error; /* of each, likewise; NULL: exact */
    uint64_t row, column;
};

/**
 * Sums in the making: value += a b, magnitude += |a| |b|, slack += error of a
 * times |b|.
 *
 * Shapes: a [m][k], b [k][n], all of the sums [m][n]; slack may be NULL.
 */
struct rps_sums {
    double *value;
    double *magnitude;
    double *slack;
};
void rps_replay_product(struct rps_replay_call *call, uint64_t m, uint64_t k,
        uint64_t n, const struct rps_factor *a, const struct rps_factor *b,
        const struct rps_sums *sums);

/** In mixed precision: x rounded, its error what rounding makes of `error`,
 * which may be NULL as its result then is. */
void rps_replay_round(const struct rps_replay_call *call, double *x,
        double *error, uint64_t count);

/* Functions of one number: "relu", "gelu", "tanh", "sigmoid". */

struct rps_replay_number {
    double value;
    double tolerance;
};
struct rps_replay_number rps_replay_apply(
        const struct rps_replay_call *call, const char *function, double x);
/** f'(kept) dy; kept: x of gelu, y of the others. */
struct rps_replay_number rps_replay_slope(const struct rps_replay_call *call,
        const char *function, double kept, double dy);

/* The laws. */

rps_replay_law rps_replay_linear, rps_replay_bias, rps_replay_linear_backward;
rps_replay_law rps_replay_function, rps_replay_function_backward;
rps_replay_law rps_replay_add, rps_replay_scale, rps_replay_fill;
rps_replay_law rps_replay_move, rps_replay_concat, rps_replay_split;
rps_replay_law rps_replay_dots, rps_replay_dots_backward;
rps_replay_law rps_replay_pooling, rps_replay_pooling_backward;
rps_replay_law rps_replay_scatter;
rps_replay_law rps_replay_bce, rps_replay_dropout;
rps_replay_law rps_replay_unscale, rps_replay_count, rps_replay_optimizer;

#endif /* RPS_PRECISION_REPLAY_IMPL_H */
