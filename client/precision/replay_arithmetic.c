/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of the laws: rounding, products, functions. Owns nothing. */
#include "client/precision/replay_impl.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- rounding ---------------------------------------------------------------
 */

#define BF16_DIGITS 8        /* of its fraction, the first one of which is 1 */
#define BF16_LAST   0x1p-133 /* of a subnormal */
#define BF16_BEYOND 0x1p128

double
rps_replay_bf16(double x)
{
    int exponent = 0;
    double last = 0.0, rounded = 0.0;

    if (x == 0.0 || !isfinite(x)) {
        return x;
    }
    (void)frexp(x, &exponent);
    last = ldexp(1.0, exponent - BF16_DIGITS);
    last = last > BF16_LAST ? last : BF16_LAST;
    rounded = rint(x / last) * last; /* ties to even is the default mode */
    return fabs(rounded) >= BF16_BEYOND ? copysign(INFINITY, x) : rounded;
}

void
rps_replay_round(const struct rps_replay_call *call, double *x, double *error,
        uint64_t count)
{
    for (uint64_t i = 0; call->mixed && i < count; i++) {
        const double rounded = rps_replay_bf16(x[i]);

        if (error != NULL && error[i] > 0.0) {
            const double up = rps_replay_bf16(x[i] + error[i]) - rounded;
            const double down = rounded - rps_replay_bf16(x[i] - error[i]);

            error[i] = up > down ? up : down;
        }
        x[i] = rounded;
    }
}

/* --- sums -------------------------------------------------------------------
 */

double
rps_replay_sum_tolerance(const struct rps_replay_call *call, uint64_t terms,
        double magnitude, double value)
{
    const double unit = call->precise ? RPS_REPLAY_F64 : RPS_REPLAY_F32;
    /* each product is rounded, too */
    const double all = ((double)terms + 1.0) * unit;

    if (!isfinite(magnitude)) { /* a NaN or an infinity in any order */
        return 0.0;
    }
    if ((!call->precise && magnitude > (double)FLT_MAX) || all >= 0.5) {
        return INFINITY;
    }
    return all / (1.0 - all) * magnitude + RPS_REPLAY_F32 * fabs(value) +
           ((double)terms + 1.0) * RPS_REPLAY_TINY;
}

/* A row of b times a number. */
static void
add_row(const struct rps_sums *sums, uint64_t first, uint64_t n, double a,
        double error, const double *b)
{
    double *value = sums->value + first;
    double *magnitude = sums->magnitude + first;

    for (uint64_t j = 0; j < n; j++) {
        const double term = a * b[j];

        value[j] += term;
        magnitude[j] += fabs(term);
    }
    if (sums->slack != NULL && error > 0.0) {
        for (uint64_t j = 0; j < n; j++) {
            sums->slack[first + j] += error * fabs(b[j]);
        }
    }
}

/* b in rows; NULL: it is already. */
static double *
lay_rows(struct rps_replay_call *call, const struct rps_factor *b, uint64_t k,
        uint64_t n)
{
    double *rows = NULL;

    if (b->column == 1 && b->row == n) {
        return NULL;
    }
    rows = rps_replay_array(call, k * n);
    for (uint64_t i = 0; rows != NULL && i < k; i++) {
        for (uint64_t j = 0; j < n; j++) {
            rows[i * n + j] = b->n[i * b->row + j * b->column];
        }
    }
    return rows;
}

void
rps_replay_product(struct rps_replay_call *call, uint64_t m, uint64_t k,
        uint64_t n, const struct rps_factor *a, const struct rps_factor *b,
        const struct rps_sums *sums)
{
    double *rows = NULL;

    if (rps_replay_stopped(call)) {
        return;
    }
    rows = lay_rows(call, b, k, n);
    for (uint64_t i = 0; !rps_replay_stopped(call) && i < m; i++) {
        for (uint64_t t = 0; t < k; t++) {
            const uint64_t at = i * a->row + t * a->column;

            add_row(sums, i * n, n, a->n[at],
                    a->error != NULL ? a->error[at] : 0.0,
                    (rows != NULL ? rows : b->n) + t * n);
        }
    }
    free(rows);
}

/* --- functions --------------------------------------------------------------
 */

#define GELU_IN    0.79788456080286535588 /* sqrt(2 / pi) */
#define GELU_CUBIC 0.044715
#define GELU_FLAT                                                      \
    32.0         /* beyond, its slope is 0 or 1 to an f64's last digit \
                  */
#define ULPS 8.0 /* of a function in f32, with some room */

/* The last digits of 1 in what is computed. */
static double
lost(const struct rps_replay_call *call)
{
    return call->precise ? 4.0 * RPS_REPLAY_F64 : 2.0 * RPS_REPLAY_F32;
}

static double
sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double
gelu_twice(double x)
{
    return 2.0 * GELU_IN * (x + GELU_CUBIC * x * x * x);
}

/* The unit of what is computed, then rounded to f32. */
static double
unit_of(const struct rps_replay_call *call)
{
    return call->precise ? 2.0 * RPS_REPLAY_F32 : ULPS * RPS_REPLAY_F32;
}

/* x / (1 + e^-t): where t is rounded, e^t moves by t's last digits. Who adds 1
 * and tanh, as the law is written, loses those of 1. */
static struct rps_replay_number
gelu(const struct rps_replay_call *call, double x)
{
    const double twice = gelu_twice(x);
    const double y = x * sigmoid(twice);
    const double moved = call->precise ? 0.0 : fabs(twice);

    if (isinf(x) && x < 0.0) { /* 0 times infinity, or its limit */
        return (struct rps_replay_number){.tolerance = INFINITY};
    }
    return (struct rps_replay_number){.value = y,
            .tolerance = y == 0.0 || isinf(twice)
                                 ? RPS_REPLAY_NORMAL
                                 : unit_of(call) * (1.0 + moved) * fabs(y) +
                                           lost(call) * fabs(x) +
                                           RPS_REPLAY_NORMAL};
}

struct rps_replay_number
rps_replay_apply(
        const struct rps_replay_call *call, const char *function, double x)
{
    double y = 0.0;

    if (strcmp(function, "relu") == 0) {
        return (struct rps_replay_number){.value = x <= 0.0 ? 0.0 : x};
    }
    if (strcmp(function, "gelu") == 0) {
        return gelu(call, x);
    }
    y = strcmp(function, "tanh") == 0 ? tanh(x) : sigmoid(x);
    return (struct rps_replay_number){.value = y,
            .tolerance = unit_of(call) * fabs(y) + RPS_REPLAY_NORMAL};
}

static struct rps_replay_number
gelu_slope(const struct rps_replay_call *call, double x, double dy)
{
    const double twice = gelu_twice(x);
    const double s = sigmoid(twice);
    const double rest = x * s * (1.0 - s) * 2.0 * GELU_IN *
                        (1.0 + 3.0 * GELU_CUBIC * x * x);
    const double moved = call->precise ? 0.0 : fabs(twice);

    if (fabs(x) > GELU_FLAT) {
        return (struct rps_replay_number){.value = x > 0.0 ? dy : 0.0 * dy,
                .tolerance = RPS_REPLAY_NORMAL * (1.0 + fabs(dy)) +
                             unit_of(call) * fabs(x > 0.0 ? dy : 0.0)};
    }
    return (struct rps_replay_number){.value = (s + rest) * dy,
            .tolerance =
                    (unit_of(call) * (1.0 + moved) * (fabs(s) + fabs(rest)) +
                            lost(call) + RPS_REPLAY_NORMAL) *
                            fabs(dy) +
                    RPS_REPLAY_NORMAL};
}

struct rps_replay_number
rps_replay_slope(const struct rps_replay_call *call, const char *function,
        double kept, double dy)
{
    double slope = 0.0, size = 1.0;

    if (strcmp(function, "relu") == 0) {
        return (struct rps_replay_number){.value = kept <= 0.0 ? 0.0 : dy};
    }
    if (strcmp(function, "gelu") == 0) {
        return gelu_slope(call, kept, dy);
    }
    if (strcmp(function, "tanh") == 0) {
        slope = 1.0 - kept * kept;
        size = 1.0 + kept * kept; /* the difference loses digits */
    } else {
        slope = kept * (1.0 - kept);
        size = fabs(kept) * (1.0 + fabs(kept));
    }
    return (struct rps_replay_number){.value = slope * dy,
            .tolerance = unit_of(call) * size * fabs(dy) + RPS_REPLAY_NORMAL};
}
