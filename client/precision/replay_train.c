/* SPDX-License-Identifier: Apache-2.0 */
/* The loss, dropout, the loss scale, optimizers. */
#include "base/draw.h"
#include "client/precision/replay_impl.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* --- loss -------------------------------------------------------------------
 */

/* Of f64 functions and sums, with some room. */
#define LOSS_TERMS 16.0

struct loss {
    struct rps_operand logits, labels, weights, scale;
    uint64_t columns;
};

static double
weight_of(const struct loss *loss, uint64_t element)
{
    return loss->weights.count > 0 ? loss->weights.n[element / loss->columns]
                                   : 1.0;
}

static void
add_up(struct rps_replay_call *call, const struct loss *loss,
        struct rps_reference *result)
{
    const struct rps_operand old = rps_replay_old(call, "loss", 1);
    const double factor = loss->scale.count > 0 ? loss->scale.n[0] : 1.0;
    double sum = 0.0, magnitude = 0.0;

    for (uint64_t i = 0; i < loss->logits.count; i++) {
        const double x = loss->logits.n[i], y = loss->labels.n[i];
        const double weight = weight_of(loss, i);

        if (weight != 0.0) {
            const double rest = log1p(exp(-fabs(x)));

            sum += weight *
                   (fmax(x, 0.0) - x * y + rest + (isnan(x) ? x : 0.0));
            magnitude += fabs(weight) * (fabs(x) + fabs(x * y) + rest);
        }
    }
    sum = sum * factor + (old.count > 0 ? old.n[0] : 0.0);
    magnitude =
            magnitude * fabs(factor) + (old.count > 0 ? fabs(old.n[0]) : 0.0);
    result->value[0] = sum;
    result->tolerance[0] = isfinite(magnitude)
                                   ? ((double)loss->logits.count + LOSS_TERMS) *
                                             RPS_REPLAY_F64 * 2.0 * magnitude
                                   : 0.0;
}

static void
slopes(const struct loss *loss, struct rps_reference *dx)
{
    const double factor = loss->scale.count > 1 ? loss->scale.n[1] : 1.0;

    for (uint64_t i = 0; i < dx->count; i++) {
        const double weight = weight_of(loss, i);
        const double p = 1.0 / (1.0 + exp(-loss->logits.n[i]));

        if (weight != 0.0) {
            dx->value[i] = (p - loss->labels.n[i]) * factor * weight;
            dx->tolerance[i] =
                    RPS_REPLAY_F32 * fabs(dx->value[i]) + RPS_REPLAY_TINY +
                    LOSS_TERMS * RPS_REPLAY_F64 * fabs(factor * weight);
        }
    }
}

void
rps_replay_bce(struct rps_replay_call *call)
{
    struct rps_reference *result = rps_replay_output(call, "loss");
    struct rps_reference *dx = rps_replay_output(call, "dlogits");
    struct loss loss = {.logits = rps_replay_need(call, "logits", UINT64_MAX)};

    loss.columns = loss.logits.tensor != NULL
                           ? rps_replay_columns(loss.logits.tensor)
                           : 0;
    loss.labels = rps_replay_need(call, "labels", loss.logits.count);
    loss.weights = rps_replay_input(call, "weights");
    loss.scale = rps_replay_input(call, "scale");
    if (rps_replay_stopped(call) || loss.columns == 0) {
        return;
    }
    if ((dx != NULL && dx->count != loss.logits.count) ||
            (result != NULL && result->count != 1) ||
            (loss.weights.count > 0 &&
                    loss.weights.count != loss.logits.count / loss.columns)) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "its logits, weights and results have other shapes");
        return;
    }
    if (result != NULL) {
        add_up(call, &loss, result);
    }
    if (dx != NULL) {
        slopes(&loss, dx);
    }
}

/* --- dropout ----------------------------------------------------------------
 */

void
rps_replay_dropout(struct rps_replay_call *call)
{
    const struct rps_operand x = rps_replay_need(call, "x", UINT64_MAX);
    const struct rps_operand step = rps_replay_need(call, "step", 1);
    const double rate = rps_replay_number(call, "rate");
    const uint64_t seed = rps_replay_whole(call, "seed");
    const uint64_t site = rps_replay_whole(call, "site");
    const uint64_t first = rps_replay_whole(call, "first");
    struct rps_reference *y = rps_replay_result(call, "y", x.count);
    const double below = rate * 0x1p32;
    uint64_t start = 0;

    if (rps_replay_stopped(call)) {
        return;
    }
    /* docs/NPU_OPERATORS.md: 32 bits of a draw by (seed, site, step) and e */
    start = rps_draw_row(rps_draw_row(rps_mix64(seed), site),
            step.n[0] >= 0.0 && step.n[0] < 0x1p63 ? (uint64_t)step.n[0] : 0);
    for (uint64_t i = 0; i < x.count; i++) {
        const uint64_t element = first + i;
        const uint64_t draw = rps_draw_column(start, element / 2);
        const uint32_t bits = (uint32_t)(draw >> (element % 2 * 32));

        if ((double)bits >= floor(below)) {
            y->value[i] = x.n[i] / (1.0 - rate);
            y->tolerance[i] =
                    3.0 * RPS_REPLAY_F32 * fabs(y->value[i]) + RPS_REPLAY_TINY;
        }
    }
}

/* --- loss scale, steps ------------------------------------------------------
 */

static bool
all_finite(const struct rps_operand *x)
{
    for (uint64_t i = 0; i < x->count; i++) {
        if (!isfinite(x->n[i])) {
            return false;
        }
    }
    return true;
}

void
rps_replay_unscale(struct rps_replay_call *call)
{
    const struct rps_operand x = rps_replay_need(call, "x", UINT64_MAX);
    const struct rps_operand factor = rps_replay_input(call, "factor");
    const struct rps_operand old = rps_replay_old(call, "finite", 1);
    struct rps_reference *y = rps_replay_output(call, "x");
    struct rps_reference *finite = rps_replay_output(call, "finite");

    if (rps_replay_stopped(call)) {
        return;
    }
    if (finite != NULL && finite->count == 1) {
        finite->value[0] = all_finite(&x) && (old.count == 0 || old.n[0] != 0.0)
                                   ? 1.0
                                   : 0.0;
    }
    for (uint64_t i = 0; y != NULL && y->count == x.count && i < x.count; i++) {
        y->value[i] = factor.count > 0 ? x.n[i] * factor.n[0] : x.n[i];
        y->tolerance[i] = factor.count > 0
                                  ? 2.0 * RPS_REPLAY_F32 * fabs(y->value[i]) +
                                            RPS_REPLAY_TINY
                                  : 0.0;
    }
}

/* Does the step count? */
static bool
is_finite(struct rps_replay_call *call)
{
    const struct rps_operand finite = rps_replay_input(call, "finite");

    return finite.count == 0 || finite.n[0] != 0.0;
}

void
rps_replay_count(struct rps_replay_call *call)
{
    const struct rps_operand old = rps_replay_need(call, "counter", 1);
    struct rps_reference *counter = rps_replay_result(call, "counter", 1);
    const bool counts = is_finite(call);

    if (!rps_replay_stopped(call)) {
        counter->value[0] = old.n[0] + (counts ? 1.0 : 0.0);
    }
}

/* --- optimizers -------------------------------------------------------------
 */

struct optimizer {
    struct rps_operand weight, gradient, m, v;
    struct rps_reference *weight_out, *m_out, *v_out;
    bool adam;
    double rate;  /* lr */
    double keep;  /* what the weight is multiplied with first */
    double decay; /* added to the gradient, times the weight */
    double beta1, beta2, epsilon;
    double first, second; /* 1 - beta^t */
};

/* w' = keep w - lr g', g' = g + decay w */
static void
sgd(const struct optimizer *o, uint64_t i)
{
    const double w = o->weight.n[i], g = o->gradient.n[i];
    const double size = fabs(g) + fabs(o->decay * w);

    o->weight_out->value[i] = o->keep * w - o->rate * (g + o->decay * w);
    o->weight_out->tolerance[i] =
            RPS_REPLAY_F32 * (2.0 * fabs(o->weight_out->value[i]) +
                                     2.0 * fabs(w) * (o->keep != 1.0) +
                                     8.0 * fabs(o->rate) * size) +
            4.0 * RPS_REPLAY_TINY;
}

static void
adam(const struct rps_replay_call *call, const struct optimizer *o, uint64_t i)
{
    const double w = o->weight.n[i];
    const double g = o->gradient.n[i] + o->decay * w;
    const double size = fabs(o->gradient.n[i]) + fabs(o->decay * w);
    const double m = o->beta1 * o->m.n[i] + (1.0 - o->beta1) * g;
    const double v = o->beta2 * o->v.n[i] + (1.0 - o->beta2) * g * g;
    const double unit = call->precise ? 2.0 * RPS_REPLAY_F64 : RPS_REPLAY_F32;
    const double off_m =
            5.0 * unit *
                    (fabs(o->beta1 * o->m.n[i]) + (1.0 - o->beta1) * size) +
            2.0 * RPS_REPLAY_TINY;
    const double off_v = 8.0 * unit *
                                 (fabs(o->beta2 * o->v.n[i]) +
                                         (1.0 - o->beta2) * size * size) +
                         4.0 * RPS_REPLAY_TINY;
    /* all as the law has it, then both roots times sqrt(1 - beta2^t) */
    const double root = sqrt(v);
    const double under = root + o->epsilon * sqrt(o->second);
    const double off_root =
            (v > 0.0 ? fmin(sqrt(off_v), off_v / root) : sqrt(off_v)) +
            4.0 * unit * under;
    const double rate = o->rate / o->first * sqrt(o->second);
    const double update = rate * m / under;

    o->m_out->value[i] = m;
    o->m_out->tolerance[i] = off_m + RPS_REPLAY_F32 * fabs(m);
    o->v_out->value[i] = v;
    o->v_out->tolerance[i] = off_v + RPS_REPLAY_F32 * fabs(v);
    o->weight_out->value[i] = o->keep * w - update;
    o->weight_out->tolerance[i] =
            under > off_root
                    ? RPS_REPLAY_F32 * (2.0 * fabs(o->weight_out->value[i]) +
                                               2.0 * fabs(w)) +
                              fabs(rate) * off_m / (under - off_root) +
                              fabs(update) * off_root / (under - off_root) +
                              8.0 * unit * fabs(update) + 4.0 * RPS_REPLAY_TINY
                    : (isnan(update) ? 0.0 : (double)INFINITY);
    /* a square beyond f32's numbers is an infinity there, and no update */
    if (v + off_v > (double)FLT_MAX && isfinite(v)) {
        o->weight_out->tolerance[i] = INFINITY;
    }
}

static void
get_tensors(struct rps_replay_call *call, struct optimizer *o)
{
    o->weight = rps_replay_need(call, "weight", UINT64_MAX);
    o->gradient = rps_replay_need(call, "gradient", o->weight.count);
    o->weight_out = rps_replay_result(call, "weight", o->weight.count);
    if (o->adam) {
        o->m = rps_replay_need(call, "m", o->weight.count);
        o->v = rps_replay_need(call, "v", o->weight.count);
        o->m_out = rps_replay_result(call, "m", o->weight.count);
        o->v_out = rps_replay_result(call, "v", o->weight.count);
    }
}

static void
get_numbers(struct rps_replay_call *call, struct optimizer *o)
{
    const struct rps_operand rate = rps_replay_need(call, "learning_rate", 1);
    const double decay = rps_replay_number(call, "weight_decay");

    if (rps_replay_stopped(call)) {
        return;
    }
    o->rate = rate.n[0];
    o->keep = 1.0;
    if (strcmp(call->op->type, "adamw") == 0) {
        o->keep = 1.0 - o->rate * decay;
    } else {
        o->decay = decay;
    }
    if (o->adam) {
        const struct rps_operand step = rps_replay_need(call, "step", 1);

        o->beta1 = rps_replay_number(call, "beta1");
        o->beta2 = rps_replay_number(call, "beta2");
        o->epsilon = rps_replay_number(call, "epsilon");
        if (!rps_replay_stopped(call)) {
            o->first = 1.0 - pow(o->beta1, step.n[0]);
            o->second = 1.0 - pow(o->beta2, step.n[0]);
        }
    }
}

static void
keep(const struct rps_operand *old, const struct rps_reference *now)
{
    for (uint64_t i = 0; now != NULL && i < now->count; i++) {
        now->value[i] = old->n[i];
    }
}

void
rps_replay_optimizer(struct rps_replay_call *call)
{
    struct optimizer o = {.adam = strcmp(call->op->type, "sgd") != 0};
    const bool counts = is_finite(call);

    get_tensors(call, &o);
    get_numbers(call, &o);
    if (rps_replay_stopped(call)) {
        return;
    }
    if (!counts) {
        keep(&o.weight, o.weight_out);
        keep(&o.m, o.m_out);
        keep(&o.v, o.v_out);
        return;
    }
    for (uint64_t i = 0; i < o.weight.count; i++) {
        if (o.adam) {
            adam(call, &o, i);
        } else {
            sgd(&o, i);
        }
    }
}
