/* SPDX-License-Identifier: Apache-2.0 */
/* --ring-order's file: what is taken, and what is refused in words. */
#include "base/file.h"
#include "client/worker/ring_order.h"
#include "tests/unit/folder.h"
#include "tests/unit/suite.h"

#include <stdio.h>
#include <string.h>

static char folder[FOLDER_BYTES];
static char path[FOLDER_BYTES + 16];

static void
write_file(const char *text)
{
    struct rps_error error;

    (void)snprintf(path, sizeof(path), "%s/order.json", folder);
    ck_assert_int_eq(
            rps_file_write(path, text, strlen(text), true, &error), RPS_OK);
}

static void
must_refuse(
        const char *text, uint32_t count, rps_status status, const char *words)
{
    struct rps_error error = {.text = ""};
    uint32_t *order = &count;

    write_file(text);
    ck_assert_int_eq(rps_ring_order_read(path, count, &order, &error), status);
    ck_assert_ptr_null(order);
    ck_assert_msg(strstr(error.text, words) != NULL, "\"%s\" is not in \"%s\"",
            words, error.text);
    ck_assert_msg(strstr(error.text, path) != NULL, "%s", error.text);
}

START_TEST(the_rank_at_each_place_is_read_in_any_order_of_entries)
{
    struct rps_error error;
    uint32_t *order = NULL;

    write_file(
            "{\"ranks\":3,\"order\":[{\"rank\":2,\"was\":0,\"switch\":\"s\"},"
            "{\"rank\":0,\"was\":1},{\"was\":2,\"rank\":1}]}");
    ck_assert_int_eq(rps_ring_order_read(path, 3, &order, &error), RPS_OK);
    ck_assert_uint_eq(order[0], 1);
    ck_assert_uint_eq(order[1], 2);
    ck_assert_uint_eq(order[2], 0);
    free(order);
}
END_TEST

START_TEST(what_is_no_order_of_these_ranks_is_refused)
{
    must_refuse("", 2, RPS_E_INVAL, "line ");
    must_refuse("{\"order\":[", 2, RPS_E_INVAL, "line ");
    must_refuse("[]", 2, RPS_E_INVAL, "no list \"order\"");
    must_refuse("{\"order\":{}}", 2, RPS_E_INVAL, "no list \"order\"");
    must_refuse("{\"order\":[]}", 2, RPS_E_INVAL, "orders 0 ranks");
    must_refuse("{\"order\":[1,2]}", 2, RPS_E_INVAL, "\"rank\" and \"was\"");
    must_refuse("{\"order\":[{\"rank\":-1,\"was\":0},{}]}", 2, RPS_E_INVAL,
            "\"rank\" and \"was\"");
    must_refuse("{\"order\":[{\"rank\":0,\"was\":0},{\"rank\":0,\"was\":1}]}",
            2, RPS_E_INVAL, "one of 0 to 1, once");
    must_refuse("{\"order\":[{\"rank\":0,\"was\":1},{\"rank\":1,\"was\":1}]}",
            2, RPS_E_INVAL, "one of 0 to 1, once");
    must_refuse("{\"order\":[{\"rank\":0,\"was\":4294967296},"
                "{\"rank\":1,\"was\":1}]}",
            2, RPS_E_INVAL, "one of 0 to 1, once");
    must_refuse("{\"order\":[],\"order\":[]}", 2, RPS_E_INVAL, "duplicate");
}
END_TEST

START_TEST(a_file_that_is_not_there_is_named)
{
    struct rps_error error = {.text = ""};
    uint32_t *order = NULL;

    ck_assert_int_eq(rps_ring_order_read("/nowhere/at-all", 2, &order, &error),
            RPS_E_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(error.text, "--ring-order: "));
    ck_assert_ptr_nonnull(strstr(error.text, "/nowhere/at-all"));
}
END_TEST

static void
setup(void)
{
    folder_make(folder);
}

static void
teardown(void)
{
    folder_remove(folder);
}

int
main(void)
{
    Suite *suite = suite_create("ring_order");
    TCase *tcase = tcase_create("ring_order");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(
            tcase, the_rank_at_each_place_is_read_in_any_order_of_entries);
    tcase_add_test(tcase, what_is_no_order_of_these_ranks_is_refused);
    tcase_add_test(tcase, a_file_that_is_not_there_is_named);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
