/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows as they travel, against arithmetic in double: the nearest number of
 * the type, ties to even; i8 against its own definition (value.h).
 */
#include "base/half.h"
#include "proto/value.h"
#include "tests/unit/suite.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define DIM_MAX 70u

/* xorshift64: any bits, so infinities and NaNs, too. */
static uint64_t
draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static float
any_float(uint64_t *state)
{
    return rps_float_of_bits((uint32_t)(draw(state) >> 16));
}

/* Of sizes about 1, as rows have. */
static float
usual_float(uint64_t *state)
{
    return (float)((double)(int64_t)draw(state) * 0x1.0p-63);
}

/* The nearest number with so many bits after the point, as a double. */
static double
nearest(double x, int bits, int least, double limit)
{
    int exponent = 0;
    double step = 0.0;

    if (fabs(x) >= limit) {
        return copysign(INFINITY, x);
    }
    (void)frexp(x, &exponent);
    exponent = exponent - 1 > least ? exponent - 1 : least;
    step = ldexp(1.0, exponent - bits);
    return nearbyint(x / step) * step;
}

static double
nearest_of(uint16_t value, double x)
{
    return value == RPS_VALUE_F16 ? nearest(x, 10, -14, 65520.0)
                                  : nearest(x, 7, -126, 0x1.ffp+127);
}

static bool
same(double model, float got)
{
    return isnan(model) ? isnan(got)
                        : (double)got == model &&
                                  (signbit(got) != 0) == (signbit(model) != 0);
}

START_TEST(a_half_is_the_nearest_one_at_every_length)
{
    const uint16_t value = _i == 0 ? RPS_VALUE_F16 : RPS_VALUE_BF16;
    uint64_t state = 88172645463325252u;
    size_t wrong = 0;

    for (uint32_t dim = 1; dim <= DIM_MAX; dim++) {
        for (int turn = 0; turn < 40; turn++) {
            float row[DIM_MAX], back[DIM_MAX];
            uint16_t halves[DIM_MAX + 1];

            for (uint32_t i = 0; i < dim; i++) {
                row[i] = turn % 2 == 0 ? any_float(&state)
                                       : usual_float(&state) * 70000.0f;
            }
            halves[dim] = 0xabcd;
            rps_value_encode(value, dim, 1, row, halves);
            rps_value_decode(value, dim, 1, halves, back);
            wrong += halves[dim] != 0xabcd;
            for (uint32_t i = 0; i < dim; i++) {
                wrong += !same(nearest_of(value, (double)row[i]), back[i]);
            }
        }
    }
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

/* scale = m / 127; q = x / scale, to nearest, ties to even. */
static size_t
wrong_of_i8(const float *row, uint32_t dim, const uint8_t *bytes)
{
    const int8_t *q = (const int8_t *)bytes + 4;
    float scale = 0.0f;
    float most = 0.0f;
    size_t wrong = 0;

    memcpy(&scale, bytes, 4);
    for (uint32_t i = 0; i < dim; i++) {
        most = fabsf(row[i]) > most ? fabsf(row[i]) : most;
    }
    wrong += scale != most / 127.0f;
    for (uint32_t i = 0; i < dim; i++) {
        const float exact = most > 0.0f ? row[i] / scale : 0.0f;

        wrong += (double)q[i] != nearbyint((double)exact);
        wrong += fabs((double)row[i] - (double)q[i] * (double)scale) >
                 (double)scale * 0.5000001;
    }
    for (uint32_t i = dim; (i & 3) != 0; i++) {
        wrong += q[i] != 0;
    }
    return wrong;
}

START_TEST(an_i8_row_has_its_scale_and_the_nearest_steps)
{
    uint64_t state = 1234567;
    size_t wrong = 0;

    for (uint32_t dim = 1; dim <= DIM_MAX; dim++) {
        const size_t bytes = rps_value_row_bytes(RPS_VALUE_I8, dim);

        ck_assert_uint_eq(bytes, 4 + (dim + 3) / 4 * 4);
        for (int turn = 0; turn < 40; turn++) {
            float rows[3][DIM_MAX], back[3 * DIM_MAX];
            float flat[3 * DIM_MAX];
            uint8_t coded[3 * (DIM_MAX + 8)];

            for (uint32_t i = 0; i < 3 * dim; i++) {
                flat[i] = ldexpf(usual_float(&state), turn * 3 - 60);
            }
            flat[turn % (3 * (int)dim)] = turn % 3 == 0 ? -0.0f : 2.5f;
            memset(coded, 0xee, sizeof(coded));
            rps_value_encode(RPS_VALUE_I8, dim, 3, flat, coded);
            wrong += coded[3 * bytes] != 0xee;
            rps_value_decode(RPS_VALUE_I8, dim, 3, coded, back);
            for (size_t r = 0; r < 3; r++) {
                float scale = 0.0f;

                memcpy(rows[r], flat + r * dim, dim * sizeof(float));
                memcpy(&scale, coded + r * bytes, 4);
                wrong += wrong_of_i8(rows[r], dim, coded + r * bytes);
                for (uint32_t i = 0; i < dim; i++) {
                    wrong += back[r * dim + i] !=
                             (float)(int8_t)coded[r * bytes + 4 + i] * scale;
                }
            }
        }
    }
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

/* What the row reads after the way there and back. */
static void
over_i8(const float row[3], float back[3])
{
    uint8_t coded[8];

    rps_value_encode(RPS_VALUE_I8, 3, 1, row, coded);
    ck_assert_int_eq(rps_value_check(RPS_VALUE_I8, 3, 1, coded, NULL), RPS_OK);
    rps_value_decode(RPS_VALUE_I8, 3, 1, coded, back);
}

START_TEST(an_i8_row_at_the_ends_of_the_floats_is_defined)
{
    const float zeros[3] = {0.0f, -0.0f, 0.0f};
    const float large[3] = {FLT_MAX, -FLT_MAX, FLT_MAX / 2};
    const float tiny[3] = {0x1.0p-149f, -0x1.0p-149f, 0.0f};
    const float coarse[3] = {0x1.8p-142f, -0x1.8p-142f, 0x1.0p-149f};
    const float broken[2][3] = {{1.0f, NAN, 2.0f}, {-INFINITY, 1.0f, 2.0f}};
    float back[3];

    over_i8(zeros, back);
    ck_assert(back[0] == 0.0f && back[1] == 0.0f && back[2] == 0.0f);
    over_i8(large, back);
    ck_assert(isfinite(back[0]) && back[0] > FLT_MAX * 0.9999f &&
              back[1] == -back[0]);
    over_i8(tiny, back); /* m / 127 is below every float: zeros */
    ck_assert(back[0] == 0.0f && back[1] == 0.0f);
    over_i8(coarse, back); /* a scale of few bits: at most 127 steps */
    ck_assert(isfinite(back[0]) && back[1] == -back[0]);
    for (int i = 0; i < 2; i++) {
        over_i8(broken[i], back);
        ck_assert(isnan(back[0]) && isnan(back[1]) && isnan(back[2]));
    }
}
END_TEST

START_TEST(a_scale_that_no_row_has_is_refused)
{
    const float scales[4] = {1.0f, NAN, -1.0f, INFINITY};
    uint8_t rows[4][8] = {{0}};
    struct rps_error error;

    for (int i = 0; i < 4; i++) {
        memcpy(rows[i], &scales[i], 4);
        ck_assert_int_eq(rps_value_check(RPS_VALUE_I8, 3, 1, rows[i], NULL),
                i < 2 ? RPS_OK : RPS_E_INVAL);
    }
    ck_assert_int_eq(
            rps_value_check(RPS_VALUE_I8, 3, 4, rows, &error), RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "row 2 is -1"));
    ck_assert_int_eq(rps_value_check(RPS_VALUE_F16, 4, 4, rows, NULL), RPS_OK);
    ck_assert_uint_eq(rps_value_row_bytes(4, 3), 0);
    ck_assert_uint_eq(rps_value_row_bytes(RPS_VALUE_F32, 3), 12);
    ck_assert_uint_eq(rps_value_row_bytes(RPS_VALUE_BF16, 3), 6);
    ck_assert_str_eq(rps_value_str(RPS_VALUE_I8), "i8");
    ck_assert_str_eq(rps_value_str(77), "?");
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("value");
    TCase *tcase = tcase_create("value");

    tcase_add_loop_test(tcase, a_half_is_the_nearest_one_at_every_length, 0, 2);
    tcase_add_test(tcase, an_i8_row_has_its_scale_and_the_nearest_steps);
    tcase_add_test(tcase, an_i8_row_at_the_ends_of_the_floats_is_defined);
    tcase_add_test(tcase, a_scale_that_no_row_has_is_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
