/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spec.h"
#include "base/spec_fields.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static rps_table_spec
good(void)
{
    rps_table_spec spec;

    rps_table_spec_init(&spec, "emb", 16, RPS_OPTIMIZER_ADAGRAD);
    return spec;
}

static const struct {
    enum rps_optimizer optimizer;
    const char *slots[2];
    uint32_t floats; /* of a row of 10 */
} slots_of[] = {
        {RPS_OPTIMIZER_SGD, {NULL, NULL}, 0},
        {RPS_OPTIMIZER_MOMENTUM, {"momentum", NULL}, 10},
        {RPS_OPTIMIZER_ADAGRAD, {"accumulator", NULL}, 10},
        {RPS_OPTIMIZER_ROWWISE_ADAGRAD, {"accumulator", NULL}, 1},
        {RPS_OPTIMIZER_ADAM, {"m", "v"}, 20},
        {RPS_OPTIMIZER_ADAMW, {"m", "v"}, 20},
        {RPS_OPTIMIZER_ADAM_CATCHUP, {"m", "v"}, 20},
        {RPS_OPTIMIZER_ADAMW_CATCHUP, {"m", "v"}, 20},
        {RPS_OPTIMIZER_FTRL, {"accum", "linear"}, 20},
        {RPS_OPTIMIZER_RMSPROP, {"ms", "mom"}, 20},
};

START_TEST(defaults_are_legal_for_every_optimizer_and_slots_have_names)
{
    rps_table_spec spec;
    uint32_t count = 0;

    rps_table_spec_init(&spec, "t", 10, slots_of[_i].optimizer);
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
    count = rps_spec_slot_count(&spec);
    ck_assert_uint_eq(rps_spec_slot_floats(&spec), slots_of[_i].floats);
    for (uint32_t s = 0; s < count; s++) {
        ck_assert_str_eq(rps_spec_slot_name(&spec, s), slots_of[_i].slots[s]);
        ck_assert_uint_eq(
                rps_spec_slot_width(&spec, s), slots_of[_i].floats / count);
    }
    ck_assert(count == 2 || slots_of[_i].slots[count] == NULL);
}
END_TEST

START_TEST(row_is_its_padded_values_then_float_slots)
{
    rps_table_spec spec;

    rps_table_spec_init(&spec, "t", 3, RPS_OPTIMIZER_ADAM);
    ck_assert_uint_eq(rps_spec_value_bytes(&spec), 12);
    ck_assert_uint_eq(rps_spec_row_bytes(&spec), 12 + 24);
    spec.value_dtype = RPS_VALUE_F16;
    ck_assert_uint_eq(rps_spec_value_bytes(&spec), 8);
    ck_assert_uint_eq(rps_spec_row_bytes(&spec), 8 + 24);
    spec.value_dtype = RPS_VALUE_BF16;
    spec.dim = 4;
    ck_assert_uint_eq(rps_spec_value_bytes(&spec), 8);
}
END_TEST

static const struct {
    const char *name;
    rps_status status;
} names[] = {{"a", RPS_OK}, {"user_table.v2", RPS_OK}, {"", RPS_E_INVAL},
        {"..", RPS_E_INVAL}, {".a", RPS_E_INVAL}, {"a/b", RPS_E_INVAL},
        {"a b", RPS_E_INVAL}, {"\xc3\xa9", RPS_E_INVAL}, {"0", RPS_OK}};

START_TEST(table_names_are_checked_character_by_character)
{
    rps_table_spec spec;

    rps_table_spec_init(&spec, names[_i].name, 4, RPS_OPTIMIZER_SGD);
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), names[_i].status);
}
END_TEST

START_TEST(name_of_128_characters_is_legal_and_of_129_is_not)
{
    char name[130];
    char why[256];
    rps_table_spec spec;

    memset(name, 'a', sizeof(name));
    name[129] = '\0';
    rps_table_spec_init(&spec, name, 4, RPS_OPTIMIZER_SGD);
    ck_assert_int_eq(
            rps_table_spec_check(&spec, why, sizeof(why)), RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(why, "1..128 characters"));
    name[128] = '\0';
    rps_table_spec_init(&spec, name, 4, RPS_OPTIMIZER_SGD);
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
}
END_TEST

START_TEST(null_arguments_are_refused)
{
    rps_table_spec spec;
    char why[256];

    ck_assert_int_eq(rps_table_spec_check(NULL, why, sizeof(why)), RPS_E_INVAL);
    ck_assert_str_eq(why, "spec is NULL");
    ck_assert_int_eq(rps_table_spec_check(NULL, NULL, 0), RPS_E_INVAL);
    ck_assert_int_eq(rps_table_spec_variance_scaling(
                             NULL, 1.0f, RPS_FAN_AVG, RPS_DISTRIBUTION_UNIFORM),
            RPS_E_INVAL);
    rps_table_spec_init(&spec, NULL, 4, RPS_OPTIMIZER_SGD);
    ck_assert_str_eq(spec.name, "");
    ck_assert_int_eq(
            rps_table_spec_check(&spec, why, sizeof(why)), RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(why, "name"));
    rps_table_spec_init(NULL, "t", 4, RPS_OPTIMIZER_SGD); /* does nothing */
}
END_TEST

START_TEST(dimension_is_1_to_8192)
{
    rps_table_spec spec = good();
    char why[256];

    spec.dim = 0;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_E_INVAL);
    spec.dim = 8192;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
    spec.dim = 8193;
    ck_assert_int_eq(
            rps_table_spec_check(&spec, why, sizeof(why)), RPS_E_INVAL);
    ck_assert_str_eq(why, "table emb: dimension is 8193, must be in [1, 8192]");
}
END_TEST

START_TEST(vocabulary_size_is_1_to_a_thousand_million)
{
    rps_table_spec spec = good();
    char why[256];

    spec.device_vocabulary_size = 0;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_E_INVAL);
    spec.device_vocabulary_size = 1000000000;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
    spec.device_vocabulary_size = 1000000001;
    ck_assert_int_eq(
            rps_table_spec_check(&spec, why, sizeof(why)), RPS_E_INVAL);
    ck_assert_str_eq(why,
            "table emb: device_vocabulary_size is 1000000001, must be in "
            "[1, 1000000000]");
}
END_TEST

/* INVAL, and all three words are in the message. */
static void
assert_refused(const rps_table_spec *spec, const char *const words[3])
{
    char why[512];

    ck_assert_int_eq(rps_table_spec_check(spec, why, sizeof(why)), RPS_E_INVAL);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_msg(strstr(why, words[i]) != NULL, "%s: %s", words[i], why);
    }
}

START_TEST(policy_fields_have_bounds_that_are_named)
{
    rps_table_spec spec = good();

    spec.min_used_times = 65535;
    spec.max_cold_steps = 8388608;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
    spec.min_used_times = 65536;
    assert_refused(&spec,
            (const char *const[]){"min_used_times", "65536", "[0, 65535]"});
    spec.admission = RPS_ADMISSION_SKETCH;
    spec.min_used_times = 256;
    assert_refused(
            &spec, (const char *const[]){"min_used_times", "256", "[0, 255]"});
    spec.min_used_times = 255;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
    spec.max_cold_steps = 8388609;
    assert_refused(&spec,
            (const char *const[]){"max_cold_steps", "8388609", "8388608"});
    spec = good();
    spec.max_cold_secs = UINT64_MAX;
    assert_refused(&spec, (const char *const[]){"max_cold_secs",
                                  "18446744073709551615", "4294967295"});
    spec = good();
    spec.keep_min_rows = (uint64_t)INT64_MAX + 1;
    assert_refused(&spec, (const char *const[]){"keep_min_rows",
                                  "9223372036854775808", "in [0"});
    spec = good();
    spec.memory_limit = RPS_MEMORY_LIMIT_MIN - 1;
    assert_refused(&spec, (const char *const[]){"memory_limit is 8388607",
                                  "8388608 at least", "0: no limit"});
    spec.memory_limit = RPS_MEMORY_LIMIT_MIN;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
    spec.memory_limit = (uint64_t)INT64_MAX + 1;
    assert_refused(&spec, (const char *const[]){"memory_limit",
                                  "9223372036854775808", "in [0"});
}
END_TEST

START_TEST(policy_fields_that_exclude_each_other_are_named)
{
    rps_table_spec spec = good();

    spec.max_cold_steps = 5;
    spec.max_cold_secs = 60;
    assert_refused(&spec, (const char *const[]){"max_cold_secs is 60",
                                  "max_cold_steps is 5", "only one"});
    spec = good();
    spec.dim = RPS_DENSE_ROW_FLOATS;
    spec.initializer = RPS_INITIALIZER_ZEROS;
    spec.dense_elements = 10;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
    spec.max_cold_steps = 5;
    assert_refused(&spec, (const char *const[]){"max_cold_steps", "dense",
                                  "keeps all its rows"});
    spec.max_cold_steps = 0;
    spec.on_full = RPS_ON_FULL_EVICT_LFU;
    assert_refused(&spec,
            (const char *const[]){"on_full", "dense", "keeps all its rows"});
}
END_TEST

START_TEST(what_is_not_built_is_refused_by_name)
{
    rps_table_spec spec = good();
    char why[512];

    spec.value_dtype = RPS_VALUE_I8;
    ck_assert_int_eq(
            rps_table_spec_check(&spec, why, sizeof(why)), RPS_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(why, "value_dtype is int8"));
}
END_TEST

START_TEST(numbers_that_are_nan_or_out_of_range_are_refused)
{
    rps_table_spec spec = good();

    spec.learning_rate = NAN;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_E_INVAL);
    spec = good();
    spec.initializer_low = 1.0f;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_E_INVAL);
    spec = good();
    spec.beta1 = 1.0f;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_E_INVAL);
}
END_TEST

/* A field of a spec of this optimizer, its least and largest legal value,
 * and one below and above. */
static const struct {
    enum rps_optimizer optimizer;
    const char *field;
    double low;
    double high;
    double bad[2];
} ranges[] = {
        {RPS_OPTIMIZER_SGD, "learning_rate", 0, 3e38, {-1e-9, NAN}},
        {RPS_OPTIMIZER_ADAGRAD, "initial_accumulator", 0, 1e6, {-1e-3, NAN}},
        {RPS_OPTIMIZER_FTRL, "initial_accumulator", 0, 1e6, {-1e-3, NAN}},
        {RPS_OPTIMIZER_ADAM, "beta1", 0, 0.9999, {-0.1, 1}},
        {RPS_OPTIMIZER_ADAMW, "beta2", 0, 0.9999, {-0.1, 1}},
        {RPS_OPTIMIZER_ADAM, "epsilon", 1e-45, 1, {0, 1.1}},
        {RPS_OPTIMIZER_RMSPROP, "epsilon", 1e-45, 1, {0, 1.1}},
        {RPS_OPTIMIZER_ROWWISE_ADAGRAD, "epsilon", 0, 1, {-1e-9, 1.1}},
        {RPS_OPTIMIZER_ADAMW, "weight_decay", 0, 10, {-1e-9, 10.1}},
        {RPS_OPTIMIZER_SGD, "weight_decay", 0, 10, {-1e-9, 10.1}},
        {RPS_OPTIMIZER_FTRL, "weight_decay", 0, 0, {1e-9, -1}},
        {RPS_OPTIMIZER_ADAM_CATCHUP, "weight_decay", 0, 0, {1e-9, -1}},
        {RPS_OPTIMIZER_MOMENTUM, "momentum", 0, 0.99, {-0.1, 1}},
        {RPS_OPTIMIZER_RMSPROP, "momentum", 0, 0.99, {-0.1, 1}},
        {RPS_OPTIMIZER_ADAM, "momentum", 0, 0, {0.9, -1}},
        {RPS_OPTIMIZER_RMSPROP, "rho", 0, 0.999, {-0.1, 1}},
        {RPS_OPTIMIZER_SGD, "rho", 0.9, 0.9, {0.5, 0}},
        {RPS_OPTIMIZER_FTRL, "l1", 0, 1e4, {-1, 10001}},
        {RPS_OPTIMIZER_FTRL, "l2", 0, 1e4, {-1, 10001}},
        {RPS_OPTIMIZER_FTRL, "l2_shrinkage", 0, 1e4, {-1, 10001}},
        {RPS_OPTIMIZER_ADAGRAD, "l1", 0, 0, {1, -1}},
        {RPS_OPTIMIZER_FTRL, "learning_rate_power", -1, 0, {-1.1, 0.1}},
        {RPS_OPTIMIZER_SGD, "learning_rate_power", -0.5, -0.5, {-0.4, 0}},
        {RPS_OPTIMIZER_ADAM_CATCHUP, "beta1", 0, 0.9994, {0.9996, -1}},
};

static rps_status
check_with(size_t i, double number, char *why, size_t why_bytes)
{
    rps_table_spec spec;
    size_t count = 0;
    const struct rps_spec_field *fields = rps_spec_fields(&count);
    const float value = (float)number;

    rps_table_spec_init(&spec, "t", 4, ranges[i].optimizer);
    for (size_t f = 0; f < count; f++) {
        if (strcmp(fields[f].name, ranges[i].field) == 0) {
            memcpy((char *)&spec + fields[f].offset, &value, sizeof(value));
        }
    }
    return rps_table_spec_check(&spec, why, why_bytes);
}

START_TEST(hyper_parameters_have_ranges_and_name_their_field)
{
    char why[512];

    ck_assert_int_eq(
            check_with((size_t)_i, ranges[_i].low, why, sizeof(why)), RPS_OK);
    ck_assert_int_eq(
            check_with((size_t)_i, ranges[_i].high, why, sizeof(why)), RPS_OK);
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(
                check_with((size_t)_i, ranges[_i].bad[i], why, sizeof(why)),
                RPS_E_INVAL);
        ck_assert_msg(strstr(why, ranges[_i].field) != NULL, "%s", why);
    }
}
END_TEST

START_TEST(what_means_nothing_to_a_table_is_refused)
{
    rps_table_spec spec;
    char why[512];

    rps_table_spec_init(&spec, "t", 4, RPS_OPTIMIZER_MOMENTUM);
    spec.nesterov = 1;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
    spec.nesterov = 2;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_E_INVAL);
    rps_table_spec_init(&spec, "t", 4, RPS_OPTIMIZER_SGD);
    spec.nesterov = 1;
    ck_assert_int_eq(
            rps_table_spec_check(&spec, why, sizeof(why)), RPS_E_INVAL);
    ck_assert_str_eq(why, "table t: nesterov is 1, must be in [0, 0]");
    spec = good();
    spec.stochastic_rounding = 1;
    ck_assert_int_eq(
            rps_table_spec_check(&spec, why, sizeof(why)), RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(why, "stochastic_rounding"));
    rps_table_spec_init(&spec, "t", 4, RPS_OPTIMIZER_ADAMW_CATCHUP);
    spec.max_cold_secs = 60;
    ck_assert_int_eq(
            rps_table_spec_check(&spec, why, sizeof(why)), RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(why, "max_cold_secs is 60"));
}
END_TEST

START_TEST(normal_initializers_ask_for_a_deviation_that_is_not_negative)
{
    rps_table_spec spec = good();

    spec.initializer = RPS_INITIALIZER_NORMAL;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
    spec.initializer_high = -0.01f;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_E_INVAL);
    spec.initializer = RPS_INITIALIZER_TRUNCATED_NORMAL;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_E_INVAL);
    spec.initializer = RPS_INITIALIZER_VARIANCE_SCALING;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_E_INVAL);
}
END_TEST

/* TensorFlow's numbers for a weight of [vocabulary, dim]. */
START_TEST(variance_scaling_becomes_plain_numbers)
{
    rps_table_spec spec = good();

    spec.device_vocabulary_size = 1000;
    ck_assert_int_eq(rps_table_spec_variance_scaling(&spec, 2.0f, RPS_FAN_AVG,
                             RPS_DISTRIBUTION_TRUNCATED_NORMAL),
            RPS_OK);
    ck_assert_int_eq(spec.initializer, RPS_INITIALIZER_TRUNCATED_NORMAL);
    ck_assert_float_eq(spec.initializer_low, 0.0f);
    ck_assert_double_eq_tol((double)spec.initializer_high,
            sqrt(2.0 / 508.0) / 0.8796256610342398, 1e-8);
    ck_assert_int_eq(rps_table_spec_variance_scaling(
                             &spec, 1.0f, RPS_FAN_OUT, RPS_DISTRIBUTION_NORMAL),
            RPS_OK);
    ck_assert_int_eq(spec.initializer, RPS_INITIALIZER_NORMAL);
    ck_assert_float_eq(spec.initializer_high, 0.25f);
    ck_assert_int_eq(rps_table_spec_variance_scaling(
                             &spec, 1.0f, RPS_FAN_IN, RPS_DISTRIBUTION_UNIFORM),
            RPS_OK);
    ck_assert_int_eq(spec.initializer, RPS_INITIALIZER_UNIFORM);
    ck_assert_double_eq_tol(
            (double)spec.initializer_high, sqrt(3.0 / 1000.0), 1e-8);
    ck_assert_float_eq(spec.initializer_low, -spec.initializer_high);
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
    ck_assert_int_eq(rps_table_spec_variance_scaling(
                             &spec, 0.0f, RPS_FAN_IN, RPS_DISTRIBUTION_UNIFORM),
            RPS_E_INVAL);
    ck_assert_int_eq(rps_table_spec_variance_scaling(
                             &spec, NAN, RPS_FAN_IN, RPS_DISTRIBUTION_UNIFORM),
            RPS_E_INVAL);
}
END_TEST

START_TEST(first_values_must_fit_a_short_value_type)
{
    rps_table_spec spec = good();

    spec.value_dtype = RPS_VALUE_F16;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
    spec.initializer = RPS_INITIALIZER_CONSTANT;
    spec.initializer_low = 65504.0f;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
    spec.initializer_low = 65505.0f;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_E_INVAL);
    spec.value_dtype = RPS_VALUE_BF16;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
    spec.initializer_low = 3.4e38f;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_E_INVAL);
    spec.value_dtype = RPS_VALUE_F16;
    spec.initializer = RPS_INITIALIZER_NORMAL;
    spec.initializer_low = 0.0f;
    spec.initializer_high = 9000.0f; /* eight deviations are too many */
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_E_INVAL);
}
END_TEST

/* The first version let numbers without a part be anything. */
START_TEST(idle_numbers_of_an_old_spec_go_back_to_their_defaults)
{
    rps_table_spec spec;
    rps_table_spec wanted;

    rps_table_spec_init(&wanted, "a", 4, RPS_OPTIMIZER_SGD);
    wanted.learning_rate = 0.5f;
    spec = wanted;
    spec.beta1 = 0.5f;
    spec.initial_accumulator = 3.0f;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_E_INVAL);
    rps_spec_reset_idle(&spec);
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
    ck_assert_ptr_null(rps_spec_policy_differs(&spec, &wanted));
}
END_TEST

static void
read_text(const char *text, rps_status wanted, const char *word)
{
    struct rps_error error = {.text = ""};
    rps_table_spec spec;
    json_t *value = json_loads(text, 0, NULL);

    ck_assert_int_eq(rps_spec_from_value(value, &spec, &error), wanted);
    if (word != NULL) {
        ck_assert_msg(strstr(error.text, word) != NULL, "%s", error.text);
    }
    json_decref(value);
}

START_TEST(spec_survives_its_json_form_with_all_bits)
{
    rps_table_spec spec = good();
    rps_table_spec back;
    json_t *value = NULL;
    char *text = NULL;
    char *again = NULL;

    spec.seed = UINT64_MAX;
    spec.learning_rate = 0.02f;
    spec.initializer_low = -0.1f;
    spec.clip_norm = 1e-38f;
    text = rps_spec_to_json(&spec);
    ck_assert_ptr_nonnull(strstr(text, "\"seed\":\"18446744073709551615\""));
    value = json_loads(text, 0, NULL);
    ck_assert_int_eq(rps_spec_from_value(value, &back, NULL), RPS_OK);
    ck_assert_ptr_null(rps_spec_identity_differs(&spec, &back));
    ck_assert_ptr_null(rps_spec_policy_differs(&spec, &back));
    again = rps_spec_to_json(&back);
    ck_assert_str_eq(text, again);
    json_decref(value);
    free(text);
    free(again);
}
END_TEST

/* So an old spec and the same one written again have one digest. */
START_TEST(canonical_json_leaves_later_fields_out_at_their_default)
{
    rps_table_spec spec = good();
    json_t *shown = rps_spec_to_value(&spec);
    char *text = rps_spec_to_json(&spec);

    ck_assert_ptr_null(strstr(text, "stochastic_rounding"));
    ck_assert_ptr_null(strstr(text, "admission"));
    ck_assert_ptr_nonnull(strstr(text, "\"min_used_times\":0"));
    ck_assert_ptr_nonnull(json_object_get(shown, "admission"));
    free(text);
    spec.admission = RPS_ADMISSION_SKETCH;
    spec.stochastic_rounding = 1;
    text = rps_spec_to_json(&spec);
    ck_assert_ptr_nonnull(strstr(text, "\"stochastic_rounding\":1"));
    ck_assert_ptr_nonnull(strstr(text, "\"admission\":\"sketch\""));
    free(text);
    json_decref(shown);
}
END_TEST

START_TEST(json_with_a_wrong_field_is_refused_naming_it)
{
    read_text("{\"name\":\"a\",\"dimension\":4}", RPS_OK, NULL);
    read_text("{\"name\":\"a\",\"dimension\":4.5}", RPS_E_INVAL, "dimension");
    read_text("{\"name\":\"a\",\"dimension\":-1}", RPS_E_INVAL, "dimension");
    read_text("{\"name\":\"a\",\"dimension\":4,\"dmi\":1}", RPS_E_INVAL, "dmi");
    read_text("{\"name\":\"a\",\"dimension\":4,\"optimizer\":\"adma\"}",
            RPS_E_INVAL, "optimizer must be one of sgd");
    read_text(
            "{\"name\":\"a\",\"dimension\":4,\"seed\":5}", RPS_E_INVAL, "seed");
    read_text("{\"name\":\"a\",\"dimension\":4,\"beta1\":1e300}", RPS_E_INVAL,
            "beta1");
    read_text("[]", RPS_E_INVAL, "object");
}
END_TEST

START_TEST(differences_name_identity_and_policy_fields)
{
    rps_table_spec a = good();
    rps_table_spec b = good();

    b.dim = 8;
    ck_assert_str_eq(rps_spec_identity_differs(&a, &b), "dimension");
    b = good();
    b.learning_rate = 1.0f;
    ck_assert_ptr_null(rps_spec_identity_differs(&a, &b));
    ck_assert_str_eq(rps_spec_policy_differs(&a, &b), "learning_rate");
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("spec");
    TCase *tc = tcase_create("spec");

    tcase_add_loop_test(tc,
            defaults_are_legal_for_every_optimizer_and_slots_have_names, 0,
            RPS_OPTIMIZER_COUNT);
    tcase_add_test(tc, row_is_its_padded_values_then_float_slots);
    tcase_add_loop_test(tc, hyper_parameters_have_ranges_and_name_their_field,
            0, (int)(sizeof(ranges) / sizeof(ranges[0])));
    tcase_add_test(tc, what_means_nothing_to_a_table_is_refused);
    tcase_add_test(
            tc, normal_initializers_ask_for_a_deviation_that_is_not_negative);
    tcase_add_test(tc, variance_scaling_becomes_plain_numbers);
    tcase_add_loop_test(tc, table_names_are_checked_character_by_character, 0,
            (int)(sizeof(names) / sizeof(names[0])));
    tcase_add_test(tc, name_of_128_characters_is_legal_and_of_129_is_not);
    tcase_add_test(tc, null_arguments_are_refused);
    tcase_add_test(tc, dimension_is_1_to_8192);
    tcase_add_test(tc, vocabulary_size_is_1_to_a_thousand_million);
    tcase_add_test(tc, policy_fields_have_bounds_that_are_named);
    tcase_add_test(tc, policy_fields_that_exclude_each_other_are_named);
    tcase_add_test(tc, what_is_not_built_is_refused_by_name);
    tcase_add_test(tc, numbers_that_are_nan_or_out_of_range_are_refused);
    tcase_add_test(tc, first_values_must_fit_a_short_value_type);
    tcase_add_test(tc, idle_numbers_of_an_old_spec_go_back_to_their_defaults);
    tcase_add_test(tc, spec_survives_its_json_form_with_all_bits);
    tcase_add_test(tc, canonical_json_leaves_later_fields_out_at_their_default);
    tcase_add_test(tc, json_with_a_wrong_field_is_refused_naming_it);
    tcase_add_test(tc, differences_name_identity_and_policy_fields);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
