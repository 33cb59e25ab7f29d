/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/usage.h"
#include "tests/unit/suite.h"

#include <math.h>

static const struct rps_usage_machine machine = {
        .processors = 2.0, .memory = 1000};

static const struct rps_usage_look first = {.at_ns = 1000000000,
        .cpu_seconds = 10.0,
        .resident = 100,
        .has_disk = true,
        .disk_read = 500,
        .disk_written = 700,
        .has_device = true,
        .device = {.busy_ns = 100, .memory_capacity = 4096},
        .samples = 50};

START_TEST(rates_are_what_grew_between_two_looks)
{
    struct rps_usage_look now = first;
    struct rps_usage usage;

    now.at_ns += 2000000000; /* two seconds */
    now.cpu_seconds += 1.0;  /* of the four that it might have had */
    now.resident = 250;
    now.disk_read += 1000;
    now.disk_written += 30;
    now.device.busy_ns += 500000000;
    now.device.memory_used = 1024;
    now.samples += 600;
    usage = rps_usage_between(&machine, &first, &now);
    ck_assert_double_eq_tol(usage.cpu_usage, 0.25, 1e-12);
    ck_assert_double_eq_tol(usage.mem_usage, 0.25, 1e-12);
    ck_assert_double_eq_tol(usage.npu_util, 0.25, 1e-12);
    ck_assert_double_eq_tol(usage.npu_mem_usage, 0.25, 1e-12);
    ck_assert_double_eq_tol(usage.disk_read_rate, 500.0, 1e-9);
    ck_assert_double_eq_tol(usage.disk_write_rate, 15.0, 1e-9);
    ck_assert_double_eq_tol(usage.samples_rate, 300.0, 1e-9);
}
END_TEST

START_TEST(the_first_look_has_no_rates)
{
    const struct rps_usage_look none = {.at_ns = 0};
    const struct rps_usage usage = rps_usage_between(&machine, &none, &first);

    ck_assert(isnan(usage.cpu_usage) && isnan(usage.npu_util));
    ck_assert(isnan(usage.disk_read_rate) && isnan(usage.samples_rate));
    ck_assert_double_eq_tol(usage.mem_usage, 0.1, 1e-12);
    ck_assert_double_eq(usage.npu_mem_usage, 0.0);
}
END_TEST

START_TEST(what_is_not_there_is_no_number)
{
    struct rps_usage_look before = first, now = first;
    struct rps_usage usage;

    before.has_disk = before.has_device = false;
    now.has_disk = now.has_device = false;
    now.at_ns += 1;
    usage = rps_usage_between(
            &(struct rps_usage_machine){.processors = 1.0}, &before, &now);
    ck_assert(isnan(usage.mem_usage) && isnan(usage.npu_util));
    ck_assert(isnan(usage.npu_mem_usage));
    ck_assert(isnan(usage.disk_read_rate) && isnan(usage.disk_write_rate));
    ck_assert_double_eq(usage.cpu_usage, 0.0);
}
END_TEST

START_TEST(parts_stay_parts)
{
    struct rps_usage_look now = first;
    struct rps_usage usage;

    now.at_ns += 1000; /* a tick of the kernel's is longer than this */
    now.cpu_seconds += 0.01;
    now.resident = 5000;
    now.device.busy_ns += 100000;
    now.device.memory_used = 9999;
    now.disk_read = 0; /* a counter that began anew */
    usage = rps_usage_between(&machine, &first, &now);
    ck_assert_double_eq(usage.cpu_usage, 1.0);
    ck_assert_double_eq(usage.mem_usage, 1.0);
    ck_assert_double_eq(usage.npu_util, 1.0);
    ck_assert_double_eq(usage.npu_mem_usage, 1.0);
    ck_assert_double_eq(usage.disk_read_rate, 0.0);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("worker_usage");
    TCase *tcase = tcase_create("usage");

    tcase_add_test(tcase, rates_are_what_grew_between_two_looks);
    tcase_add_test(tcase, the_first_look_has_no_rates);
    tcase_add_test(tcase, what_is_not_there_is_no_number);
    tcase_add_test(tcase, parts_stay_parts);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
