/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spec.h"
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

START_TEST(defaults_are_legal_for_every_built_optimizer)
{
    const enum rps_optimizer built[] = {
            RPS_OPTIMIZER_SGD, RPS_OPTIMIZER_ADAGRAD, RPS_OPTIMIZER_ADAM};
    rps_table_spec spec;

    for (size_t i = 0; i < 3; i++) {
        rps_table_spec_init(&spec, "t", 1, built[i]);
        ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
        ck_assert_uint_eq(rps_spec_slot_floats(&spec), i);
    }
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

    spec.device_vocabulary_size = 0;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_E_INVAL);
    spec.device_vocabulary_size = 1000000000;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
    spec.device_vocabulary_size = 1000000001;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_E_INVAL);
}
END_TEST

START_TEST(what_is_not_built_is_refused_by_name)
{
    rps_table_spec spec = good();
    char why[512];

    spec.min_used_times = 3;
    ck_assert_int_eq(
            rps_table_spec_check(&spec, why, sizeof(why)), RPS_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(why, "min_used_times"));
    spec = good();
    spec.optimizer = RPS_OPTIMIZER_FTRL;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_E_UNSUPPORTED);
    spec = good();
    spec.value_dtype = RPS_VALUE_BF16;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_E_UNSUPPORTED);
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

    tcase_add_test(tc, defaults_are_legal_for_every_built_optimizer);
    tcase_add_loop_test(tc, table_names_are_checked_character_by_character, 0,
            (int)(sizeof(names) / sizeof(names[0])));
    tcase_add_test(tc, name_of_128_characters_is_legal_and_of_129_is_not);
    tcase_add_test(tc, dimension_is_1_to_8192);
    tcase_add_test(tc, vocabulary_size_is_1_to_a_thousand_million);
    tcase_add_test(tc, what_is_not_built_is_refused_by_name);
    tcase_add_test(tc, numbers_that_are_nan_or_out_of_range_are_refused);
    tcase_add_test(tc, spec_survives_its_json_form_with_all_bits);
    tcase_add_test(tc, canonical_json_leaves_later_fields_out_at_their_default);
    tcase_add_test(tc, json_with_a_wrong_field_is_refused_naming_it);
    tcase_add_test(tc, differences_name_identity_and_policy_fields);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
