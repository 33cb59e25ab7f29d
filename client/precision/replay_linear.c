/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers: z = x W^T + b, y = act(z); dz = act'(kept) dy, db = sum of dz over
 * rows, dW = dz^T x, dx = dz W. The parts of a layer by the operator's type:
 * "linear" of an unfused layer adds to what its output holds.
 */
#include "client/precision/replay_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The inputs of a product, rounded where factors are. */
static double *
take_factor(struct rps_replay_call *call, const struct rps_operand *operand)
{
    double *copy = rps_replay_array(call, operand->count);

    if (copy != NULL) {
        memcpy(copy, operand->n, operand->count * sizeof(double));
        rps_replay_round(call, copy, NULL, operand->count);
    }
    return copy;
}

/* From magnitudes, where sums of `terms` are ready, to tolerances. */
static void
end_sums(const struct rps_replay_call *call, struct rps_reference *sums,
        const double *slack, uint64_t terms)
{
    for (uint64_t i = 0; i < sums->count; i++) {
        sums->tolerance[i] = rps_replay_sum_tolerance(call, terms,
                                     sums->tolerance[i], sums->value[i]) +
                             (slack != NULL ? slack[i] : 0.0);
    }
}

/* Every row of the sums begins with `from`, of one row or of all. */
static void
begin_sums(struct rps_reference *sums, const struct rps_operand *from)
{
    for (uint64_t i = 0; from->count > 0 && i < sums->count; i++) {
        sums->value[i] = from->n[i % from->count];
        sums->tolerance[i] = fabs(sums->value[i]);
    }
}

/* --- forward ----------------------------------------------------------------
 */

static const char *
activation_of(const struct rps_replay_call *call)
{
    const char *under = strchr(call->op->type, '_');

    return under != NULL ? under + 1 : NULL;
}

/* y from z, which is off by its own tolerance; neither slope is above 1.13. */
static void
activate(const struct rps_replay_call *call, const char *function,
        const struct rps_reference *z, struct rps_reference *y)
{
    for (uint64_t i = 0; i < z->count; i++) {
        const struct rps_replay_number number =
                rps_replay_apply(call, function, z->value[i]);

        y->tolerance[i] = 1.13 * z->tolerance[i] + number.tolerance;
        y->value[i] = number.value;
    }
}

static void
multiply(struct rps_replay_call *call, struct rps_reference *z)
{
    const struct rps_operand x = rps_replay_need(call, "x", UINT64_MAX);
    const uint64_t in = x.tensor != NULL ? rps_replay_columns(x.tensor) : 0;
    const uint64_t out = z != NULL ? rps_replay_columns(z->tensor) : 0;
    const struct rps_operand weight = rps_replay_need(call, "weight", out * in);
    double *a = NULL, *b = NULL;

    if (rps_replay_stopped(call) || z == NULL || in == 0 || out == 0) {
        return;
    }
    if (x.count / in != z->count / out) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "its input x and its output have other numbers of rows");
        return;
    }
    a = take_factor(call, &x);
    b = take_factor(call, &weight);
    rps_replay_product(call, x.count / in, in, out,
            &(struct rps_factor){.n = a, .row = in, .column = 1},
            &(struct rps_factor){.n = b, .row = 1, .column = in},
            &(struct rps_sums){.value = z->value, .magnitude = z->tolerance});
    free(a);
    free(b);
    if (!rps_replay_stopped(call)) {
        end_sums(call, z, NULL, in + 1);
    }
}

void
rps_replay_linear(struct rps_replay_call *call)
{
    const char *function = activation_of(call);
    struct rps_reference *kept = rps_replay_output(call, "z");
    struct rps_reference *y = rps_replay_output(call, "y");
    struct rps_reference *z = kept;
    const struct rps_operand bias = rps_replay_input(call, "bias");
    struct rps_operand from = bias;

    if (z == NULL) {
        z = y != NULL ? y : rps_replay_result(call, "y", UINT64_MAX);
    }
    if (z == NULL) {
        return;
    }
    y = y != NULL ? y : z;
    if (bias.tensor == NULL) {
        from = rps_replay_old(call, "y|z", z->count);
    } else if (bias.count != rps_replay_columns(z->tensor)) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "its bias has another number of columns than its output");
    }
    if (rps_replay_stopped(call)) {
        return;
    }
    begin_sums(z, &from);
    if (rps_replay_input(call, "x").tensor == NULL && bias.tensor != NULL) {
        end_sums(call, z, NULL, 1); /* a learned constant */
    } else {
        multiply(call, z);
    }
    if (rps_replay_stopped(call)) {
        return;
    }
    if (function != NULL) {
        activate(call, function, z, y);
    } else if (y != z) {
        memcpy(y->value, z->value, z->count * sizeof(double));
        memcpy(y->tolerance, z->tolerance, z->count * sizeof(double));
    }
}

void
rps_replay_bias(struct rps_replay_call *call)
{
    struct rps_reference *y = rps_replay_result(call, "y|z", UINT64_MAX);
    const struct rps_operand bias = rps_replay_need(call, "bias",
            y != NULL ? rps_replay_columns(y->tensor) : UINT64_MAX);

    for (uint64_t i = 0; !rps_replay_stopped(call) && i < y->count; i++) {
        y->value[i] = bias.n[i % bias.count];
    }
}

/* --- backward ---------------------------------------------------------------
 */

struct gradient {
    uint64_t rows, out;
    double *dz;    /* [rows][out] */
    double *error; /* of each; NULL: exact */
};

/* What dy is multiplied with; NULL: nothing. */
static const char *
slope_of(const struct rps_replay_call *call)
{
    const char *holds = call->op->holds != NULL ? call->op->holds : "";

    if (rps_replay_has_word(call, "activation", "gelu") ||
            strstr(holds, "gelu_backward") != NULL) {
        return "gelu";
    }
    return rps_replay_has_word(call, "activation", "relu") ||
                           strstr(holds, "relu_backward") != NULL
                   ? "relu"
                   : NULL;
}

static bool
make_dz(struct rps_replay_call *call, struct gradient *gradient)
{
    const struct rps_operand dy = rps_replay_need(call, "dy|dz", UINT64_MAX);
    struct rps_operand kept = {0};
    /* a part of an unfused one gets dz, whatever its layer's activation is */
    const char *slope = strcmp(call->op->type, "linear_backward") == 0
                                ? slope_of(call)
                                : NULL;

    if (slope != NULL) {
        kept = rps_replay_need(call, "kept", dy.count);
    }
    gradient->dz = rps_replay_array(call, dy.count);
    gradient->error = slope != NULL ? rps_replay_array(call, dy.count) : NULL;
    if (rps_replay_stopped(call)) {
        return false;
    }
    gradient->out = rps_replay_columns(dy.tensor);
    gradient->rows = gradient->out > 0 ? dy.count / gradient->out : 0;
    for (uint64_t i = 0; i < dy.count; i++) {
        if (slope == NULL) {
            gradient->dz[i] = dy.n[i];
        } else {
            const struct rps_replay_number dz =
                    rps_replay_slope(call, slope, kept.n[i], dy.n[i]);

            gradient->dz[i] = dz.value;
            gradient->error[i] = dz.tolerance;
        }
    }
    return true;
}

static void
make_dbias(struct rps_replay_call *call, const struct gradient *gradient,
        struct rps_reference *dbias)
{
    const struct rps_operand old = rps_replay_old(call, "dbias", gradient->out);
    double *slack = rps_replay_array(call, gradient->out);

    if (dbias->count != gradient->out) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "dbias has another number of columns than dy");
    }
    if (!rps_replay_stopped(call)) {
        begin_sums(dbias, &old);
        for (uint64_t i = 0; i < gradient->rows * gradient->out; i++) {
            const uint64_t o = i % gradient->out;

            dbias->value[o] += gradient->dz[i];
            dbias->tolerance[o] += fabs(gradient->dz[i]);
            slack[o] += gradient->error != NULL ? gradient->error[i] : 0.0;
        }
        end_sums(call, dbias, slack, gradient->rows + 1);
    }
    free(slack);
}

static void
make_dweight(struct rps_replay_call *call, const struct gradient *gradient,
        struct rps_reference *dweight)
{
    const uint64_t rows = gradient->rows, out = gradient->out;
    const uint64_t in = rps_replay_columns(dweight->tensor);
    const struct rps_operand old =
            rps_replay_old(call, "dweight", dweight->count);
    const struct rps_operand x = rps_replay_need(call, "x", rows * in);
    double *slack = rps_replay_array(call, dweight->count);
    double *factor = NULL;

    if (dweight->count != out * in) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "dweight has another number of rows than dy columns");
    }
    if (!rps_replay_stopped(call)) {
        begin_sums(dweight, &old);
        factor = take_factor(call, &x);
        rps_replay_product(call, out, rows, in,
                &(struct rps_factor){.n = gradient->dz,
                        .error = gradient->error,
                        .row = 1,
                        .column = out},
                &(struct rps_factor){.n = factor, .row = in, .column = 1},
                &(struct rps_sums){.value = dweight->value,
                        .magnitude = dweight->tolerance,
                        .slack = slack});
        end_sums(call, dweight, slack, rows + 1);
    }
    free(factor);
    free(slack);
}

static void
make_dx(struct rps_replay_call *call, const struct gradient *gradient,
        struct rps_reference *dx)
{
    const uint64_t rows = gradient->rows, out = gradient->out;
    const uint64_t in = rps_replay_columns(dx->tensor);
    const struct rps_operand weight = rps_replay_need(call, "weight", out * in);
    double *slack = rps_replay_array(call, dx->count);
    double *factor = NULL;

    if (dx->count != rows * in) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "dx has another number of rows than dy");
    }
    if (!rps_replay_stopped(call)) {
        factor = take_factor(call, &weight);
        rps_replay_product(call, rows, out, in,
                &(struct rps_factor){.n = gradient->dz,
                        .error = gradient->error,
                        .row = out,
                        .column = 1},
                &(struct rps_factor){.n = factor, .row = in, .column = 1},
                &(struct rps_sums){.value = dx->value,
                        .magnitude = dx->tolerance,
                        .slack = slack});
        end_sums(call, dx, slack, out);
    }
    free(factor);
    free(slack);
}

/* A part of an unfused one has one output, and its type says which. */
static struct rps_reference *
wanted(struct rps_replay_call *call, const char *label, const char *type)
{
    struct rps_reference *reference = rps_replay_output(call, label);

    return reference == NULL && strcmp(call->op->type, type) == 0
                   ? rps_replay_nth_output(call, 0)
                   : reference;
}

void
rps_replay_linear_backward(struct rps_replay_call *call)
{
    struct gradient gradient = {0};
    struct rps_reference *dbias = wanted(call, "dbias", "linear_dbias");
    struct rps_reference *dweight = wanted(call, "dweight", "linear_dweight");
    struct rps_reference *dx = wanted(call, "dx", "linear_dx");

    if (make_dz(call, &gradient)) {
        if (dbias != NULL) { /* of dz before it is rounded */
            make_dbias(call, &gradient, dbias);
        }
        rps_replay_round(call, gradient.dz, gradient.error,
                gradient.rows * gradient.out);
        if (dweight != NULL) {
            make_dweight(call, &gradient, dweight);
        }
        if (dx != NULL) {
            make_dx(call, &gradient, dx);
        }
    }
    free(gradient.dz);
    free(gradient.error);
}
