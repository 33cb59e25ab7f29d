/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/loss_scale.h"

#include "base/text.h"

#include <recps/types.h>

#include <math.h>
#include <string.h>

/* "1024" or "2^10" into 10 */
static bool
read_power(const char *text, int *exponent_out)
{
    uint64_t value = 0;

    if (strncmp(text, "2^", 2) == 0) {
        if (!rps_parse_u64(text + 2, &value) ||
                value > RPS_LOSS_SCALE_EXPONENT_MAX) {
            return false;
        }
        *exponent_out = (int)value;
        return true;
    }
    if (!rps_parse_u64(text, &value) || value == 0 ||
            (value & (value - 1)) != 0) {
        return false;
    }
    *exponent_out = 0;
    while (value > 1) {
        value /= 2;
        (*exponent_out)++;
    }
    return true;
}

rps_status
rps_loss_scale_parse(struct rps_loss_scale *scale, const char *text,
        uint64_t growth, struct rps_error *error)
{
    static const char dynamic[] = "dynamic";
    const size_t length = sizeof(dynamic) - 1;
    const char *power = text;

    *scale = (struct rps_loss_scale){.growth = growth};
    if (strcmp(text, dynamic) == 0) {
        scale->dynamic = true;
        scale->exponent = RPS_LOSS_SCALE_START;
        return RPS_OK;
    }
    if (strncmp(text, dynamic, length) == 0 && text[length] == ':') {
        scale->dynamic = true;
        power = text + length + 1;
    }
    if (!read_power(power, &scale->exponent)) {
        return rps_fail(error, RPS_E_INVAL,
                "--loss-scale=%s: must be a power of two from 1 to 2^127, "
                "such as 1024 or 2^10, or dynamic, or dynamic:START with such "
                "a power: another factor would round",
                text);
    }
    return RPS_OK;
}

double
rps_loss_scale_factor(const struct rps_loss_scale *scale)
{
    return ldexp(1.0, scale->exponent);
}

static bool
unscale(float *values, size_t n, float factor)
{
    bool finite = true;

    for (size_t i = 0; i < n; i++) {
        finite &= isfinite(values[i]) != 0;
        values[i] *= factor;
    }
    return finite;
}

bool
rps_loss_scale_remove(const struct rps_loss_scale *scale,
        struct rps_model *model, const struct rps_model_input *input)
{
    /* 2^-127 is subnormal, but exact */
    const float factor = ldexpf(1.0f, -scale->exponent);
    bool finite = true;

    for (uint32_t v = 0; v < model->variable_count; v++) {
        struct rps_variable *variable = &model->variables[v];
        const size_t n = (size_t)variable->rows * RPS_DENSE_ROW_FLOATS;

        finite = unscale(variable->gradients, n, factor) && finite;
    }
    for (uint32_t t = 0; t < model->table_count; t++) {
        const size_t n =
                input->rows * rps_model_pooled_floats(&model->tables[t]);

        finite = unscale(input->pooled_gradients[t], n, factor) && finite;
    }
    return finite;
}

void
rps_loss_scale_step(struct rps_loss_scale *scale, bool finite)
{
    if (!finite) {
        scale->skipped++;
        scale->clean = 0;
        if (scale->dynamic && scale->exponent > 0) {
            scale->exponent--;
        }
        return;
    }
    if (!scale->dynamic || ++scale->clean < scale->growth) {
        return;
    }
    scale->clean = 0;
    if (scale->exponent < RPS_LOSS_SCALE_EXPONENT_MAX) {
        scale->exponent++;
    }
}
