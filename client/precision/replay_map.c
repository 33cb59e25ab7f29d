/* SPDX-License-Identifier: Apache-2.0 */
/* One element after the other, and elements that are moved. */
#include "client/precision/replay_impl.h"

#include <math.h>
#include <string.h>

/* "gelu" of "gelu" and of "gelu_backward". */
static const char *
function_of(const struct rps_replay_call *call)
{
    static const char *const names[] = {"relu", "gelu", "tanh", "sigmoid"};

    for (size_t i = 0; i < 4; i++) {
        if (strncmp(call->op->type, names[i], strlen(names[i])) == 0) {
            return names[i];
        }
    }
    return names[0];
}

void
rps_replay_function(struct rps_replay_call *call)
{
    const char *function = function_of(call);
    const struct rps_operand x = rps_replay_need(call, "x|z", UINT64_MAX);
    struct rps_reference *y = rps_replay_result(call, "y", x.count);

    for (uint64_t i = 0; !rps_replay_stopped(call) && i < x.count; i++) {
        const struct rps_replay_number number =
                rps_replay_apply(call, function, x.n[i]);

        y->value[i] = number.value;
        y->tolerance[i] = number.tolerance;
    }
}

void
rps_replay_function_backward(struct rps_replay_call *call)
{
    const char *function = function_of(call);
    const struct rps_operand kept = rps_replay_need(call, "kept", UINT64_MAX);
    const struct rps_operand dy = rps_replay_need(call, "dy", kept.count);
    struct rps_reference *dx = rps_replay_result(call, "dx|dz", kept.count);

    for (uint64_t i = 0; !rps_replay_stopped(call) && i < dy.count; i++) {
        const struct rps_replay_number number =
                rps_replay_slope(call, function, kept.n[i], dy.n[i]);

        dx->value[i] = number.value;
        dx->tolerance[i] = number.tolerance;
    }
}

/* One rounding, of a result that underflows, too. */
static double
rounded(double value, double roundings)
{
    return roundings * RPS_REPLAY_F32 * fabs(value) + RPS_REPLAY_TINY;
}

void
rps_replay_add(struct rps_replay_call *call)
{
    const struct rps_operand a = rps_replay_need(call, "a", UINT64_MAX);
    const struct rps_operand b = rps_replay_need(call, "b", a.count);
    struct rps_reference *y = rps_replay_result(call, "y", a.count);

    for (uint64_t i = 0; !rps_replay_stopped(call) && i < a.count; i++) {
        y->value[i] = a.n[i] + b.n[i];
        y->tolerance[i] = rounded(y->value[i], 2.0);
    }
}

void
rps_replay_scale(struct rps_replay_call *call)
{
    const struct rps_operand x = rps_replay_need(call, "x", UINT64_MAX);
    const struct rps_operand device = rps_replay_input(call, "device_factor");
    double factor = rps_replay_number(call, "factor");
    struct rps_reference *y = rps_replay_result(call, "y", x.count);

    if (device.count > 0) {
        factor *= device.n[0];
    }
    for (uint64_t i = 0; !rps_replay_stopped(call) && i < x.count; i++) {
        y->value[i] = x.n[i] * factor;
        y->tolerance[i] = rounded(y->value[i], 3.0); /* the factor is f32 */
    }
}

void
rps_replay_fill(struct rps_replay_call *call)
{
    const double value = rps_replay_number(call, "value");
    struct rps_reference *y = rps_replay_result(call, "y", UINT64_MAX);

    for (uint64_t i = 0; !rps_replay_stopped(call) && i < y->count; i++) {
        y->value[i] = (double)(float)value;
    }
}

/* --- moving ----------------------------------------------------------------
 */

void
rps_replay_move(struct rps_replay_call *call)
{
    const struct rps_operand x = rps_replay_nth(call, 0);
    struct rps_reference *y = NULL;

    if (x.tensor == NULL) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW, "it has no input");
    }
    y = rps_replay_result(call, "y", x.count);
    for (uint64_t i = 0; !rps_replay_stopped(call) && i < x.count; i++) {
        y->value[i] = x.tensor->dtype == RPS_DUMP_F32 &&
                                      y->tensor->dtype == RPS_DUMP_BF16
                              ? rps_replay_bf16(x.n[i])
                              : x.n[i];
    }
}

/* Of a join that is one of several operations: where its columns begin. */
static uint64_t
first_column(struct rps_replay_call *call)
{
    return json_object_get(call->op->attributes, "column") != NULL
                   ? rps_replay_whole(call, "column")
                   : 0;
}

static bool
is_part(const struct rps_dumped_tensor *tensor)
{
    return tensor->label == NULL || tensor->label[0] == 'x';
}

/* Columns that no part has keep what stood there. */
static void
put_old(struct rps_replay_call *call, struct rps_reference *y)
{
    const struct rps_operand old = rps_replay_input(call, "y");

    for (uint64_t i = 0; y != NULL && i < y->count; i++) {
        if (old.count == y->count) {
            y->value[i] = old.n[i];
        } else {
            y->tolerance[i] = INFINITY;
        }
    }
}

void
rps_replay_concat(struct rps_replay_call *call)
{
    struct rps_reference *y = rps_replay_result(call, "y", UINT64_MAX);
    const uint64_t columns = y != NULL ? rps_replay_columns(y->tensor) : 0;
    uint64_t column = first_column(call);

    put_old(call, y);
    for (uint32_t p = 0; columns > 0 && p < call->op->input_count; p++) {
        const struct rps_operand part = is_part(&call->op->inputs[p])
                                                ? rps_replay_nth(call, p)
                                                : (struct rps_operand){0};
        const uint64_t own =
                part.tensor != NULL ? rps_replay_columns(part.tensor) : 0;

        if (own == 0) {
            continue;
        }
        if (column > columns || own > columns - column ||
                part.count / own != y->count / columns) {
            rps_replay_stop(
                    call, RPS_REPLAY_NO_LAW, "its parts do not fit its output");
            return;
        }
        for (uint64_t i = 0; i < part.count; i++) {
            const uint64_t at = i / own * columns + column + i % own;

            y->value[at] = part.n[i];
            y->tolerance[at] = 0.0;
        }
        column += own;
    }
}

void
rps_replay_split(struct rps_replay_call *call)
{
    const struct rps_operand x = rps_replay_nth(call, 0);
    const uint64_t columns =
            x.tensor != NULL ? rps_replay_columns(x.tensor) : 0;
    uint64_t column = first_column(call);

    for (uint32_t p = 0; columns > 0 && p < call->op->output_count; p++) {
        struct rps_reference *y = rps_replay_nth_output(call, p);
        const uint64_t own = y != NULL ? rps_replay_columns(y->tensor) : 0;

        if (own == 0) {
            continue;
        }
        if (column > columns || own > columns - column ||
                y->count / own != x.count / columns) {
            rps_replay_stop(
                    call, RPS_REPLAY_NO_LAW, "its parts do not fit its input");
            return;
        }
        for (uint64_t i = 0; i < y->count; i++) {
            y->value[i] = x.n[i / own * columns + column + i % own];
        }
        column += own;
    }
}
