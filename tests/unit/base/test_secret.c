/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"
#include "base/secret.h"
#include "tests/unit/folder.h"
#include "tests/unit/suite.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[FOLDER_BYTES];
static char path[FOLDER_BYTES + 16];

static void
setup(void)
{
    folder_make(folder);
    snprintf(path, sizeof(path), "%s/token", folder);
}

static void
teardown(void)
{
    ck_assert_int_eq(rps_dir_remove(folder, NULL), RPS_OK);
}

static void
write_secret(const char *bytes, size_t length, mode_t mode)
{
    ck_assert_int_eq(rps_file_write(path, bytes, length, true, NULL), RPS_OK);
    ck_assert_int_eq(chmod(path, mode), 0);
}

static void
refuse(const char *part)
{
    struct rps_secret secret;
    struct rps_error error = {.text = ""};

    ck_assert_int_eq(
            rps_secret_read(&secret, "--token-file", path, &error), RPS_E_AUTH);
    ck_assert_msg(strstr(error.text, part) != NULL, "%s", error.text);
    ck_assert_ptr_nonnull(strstr(error.text, path));
    ck_assert_int_eq(strncmp(error.text, "--token-file", 12), 0);
    ck_assert_ptr_null(secret.bytes);
    ck_assert_uint_eq(secret.length, 0);
}

static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";

START_TEST(secret_is_the_file_without_line_ends_at_its_end)
{
    struct rps_secret secret;
    struct rps_secret copy;

    write_secret("abcdefghijklmnop\nqrstuvwxyz012345\r\n\n", 36, 0600);
    ck_assert_int_eq(
            rps_secret_read(&secret, "--token-file", path, NULL), RPS_OK);
    ck_assert_uint_eq(secret.length, 33);
    ck_assert_mem_eq(secret.bytes, "abcdefghijklmnop\nqrstuvwxyz012345", 33);
    ck_assert_int_eq(rps_secret_copy(&copy, &secret, NULL), RPS_OK);
    rps_secret_finish(&secret);
    ck_assert_ptr_null(secret.bytes);
    ck_assert_uint_eq(copy.length, 33);
    ck_assert_mem_eq(copy.bytes, "abcdefghijklmnop\nqrstuvwxyz012345", 33);
    rps_secret_finish(&copy);
    rps_secret_finish(&copy);
}
END_TEST

START_TEST(secret_may_have_any_bytes)
{
    struct rps_secret secret;

    write_secret("\0\1\2\3\4\5\6\7\0\1\2\3\4\5\6\7\0\1\2\3\4\5\6\7\0\1\2\3\4\5"
                 "\xff\xfe",
            32, 0400);
    ck_assert_int_eq(
            rps_secret_read(&secret, "--token-file", path, NULL), RPS_OK);
    ck_assert_uint_eq(secret.length, 32);
    rps_secret_finish(&secret);
}
END_TEST

START_TEST(secret_of_the_wrong_size_is_refused)
{
    static char many[RPS_SECRET_BYTES_MAX + 4];
    struct rps_secret secret;

    write_secret("", 0, 0600);
    refuse("0 bytes");
    write_secret("\n\n\n", 3, 0600);
    refuse("0 bytes");
    write_secret(letters, 31, 0600);
    refuse("31 bytes");
    memset(many, 'x', sizeof(many));
    write_secret(many, RPS_SECRET_BYTES_MAX + 1, 0600);
    refuse("4096");
    many[RPS_SECRET_BYTES_MAX] = '\r';
    many[RPS_SECRET_BYTES_MAX + 1] = '\n';
    write_secret(many, RPS_SECRET_BYTES_MAX + 2, 0600);
    ck_assert_int_eq(
            rps_secret_read(&secret, "--token-file", path, NULL), RPS_OK);
    ck_assert_uint_eq(secret.length, RPS_SECRET_BYTES_MAX);
    rps_secret_finish(&secret);
}
END_TEST

START_TEST(secret_that_others_can_read_or_write_is_refused)
{
    static const mode_t modes[] = {
            0604, 0602, 0601, 0620, 0610, 0666, 0700, 0500, 0777};

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        write_secret(letters, 36, modes[i]);
        refuse("chmod 600");
        ck_assert_int_eq(
                rps_secret_check("--token-file", path, NULL), RPS_E_AUTH);
        ck_assert_int_eq(chmod(path, 0600), 0);
    }
    ck_assert_int_eq(rps_secret_check("--token-file", path, NULL), RPS_OK);
}
END_TEST

/* Root hands it to a group, as Kubernetes and systemd do; nobody else. */
START_TEST(secret_for_a_group_is_taken_of_root_alone)
{
    static const mode_t modes[] = {0640, 0440};

    for (size_t i = 0; geteuid() == 0 && i < 2; i++) {
        write_secret(letters, 36, modes[i]);
        ck_assert_int_eq(rps_secret_check("--token-file", path, NULL), RPS_OK);
        ck_assert_int_eq(chown(path, 12345, 12345), 0);
        ck_assert_int_eq(chmod(folder, 0755), 0);
        ck_assert_int_eq(seteuid(12345), 0);
        refuse("mode 0");
        refuse("a file of root's");
        ck_assert_int_eq(seteuid(0), 0);
        ck_assert_int_eq(remove(path), 0);
    }
}
END_TEST

START_TEST(secret_that_is_no_file_is_refused)
{
    refuse("No such file");
    ck_assert_int_eq(mkdir(path, 0700), 0);
    refuse("not a file");
    ck_assert_int_eq(remove(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    refuse("not a file");
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("secret");
    TCase *tcase = tcase_create("read");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, secret_is_the_file_without_line_ends_at_its_end);
    tcase_add_test(tcase, secret_may_have_any_bytes);
    tcase_add_test(tcase, secret_of_the_wrong_size_is_refused);
    tcase_add_test(tcase, secret_that_others_can_read_or_write_is_refused);
    tcase_add_test(tcase, secret_for_a_group_is_taken_of_root_alone);
    tcase_add_test(tcase, secret_that_is_no_file_is_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
