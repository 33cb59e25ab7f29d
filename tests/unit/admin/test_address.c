/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/address.h"
#include "tests/unit/suite.h"

#include <string.h>

static struct rps_listen_plan plan;
static struct rps_error words;

static rps_status
make(const char *bind, const char *own)
{
    words.text[0] = '\0';
    return rps_listen_plan_make(&plan, bind, own, &words);
}

static const char *
address(uint32_t i)
{
    static char text[RPS_ADDRESS_TEXT_BYTES];

    return rps_address_text((const struct sockaddr *)&plan.addresses[i].storage,
            plan.addresses[i].length, text);
}

START_TEST(without_an_entry_it_is_loopback_2222)
{
    ck_assert_int_eq(make("", NULL), RPS_OK);
    ck_assert_uint_eq(plan.count, 1);
    ck_assert(plan.loopback);
    ck_assert_str_eq(address(0), "127.0.0.1:2222");
}
END_TEST

START_TEST(localhost_is_both_loopback_addresses)
{
    ck_assert_int_eq(make("", "localhost:5000"), RPS_OK);
    ck_assert_uint_eq(plan.count, 2);
    ck_assert(plan.loopback);
    ck_assert_str_eq(address(0), "127.0.0.1:5000");
    ck_assert_str_eq(address(1), "[::1]:5000");
    ck_assert(!plan.addresses[0].optional && plan.addresses[1].optional);
}
END_TEST

START_TEST(a_loopback_entry_is_bound_as_it_is)
{
    ck_assert_int_eq(make("", "127.0.0.9:5000"), RPS_OK);
    ck_assert_uint_eq(plan.count, 1);
    ck_assert(plan.loopback);
    ck_assert_str_eq(address(0), "127.0.0.9:5000");
    ck_assert_int_eq(make("", "[::1]:5000"), RPS_OK);
    ck_assert(plan.loopback);
    ck_assert_str_eq(address(0), "[::1]:5000");
}
END_TEST

START_TEST(any_other_entry_is_never_bound_by_name)
{
    const char *entries[] = {"ps-0.job.svc:5000", "10.1.2.3:5000",
            "[2001:db8::1]:5000", "128.0.0.1:5000"};

    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(make("", entries[i]), RPS_OK);
        ck_assert_uint_eq(plan.count, 2);
        ck_assert(!plan.loopback);
        ck_assert_str_eq(address(0), "0.0.0.0:5000");
        ck_assert_str_eq(address(1), "[::]:5000");
    }
}
END_TEST

START_TEST(bind_overrides_the_entry)
{
    ck_assert_int_eq(make("127.0.0.1:0", "10.1.2.3:5000"), RPS_OK);
    ck_assert(plan.loopback);
    ck_assert_uint_eq(plan.port, 0);
    ck_assert_int_eq(make("0.0.0.0:7", "127.0.0.1:5000"), RPS_OK);
    ck_assert(!plan.loopback);
    ck_assert_str_eq(address(0), "0.0.0.0:7");
}
END_TEST

START_TEST(what_cannot_be_read_is_refused_in_words)
{
    const char *bad[] = {"127.0.0.1", ":5000", "127.0.0.1:", "127.0.0.1:x",
            "127.0.0.1:65536", "::1:5000", "[]:5000", "127.0.0.1:-1"};
    char host[400];

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        ck_assert_int_eq(make(bad[i], NULL), RPS_E_INVAL);
        ck_assert(strstr(words.text, bad[i]) != NULL);
    }
    memset(host, 'h', sizeof(host));
    memcpy(host + sizeof(host) - 6, ":5000", 6);
    ck_assert_int_eq(make(host, NULL), RPS_E_INVAL);
    ck_assert_int_eq(
            make("no-such-host.invalid:5000", NULL), RPS_E_RETRY_LATER);
    ck_assert(strstr(words.text, "no-such-host.invalid") != NULL);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("address");
    TCase *tcase = tcase_create("plan");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, without_an_entry_it_is_loopback_2222);
    tcase_add_test(tcase, localhost_is_both_loopback_addresses);
    tcase_add_test(tcase, a_loopback_entry_is_bound_as_it_is);
    tcase_add_test(tcase, any_other_entry_is_never_bound_by_name);
    tcase_add_test(tcase, bind_overrides_the_entry);
    tcase_add_test(tcase, what_cannot_be_read_is_refused_in_words);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
