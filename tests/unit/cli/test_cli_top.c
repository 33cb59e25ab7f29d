/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/top_figures.h"
#include "client/cli/top_screen.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)

static json_t *
json(const char *text)
{
    json_t *value = json_loads(text, 0, NULL);

    ck_assert_msg(value != NULL, "%s", text);
    return value;
}

/* ---- percentiles ---- */

static json_t *
times(const char *buckets)
{
    char text[512];

    snprintf(text, sizeof(text),
            "{\"times\":{\"EMBEDDING_LOOKUP\":{\"buckets\":[%s]}}}", buckets);
    return json(text);
}

START_TEST(a_percentile_is_between_the_bounds_of_its_bucket)
{
    json_t *now = times("[1000,2000,50],[2000,4000,50]");

    /* the 25th of the 50 in [1000, 2000), then the 49th of those beyond */
    ck_assert_double_eq_tol(
            rps_top_percentile(NULL, now, "EMBEDDING_LOOKUP", 0.25), 1500, 1);
    ck_assert_double_eq_tol(
            rps_top_percentile(NULL, now, "EMBEDDING_LOOKUP", 0.99), 3960, 1);
    json_decref(now);
}
END_TEST

START_TEST(what_was_there_before_does_not_count)
{
    json_t *before = times("[1000,2000,1000],[2000,4000,7]");
    json_t *now = times("[1000,2000,1000],[2000,4000,107]");

    ck_assert_double_eq_tol(
            rps_top_percentile(before, now, "EMBEDDING_LOOKUP", 0.5), 3000, 1);
    ck_assert(isnan(rps_top_percentile(now, now, "EMBEDDING_LOOKUP", 0.5)));
    ck_assert(isnan(rps_top_percentile(NULL, now, "PUSH_GRADIENTS", 0.5)));
    json_decref(before);
    json_decref(now);
}
END_TEST

START_TEST(the_last_bucket_has_no_end)
{
    json_t *now = times("[68719476736,0,3]");

    ck_assert_double_eq(rps_top_percentile(NULL, now, "EMBEDDING_LOOKUP", 0.99),
            68719476736.0);
    json_decref(now);
}
END_TEST

/* ---- rates ---- */

static json_t *
stat(const char *incarnation, int requests, int lookups, int missing)
{
    char text[512];

    snprintf(text, sizeof(text),
            "{\"incarnation\":\"%s\",\"epoch\":2,\"step\":7,\"mode\":\"async\","
            "\"connections\":3,\"memory_used\":512,\"memory_limit\":1024,"
            "\"requests\":{\"EMBEDDING_LOOKUP\":{\"count\":%d,\"errors\":0}},"
            "\"received_bytes\":%d,\"sent_bytes\":0,"
            "\"tables\":[{\"name\":\"emb\",\"rows\":10,\"bytes\":640,"
            "\"spec\":{\"dimension\":4},\"lookups\":%d,\"missing\":%d}]}",
            incarnation, requests, requests * 64, lookups, missing);
    return json(text);
}

struct looks {
    struct rps_top_look before[2];
    struct rps_top_look now[2];
    struct rps_top top;
};

static void
work_out(struct looks *looks, uint32_t ps_count)
{
    for (uint32_t i = 0; i < ps_count; i++) {
        looks->before[i].at_ns = SECOND;
        looks->now[i].at_ns = 3 * SECOND;
    }
    ck_assert(rps_top_work_out(
            &looks->top, looks->before, looks->now, ps_count, 3 * SECOND));
}

static void
finish(struct looks *looks)
{
    for (uint32_t i = 0; i < 2; i++) {
        rps_top_look_finish(&looks->before[i]);
        rps_top_look_finish(&looks->now[i]);
    }
    rps_top_finish(&looks->top);
}

START_TEST(rates_are_of_the_time_between_two_looks)
{
    struct looks looks = {.before[0].stat = stat("a", 10, 100, 10),
            .now[0].stat = stat("a", 30, 500, 110)};

    work_out(&looks, 1);
    ck_assert_double_eq(looks.top.seconds, 2);
    ck_assert_double_eq(looks.top.ps[0].rates.requests, 10);
    ck_assert_double_eq(looks.top.ps[0].rates.lookups, 200);
    ck_assert_double_eq(looks.top.ps[0].rates.missing, 0.25);
    ck_assert_double_eq(looks.top.ps[0].rates.received, 640);
    ck_assert_double_eq(looks.top.tables[0].rates.lookups, 200);
    ck_assert_uint_eq(looks.top.tables[0].rows, 10);
    finish(&looks);
}
END_TEST

START_TEST(a_server_that_began_anew_has_no_rates)
{
    struct looks looks = {.before[0].stat = stat("a", 10, 100, 10),
            .now[0].stat = stat("b", 30, 500, 110)};

    work_out(&looks, 1);
    ck_assert(looks.top.ps[0].here);
    ck_assert(isnan(looks.top.ps[0].rates.requests));
    ck_assert(isnan(looks.top.tables[0].rates.lookups));
    finish(&looks);
}
END_TEST

START_TEST(a_silent_server_keeps_its_figures_and_adds_no_rates)
{
    struct looks looks = {.before[0].stat = stat("a", 10, 100, 0),
            .before[1].stat = stat("b", 10, 100, 0),
            .now[0].stat = stat("a", 30, 500, 0)};

    strcpy(looks.now[1].why, "it is gone");
    work_out(&looks, 2);
    ck_assert(!looks.top.ps[1].here);
    ck_assert_uint_eq(looks.top.ps[1].age_ms, 2000);
    ck_assert_uint_eq(looks.top.ps[1].connections, 3);
    ck_assert_uint_eq(looks.top.tables[0].rows, 20);
    ck_assert_double_eq(looks.top.sum.lookups, 200);
    ck_assert_double_eq(looks.top.tables[0].rates.lookups, 200);
    finish(&looks);
}
END_TEST

/* ---- frames ---- */

static rps_member servers[2] = {{.address = (char *)(uintptr_t) "host-a:2222"},
        {.address = (char *)(uintptr_t) "host-b:2222"}};
static const rps_cluster cluster = {.ps = servers, .ps_count = 2};

/* Lines of a frame; the widest in *widest_out. */
static size_t
measure(const struct rps_text *text, size_t *widest_out)
{
    size_t lines = 0;

    *widest_out = 0;
    for (const char *at = text->bytes; *at != '\0'; lines++) {
        const size_t length = strcspn(at, "\n");

        *widest_out = length > *widest_out ? length : *widest_out;
        at += length + (at[length] == '\n');
    }
    return lines;
}

START_TEST(a_frame_fits_any_window)
{
    struct looks looks = {.before[0].stat = stat("a", 10, 100, 10),
            .now[0].stat = stat("a", 30, 500, 110)};

    strcpy(looks.now[1].why, "PS 1 (host-b:2222): Connection refused");
    work_out(&looks, 2);
    for (uint32_t columns = 1; columns < 200; columns++) {
        const struct rps_top_form form = {.columns = columns,
                .lines = 2 + columns % 29,
                .head = "  12:00:00"};
        struct rps_text text = {.bytes = NULL};
        size_t widest;

        rps_top_draw(&text, &looks.top, &cluster, &form);
        ck_assert_uint_lt(measure(&text, &widest), form.lines);
        ck_assert_uint_le(widest, columns);
        rps_text_finish(&text);
    }
    finish(&looks);
}
END_TEST

START_TEST(a_narrow_window_keeps_what_tells_most)
{
    struct looks looks = {.before[0].stat = stat("a", 10, 100, 10),
            .now[0].stat = stat("a", 30, 500, 110)};
    const struct rps_top_form form = {.columns = 40, .head = ""};
    struct rps_text text = {.bytes = NULL};

    strcpy(looks.now[1].why, "gone \033[2J");
    work_out(&looks, 2);
    rps_top_draw(&text, &looks.top, &cluster, &form);
    ck_assert_ptr_nonnull(strstr(text.bytes, "lookups/s"));
    ck_assert_ptr_nonnull(strstr(text.bytes, "emb"));
    ck_assert_ptr_null(strstr(text.bytes, "out/s"));
    ck_assert_ptr_nonnull(strstr(text.bytes, "! ps 1"));
    ck_assert_ptr_null(strchr(text.bytes, '\033')); /* a server's is none */
    rps_text_finish(&text);
    finish(&looks);
}
END_TEST

START_TEST(numbers_are_short)
{
    static const struct {
        double value;
        const char *rate;
    } rates[] = {{0, "0"}, {0.25, "0.2"}, {9.94, "9.9"}, {17, "17"},
            {999, "999"}, {999.96, "1.0k"}, {123456, "123.5k"}, {2.5e9, "2.5G"},
            {3e15, "3000.0T"}};
    char out[32];

    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        ck_assert_str_eq(rps_top_rate(rates[i].value, out), rates[i].rate);
    }
    ck_assert_str_eq(rps_top_rate(NAN, out), "-");
    ck_assert_str_eq(rps_top_time(870e3, out), "870us");
    ck_assert_str_eq(rps_top_time(3.14e6, out), "3.1ms");
    ck_assert_str_eq(rps_top_time(2e9, out), "2.0s");
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("cli_top");
    TCase *tcase = tcase_create("top");

    tcase_add_test(tcase, a_percentile_is_between_the_bounds_of_its_bucket);
    tcase_add_test(tcase, what_was_there_before_does_not_count);
    tcase_add_test(tcase, the_last_bucket_has_no_end);
    tcase_add_test(tcase, rates_are_of_the_time_between_two_looks);
    tcase_add_test(tcase, a_server_that_began_anew_has_no_rates);
    tcase_add_test(tcase, a_silent_server_keeps_its_figures_and_adds_no_rates);
    tcase_add_test(tcase, a_frame_fits_any_window);
    tcase_add_test(tcase, a_narrow_window_keeps_what_tells_most);
    tcase_add_test(tcase, numbers_are_short);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
