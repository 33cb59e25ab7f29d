/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spec.h"
#include "tests/unit/suite.h"

#include <string.h>

static rps_table_spec
before(void)
{
    rps_table_spec spec;

    rps_table_spec_init(&spec, "emb", 8, RPS_OPTIMIZER_ADAGRAD);
    spec.seed = UINT64_MAX - 7; /* more bits than a double has */
    spec.learning_rate = 0.1f;
    spec.initializer_low = -0.123456789f;
    spec.initial_accumulator = 0.3f;
    return spec;
}

static rps_status
alter(const char *fields, rps_table_spec *spec, struct rps_error *error)
{
    const rps_table_spec from = before();
    json_t *object = json_loads(fields, 0, NULL);
    rps_status status;

    ck_assert_ptr_nonnull(object);
    error->text[0] = '\0';
    status = rps_spec_alter(&from, object, spec, error);
    json_decref(object);
    return status;
}

START_TEST(named_fields_change_and_all_others_keep_their_bits)
{
    const rps_table_spec from = before();
    struct rps_error error;
    rps_table_spec to;

    ck_assert_msg(alter("{\"learning_rate\":0.7,\"clip_norm\":2}", &to,
                          &error) == RPS_OK,
            "%s", error.text);
    ck_assert_float_eq(to.learning_rate, 0.7f);
    ck_assert_float_eq(to.clip_norm, 2.0f);
    to.learning_rate = from.learning_rate;
    to.clip_norm = from.clip_norm;
    ck_assert_ptr_null(rps_spec_identity_differs(&from, &to));
    ck_assert_ptr_null(rps_spec_policy_differs(&from, &to));
    ck_assert_uint_eq(to.seed, from.seed);
}
END_TEST

static const struct {
    const char *fields;
    rps_status status;
    const char *words;
} refusals[] = {
        {"{\"name\":\"b\"}", RPS_E_MISMATCH, "table emb: name is part"},
        {"{\"dimension\":3}", RPS_E_MISMATCH, "dimension is part"},
        {"{\"dim\":3}", RPS_E_MISMATCH, "table emb: dim is part"},
        {"{\"seed\":\"1\"}", RPS_E_MISMATCH, "seed is part"},
        {"{\"optimizer\":\"sgd\"}", RPS_E_MISMATCH, "optimizer is part"},
        {"{\"learning_rate\":1,\"value_dtype\":\"float16\"}", RPS_E_MISMATCH,
                "value_dtype is part"},
        {"{\"learningrate\":1}", RPS_E_INVAL,
                "no field \"learningrate\"; did you mean \"learning_rate\"?"},
        {"{\"zzzzzzzzzzzz\":1}", RPS_E_INVAL, "no field \"zzzzzzzzzzzz\""},
        {"{\"\":1}", RPS_E_INVAL, "no field \"\""},
        {"{\"learning_rate\":\"1\"}", RPS_E_INVAL, "learning_rate"},
        {"{\"clip_value\":-2}", RPS_E_INVAL, "clip_value"},
        {"{\"device_vocabulary_size\":0}", RPS_E_INVAL,
                "device_vocabulary_size"},
        {"{\"on_full\":7}", RPS_E_INVAL, "on_full must be one of refuse"},
        {"{}", RPS_E_INVAL, "nothing to change"},
        {"[]", RPS_E_INVAL, "nothing to change"},
};

START_TEST(what_cannot_be_is_refused_by_name)
{
    struct rps_error error;
    rps_table_spec to;

    ck_assert_int_eq(
            alter(refusals[_i].fields, &to, &error), refusals[_i].status);
    ck_assert_msg(strstr(error.text, refusals[_i].words) != NULL,
            "\"%s\" is not in \"%s\"", refusals[_i].words, error.text);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("spec_alter");
    TCase *tcase = tcase_create("alter");

    tcase_add_test(tcase, named_fields_change_and_all_others_keep_their_bits);
    tcase_add_loop_test(tcase, what_cannot_be_is_refused_by_name, 0,
            (int)(sizeof(refusals) / sizeof(refusals[0])));
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
