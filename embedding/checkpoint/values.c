/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/values.h"

#include "base/half.h"
#include "embedding/optimizer.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

/* All ones: an infinity or a NaN. */
#define F32_EXPONENT  0x7f800000u
#define F16_EXPONENT  0x7c00u
#define BF16_EXPONENT 0x7f80u

const char *
rps_ckpt_value_dtype(enum rps_value type)
{
    static const char *const dtypes[] = {"<f4", "<f2", "<u2", "|i1"};

    assert((unsigned)type < sizeof(dtypes) / sizeof(dtypes[0]));
    return dtypes[type];
}

size_t
rps_ckpt_value_bytes(const rps_table_spec *spec)
{
    static const size_t item_bytes[] = {4, 2, 2, 1};

    assert((unsigned)spec->value_dtype <
            sizeof(item_bytes) / sizeof(item_bytes[0]));
    return spec->dim * item_bytes[spec->value_dtype];
}

/* Both without a branch a value: a row is looked at whole, many values in one
 * instruction, and nearly every row is finite. */
static bool
floats_finite(const float *values, size_t n)
{
    uint32_t bad = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, values + i, sizeof(bits));
        bad |= (bits & F32_EXPONENT) == F32_EXPONENT;
    }
    return bad == 0;
}

static bool
halves_finite(const void *values, size_t n, uint16_t exponent)
{
    const unsigned char *bytes = values;
    uint16_t bad = 0;

    for (size_t i = 0; i < n; i++) {
        uint16_t bits;

        memcpy(&bits, bytes + i * sizeof(bits), sizeof(bits));
        bad |= (bits & exponent) == exponent;
    }
    return bad == 0;
}

bool
rps_ckpt_values_finite(enum rps_value type, const void *values, size_t n)
{
    switch (type) {
    case RPS_VALUE_F32:
        return floats_finite(values, n);
    case RPS_VALUE_F16:
        return halves_finite(values, n, F16_EXPONENT);
    case RPS_VALUE_BF16:
        return halves_finite(values, n, BF16_EXPONENT);
    case RPS_VALUE_I8:
        break;
    }
    return true;
}

void
rps_ckpt_values_floats(
        enum rps_value type, const void *values, size_t n, float *floats)
{
    const unsigned char *bytes = values;

    assert(type != RPS_VALUE_I8);
    if (type == RPS_VALUE_F32) {
        memcpy(floats, values, n * sizeof(*floats));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;

        memcpy(&bits, bytes + i * sizeof(bits), sizeof(bits));
        floats[i] = type == RPS_VALUE_F16 ? rps_float_of_f16(bits)
                                          : rps_float_of_bf16(bits);
    }
}

void
rps_ckpt_values_of_floats(
        enum rps_value type, const float *floats, size_t n, void *values)
{
    unsigned char *bytes = values;

    assert(type != RPS_VALUE_I8);
    if (type == RPS_VALUE_F32) {
        memmove(values, floats, n * sizeof(*floats));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const uint16_t bits = type == RPS_VALUE_F16
                                      ? rps_float_to_f16(floats[i])
                                      : rps_float_to_bf16(floats[i]);

        memcpy(bytes + i * sizeof(bits), &bits, sizeof(bits));
    }
}

void
rps_ckpt_slots_fresh(const rps_table_spec *spec, float *slots)
{
    rps_slots_fresh(spec, slots);
}
