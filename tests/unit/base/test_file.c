/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"
#include "base/npy.h"
#include "tests/unit/folder.h"
#include "tests/unit/suite.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[FOLDER_BYTES];

static void
setup(void)
{
    folder_make(folder);
}

/* The product's own remover: every test here checks it, too. */
static void
teardown(void)
{
    ck_assert_int_eq(rps_dir_remove(folder, NULL), RPS_OK);
}

static const char *
path_of(const char *name)
{
    static char path[FOLDER_BYTES + 64];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

START_TEST(file_comes_back_as_it_was_written)
{
    char *bytes = NULL;
    size_t length = 0;

    ck_assert_int_eq(
            rps_file_write(path_of("a"), "x\0y", 3, false, NULL), RPS_OK);
    ck_assert_int_eq(
            rps_file_read(path_of("a"), 10, &bytes, &length, NULL), RPS_OK);
    ck_assert_uint_eq(length, 3);
    ck_assert_mem_eq(bytes, "x\0y", 4);
    free(bytes);
}
END_TEST

START_TEST(file_that_exists_is_kept_unless_replaced)
{
    struct rps_error error;

    ck_assert_int_eq(rps_file_write(path_of("a"), "x", 1, false, NULL), RPS_OK);
    ck_assert_int_eq(
            rps_file_write(path_of("a"), "y", 1, false, &error), RPS_E_IO);
    ck_assert_ptr_nonnull(strstr(error.text, path_of("a")));
    ck_assert_int_eq(rps_file_write(path_of("a"), "y", 1, true, NULL), RPS_OK);
}
END_TEST

START_TEST(a_replaced_file_is_whole_and_nothing_stays_beside_it)
{
    char *bytes = NULL;
    size_t length = 0;

    for (size_t i = 1; i <= 2; i++) {
        ck_assert_int_eq(
                rps_file_replace(path_of("a"), "xyz", i, NULL), RPS_OK);
        ck_assert_int_eq(
                rps_file_read(path_of("a"), 10, &bytes, &length, NULL), RPS_OK);
        ck_assert_uint_eq(length, i);
        free(bytes);
    }
    ck_assert_int_eq(mkdir(path_of("d"), 0700), 0);
    ck_assert_int_eq(rps_file_replace(path_of("d"), "x", 1, NULL), RPS_E_IO);
    ck_assert_int_ne(access(path_of("a.tmp"), F_OK), 0);
    ck_assert_int_ne(access(path_of("d.tmp"), F_OK), 0);
}
END_TEST

START_TEST(a_replaced_link_stays_one_and_its_target_is_written)
{
    struct stat info;
    char *bytes = NULL;
    size_t length = 0;

    ck_assert_int_eq(rps_file_write(path_of("a"), "1", 1, false, NULL), RPS_OK);
    ck_assert_int_eq(chmod(path_of("a"), 0600), 0);
    ck_assert_int_eq(symlink("a", path_of("to-a")), 0);
    ck_assert_int_eq(symlink("to-b", path_of("to-to-b")), 0);
    ck_assert_int_eq(symlink("b", path_of("to-b")), 0); /* b is not there */
    ck_assert_int_eq(symlink("loop", path_of("loop")), 0);
    ck_assert_int_eq(rps_file_replace(path_of("to-a"), "2", 1, NULL), RPS_OK);
    ck_assert_int_eq(
            rps_file_replace(path_of("to-to-b"), "3", 1, NULL), RPS_OK);
    ck_assert_int_eq(rps_file_replace(path_of("loop"), "4", 1, NULL), RPS_E_IO);
    ck_assert_int_eq(lstat(path_of("to-a"), &info), 0);
    ck_assert(S_ISLNK(info.st_mode));
    ck_assert_int_eq(lstat(path_of("to-to-b"), &info), 0);
    ck_assert(S_ISLNK(info.st_mode));
    ck_assert_int_eq(lstat(path_of("a"), &info), 0);
    ck_assert(S_ISREG(info.st_mode));
    ck_assert_uint_eq(info.st_mode & 0777, 0600);
    ck_assert_int_eq(
            rps_file_read(path_of("a"), 10, &bytes, &length, NULL), RPS_OK);
    ck_assert_str_eq(bytes, "2");
    free(bytes);
    ck_assert_int_eq(
            rps_file_read(path_of("b"), 10, &bytes, &length, NULL), RPS_OK);
    ck_assert_str_eq(bytes, "3");
    free(bytes);
}
END_TEST

/* By links: were they replaced, the machine would have no /dev/null. */
START_TEST(what_is_no_file_is_written_to_and_stays)
{
    struct rps_error error;
    struct stat info;
    char path[32], bytes[4] = "";
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    (void)snprintf(path, sizeof(path), "/dev/fd/%d", ends[1]);
    ck_assert_int_eq(rps_file_replace(path, "abc", 3, NULL), RPS_OK);
    ck_assert_int_eq(read(ends[0], bytes, 3), 3);
    ck_assert_str_eq(bytes, "abc");
    close(ends[0]);
    close(ends[1]);
    ck_assert_int_eq(symlink("/dev/null", path_of("null")), 0);
    ck_assert_int_eq(symlink("/dev/full", path_of("full")), 0);
    ck_assert_int_eq(rps_file_replace(path_of("null"), "abc", 3, NULL), RPS_OK);
    ck_assert_int_eq(
            rps_file_replace(path_of("full"), "abc", 3, &error), RPS_E_IO);
    ck_assert_ptr_nonnull(strstr(error.text, "/full: No space left"));
    ck_assert_int_eq(stat(path_of("null"), &info), 0);
    ck_assert(S_ISCHR(info.st_mode));
    ck_assert_int_eq(stat(path_of("full"), &info), 0);
    ck_assert(S_ISCHR(info.st_mode));
    ck_assert_int_eq(mkdir(path_of("d"), 0700), 0);
    ck_assert_int_eq(rps_file_replace(path_of("d"), "x", 1, &error), RPS_E_IO);
    ck_assert_ptr_nonnull(strstr(error.text, "it is a folder"));
}
END_TEST

/* A disk that is full halfway: here the largest file of a process. */
START_TEST(nothing_stays_of_a_file_that_cannot_be_written)
{
    const struct rlimit least = {.rlim_cur = 1, .rlim_max = RLIM_INFINITY};
    struct rlimit before;

    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(mkdir(path_of("d"), 0700), 0);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &least), 0);
    ck_assert_int_eq(
            rps_file_replace(path_of("d/a"), "123", 3, NULL), RPS_E_IO);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, SIG_DFL);
    ck_assert_int_eq(rmdir(path_of("d")), 0); /* it is empty */
}
END_TEST

START_TEST(a_pipe_is_read_to_its_end_within_the_limit)
{
    struct rps_error error;
    char path[32];
    char *bytes = NULL;
    size_t length = 0;
    int ends[2];

    for (size_t limit = 4; limit <= 5; limit++) {
        ck_assert_int_eq(pipe(ends), 0);
        ck_assert_int_eq(write(ends[1], "12345", 5), 5);
        close(ends[1]);
        (void)snprintf(path, sizeof(path), "/dev/fd/%d", ends[0]);
        ck_assert_int_eq(rps_file_read(path, limit, &bytes, &length, &error),
                RPS_E_INVAL);
        ck_assert_int_eq(rps_pipe_read(path, limit, &bytes, &length, &error),
                limit < 5 ? RPS_E_LIMIT : RPS_OK);
        close(ends[0]);
    }
    ck_assert_uint_eq(length, 5);
    ck_assert_str_eq(bytes, "12345");
    free(bytes);
}
END_TEST

START_TEST(file_that_is_missing_or_too_large_names_itself)
{
    struct rps_error error;
    char *bytes = NULL;
    size_t length = 0;

    ck_assert_int_eq(rps_file_read(path_of("no"), 10, &bytes, &length, &error),
            RPS_E_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(error.text, "/no: No such file"));
    ck_assert_int_eq(
            rps_file_write(path_of("b"), "123", 3, false, NULL), RPS_OK);
    ck_assert_int_eq(rps_file_read(path_of("b"), 2, &bytes, &length, &error),
            RPS_E_LIMIT);
    ck_assert_ptr_null(bytes);
}
END_TEST

START_TEST(folders_are_made_with_their_parents_and_removed_with_files)
{
    struct stat info;
    char deep[FOLDER_BYTES + 64];

    snprintf(deep, sizeof(deep), "%s", path_of("x/y"));
    ck_assert_int_eq(rps_dir_make(deep, NULL), RPS_OK);
    ck_assert_int_eq(rps_dir_make(deep, NULL), RPS_OK);
    ck_assert_int_eq(
            rps_file_write(path_of("x/y/f"), "1", 1, false, NULL), RPS_OK);
    ck_assert_int_eq(rps_dir_sync(deep, NULL), RPS_OK);
    ck_assert_int_eq(rps_dir_remove(path_of("x"), NULL), RPS_OK);
    ck_assert_int_ne(stat(path_of("x"), &info), 0);
}
END_TEST

/* As numpy.lib.format writes it, but padded to 128 bytes. */
START_TEST(npy_header_is_what_numpy_reads)
{
    const struct rps_npy npy = {.dtype = "<f4", .ndim = 2, .shape = {3, 16}};
    const char text[] = "{'descr': '<f4', 'fortran_order': False, "
                        "'shape': (3, 16), }";
    char bytes[RPS_NPY_HEADER_BYTES];

    rps_npy_header(&npy, bytes);
    ck_assert_mem_eq(bytes, "\x93NUMPY\x01\x00\x76\x00", 10);
    ck_assert_mem_eq(bytes + 10, text, sizeof(text) - 1);
    ck_assert_int_eq(bytes[127], '\n');
}
END_TEST

START_TEST(npy_header_is_read_back_and_its_size_is_checked)
{
    const struct rps_npy npy = {.dtype = "<u8", .ndim = 1, .shape = {5}};
    struct rps_npy back;
    char bytes[RPS_NPY_HEADER_BYTES];

    rps_npy_header(&npy, bytes);
    ck_assert_int_eq(
            rps_npy_parse(bytes, sizeof(bytes), 128 + 40, &back, NULL), RPS_OK);
    ck_assert_str_eq(back.dtype, "<u8");
    ck_assert_uint_eq(back.ndim, 1);
    ck_assert_uint_eq(back.shape[0], 5);
    ck_assert_uint_eq(back.data_offset, 128);
    ck_assert_uint_eq(back.item_bytes, 8);
    ck_assert_int_eq(rps_npy_parse(bytes, sizeof(bytes), 128 + 39, &back, NULL),
            RPS_E_CORRUPT);
}
END_TEST

START_TEST(npy_headers_of_bad_bytes_are_refused_not_believed)
{
    const struct rps_npy npy = {.dtype = "<u8", .ndim = 1, .shape = {5}};
    struct rps_npy back;
    char bytes[RPS_NPY_HEADER_BYTES];
    char broken[RPS_NPY_HEADER_BYTES];

    rps_npy_header(&npy, bytes);
    for (size_t cut = 0; cut < sizeof(bytes); cut++) {
        ck_assert_int_eq(rps_npy_parse(bytes, cut, 128 + 40, &back, NULL),
                RPS_E_CORRUPT);
    }
    for (size_t i = 0; i < sizeof(bytes); i++) {
        memcpy(broken, bytes, sizeof(bytes));
        broken[i] = (char)(broken[i] ^ 0x15);
        (void)!rps_npy_parse(broken, sizeof(broken), 128 + 40, &back, NULL);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("file");
    TCase *tc = tcase_create("file");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, file_comes_back_as_it_was_written);
    tcase_add_test(tc, file_that_exists_is_kept_unless_replaced);
    tcase_add_test(tc, a_replaced_file_is_whole_and_nothing_stays_beside_it);
    tcase_add_test(tc, a_replaced_link_stays_one_and_its_target_is_written);
    tcase_add_test(tc, what_is_no_file_is_written_to_and_stays);
    tcase_add_test(tc, nothing_stays_of_a_file_that_cannot_be_written);
    tcase_add_test(tc, a_pipe_is_read_to_its_end_within_the_limit);
    tcase_add_test(tc, file_that_is_missing_or_too_large_names_itself);
    tcase_add_test(
            tc, folders_are_made_with_their_parents_and_removed_with_files);
    tcase_add_test(tc, npy_header_is_what_numpy_reads);
    tcase_add_test(tc, npy_header_is_read_back_and_its_size_is_checked);
    tcase_add_test(tc, npy_headers_of_bad_bytes_are_refused_not_believed);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
