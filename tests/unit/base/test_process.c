/* SPDX-License-Identifier: Apache-2.0 */
#include "base/process.h"
#include "tests/unit/folder.h"
#include "tests/unit/suite.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static char folder[FOLDER_BYTES];
static char own[FOLDER_BYTES + 16];

/* A file below the folder, with the folders on its way. */
static void
put(const char *path, const char *text)
{
    char whole[FOLDER_BYTES + 128];
    char command[2 * sizeof(whole)];
    FILE *file;

    (void)snprintf(whole, sizeof(whole), "%s/%s", folder, path);
    (void)snprintf(
            command, sizeof(command), "mkdir -p \"$(dirname '%s')\"", whole);
    ck_assert_int_eq(system(command), 0);
    file = fopen(whole, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static void
begin(const char *groups)
{
    folder_make(folder);
    (void)snprintf(own, sizeof(own), "%s/own", folder);
    put("own", groups);
}

START_TEST(the_least_limit_above_a_group_holds)
{
    begin("0::/pods/pod7/box\n");
    put("memory.max", "max\n");
    put("pods/memory.max", "8000\n");
    put("pods/pod7/memory.max", "3000\n");
    put("pods/pod7/box/memory.max", "5000\n");
    ck_assert_uint_eq(rps_cgroup_memory_max(own, folder), 3000);
    put("pods/pod7/memory.max", "max\n");
    ck_assert_uint_eq(rps_cgroup_memory_max(own, folder), 5000);
    folder_remove(folder);
}
END_TEST

START_TEST(a_namespace_of_its_own_has_its_limit_at_the_root)
{
    begin("0::/\n");
    put("memory.max", "123456789\n");
    ck_assert_uint_eq(rps_cgroup_memory_max(own, folder), 123456789);
    folder_remove(folder);
}
END_TEST

START_TEST(version_1_is_read_where_it_has_the_memory)
{
    begin("9:cpu,cpuacct:/a\n4:memory:/a/b\n0::/a\n");
    put("memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/a/memory.limit_in_bytes", "4096000\n");
    ck_assert_uint_eq(rps_cgroup_memory_max(own, folder), 4096000);
    folder_remove(folder);
}
END_TEST

START_TEST(without_a_limit_there_is_none)
{
    begin("0::/a\n");
    put("a/memory.max", "max\n");
    ck_assert_uint_eq(rps_cgroup_memory_max(own, folder), 0);
    put("own", "garbage\n");
    ck_assert_uint_eq(rps_cgroup_memory_max(own, folder), 0);
    folder_remove(folder);
    ck_assert_uint_eq(rps_cgroup_memory_max(own, folder), 0);
}
END_TEST

START_TEST(a_quota_of_a_group_bounds_the_processors)
{
    double all;

    begin("0::/a/b\n");
    put("a/b/cpu.max", "max 100000\n");
    all = rps_processors(own, folder);
    ck_assert_double_ge(all, 1.0);
    put("a/cpu.max", "25000 100000\n");
    ck_assert_double_eq(rps_processors(own, folder), 0.25);
    put("a/b/cpu.max", "10000 100000\n");
    ck_assert_double_eq(rps_processors(own, folder), 0.1);
    put("a/b/cpu.max", "garbage\n");
    put("a/cpu.max", "900000000 100000\n");
    ck_assert_double_eq(rps_processors(own, folder), all);
    folder_remove(folder);
    ck_assert_double_eq(rps_processors(own, folder), all);
}
END_TEST

START_TEST(what_was_written_to_disk_is_counted)
{
    uint64_t read = 0, written = 0;

    ck_assert_uint_gt(rps_memory_total(), 1 << 20);
    if (!rps_process_disk(&read, &written)) {
        return; /* /proc/self/io is not for everyone */
    }
    ck_assert_uint_lt(read, UINT64_MAX / 2);
    ck_assert_uint_lt(written, UINT64_MAX / 2);
}
END_TEST

START_TEST(the_process_knows_itself)
{
    struct rps_process before, after;
    /* untouched: not resident */
    char *memory = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(memory, MAP_FAILED);
    rps_process_read(&before);
    memset(memory, 1, 64 << 20);
    rps_process_read(&after);
    ck_assert_uint_ge(after.resident_bytes, before.resident_bytes + (60 << 20));
    ck_assert_uint_gt(after.virtual_bytes, after.resident_bytes);
    ck_assert_uint_ge(after.threads, 1);
    ck_assert_uint_ge(after.open_files, 3);
    ck_assert(after.cpu_seconds >= before.cpu_seconds);
    /* btime is whole seconds, and boot is not */
    ck_assert(after.start_unix_s > (double)time(NULL) - 3600);
    ck_assert(after.start_unix_s < (double)time(NULL) + 2);
    ck_assert_int_eq(munmap(memory, 64 << 20), 0);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("process");
    TCase *tcase = tcase_create("proc");

    tcase_add_test(tcase, the_least_limit_above_a_group_holds);
    tcase_add_test(tcase, a_namespace_of_its_own_has_its_limit_at_the_root);
    tcase_add_test(tcase, version_1_is_read_where_it_has_the_memory);
    tcase_add_test(tcase, without_a_limit_there_is_none);
    tcase_add_test(tcase, a_quota_of_a_group_bounds_the_processors);
    tcase_add_test(tcase, what_was_written_to_disk_is_counted);
    tcase_add_test(tcase, the_process_knows_itself);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
