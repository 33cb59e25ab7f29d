/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk that fails, at each of the system calls that write: every call of a
 * save goes through this file (-Wl,--wrap) and may be refused. Whatever was
 * refused, the caller is told, what was complete stays, half a checkpoint is
 * never listed, and the next save works.
 */
#include "base/file.h"
#include "tests/unit/embedding/checkpoint/fixture.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EMB_ROWS  40u
#define WIDE_ROWS 520u /* of 512 floats: more than a block, so by threads */
#define WIDE_DIM  512u

/* Calls are counted from 1; the io threads count, too. */
static atomic_uint calls;
static atomic_uint fails_at; /* 0: never */
static atomic_int fails_with;
static atomic_bool goes_on; /* all that follow fail, too: a disk that is gone */

static bool
is_refused(void)
{
    const unsigned call = atomic_fetch_add(&calls, 1) + 1;
    const unsigned from = atomic_load(&fails_at);

    if (from == 0 || (atomic_load(&goes_on) ? call < from : call != from)) {
        return false;
    }
    errno = atomic_load(&fails_with);
    return true;
}

/* The loader's names for the wrapped calls. */
int __real_open64(const char *path, int flags, ...);
int __real_openat64(int dir, const char *path, int flags, ...);
ssize_t __real_pwrite64(int fd, const void *bytes, size_t n, off_t at);
ssize_t __real_write(int fd, const void *bytes, size_t n);
int __real_ftruncate64(int fd, off_t length);
int __real_mkdir(const char *path, mode_t mode);
int __real_rename(const char *from, const char *to);
int __real_renameat2(
        int a, const char *from, int b, const char *to, unsigned flags);
int __real_unlinkat(int dir, const char *path, int flags);

int __wrap_open64(const char *path, int flags, ...);
int __wrap_openat64(int dir, const char *path, int flags, ...);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t n, off_t at);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);
int __wrap_fsync(int fd);
int __wrap_ftruncate64(int fd, off_t length);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_rename(const char *from, const char *to);
int __wrap_renameat2(
        int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_unlinkat(int dir, const char *path, int flags);

static bool
writes(int flags)
{
    return (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0;
}

int
__wrap_open64(const char *path, int flags, ...)
{
    va_list rest;
    mode_t mode = 0;

    if ((flags & O_CREAT) != 0) {
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    return writes(flags) && is_refused() ? -1
                                         : __real_open64(path, flags, mode);
}

int
__wrap_openat64(int dir, const char *path, int flags, ...)
{
    va_list rest;
    mode_t mode = 0;

    if ((flags & O_CREAT) != 0) {
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    return writes(flags) && is_refused()
                   ? -1
                   : __real_openat64(dir, path, flags, mode);
}

ssize_t
__wrap_pwrite64(int fd, const void *bytes, size_t n, off_t at)
{
    return is_refused() ? -1 : __real_pwrite64(fd, bytes, n, at);
}

ssize_t
__wrap_write(int fd, const void *bytes, size_t n)
{
    return is_refused() ? -1 : __real_write(fd, bytes, n);
}

/* What fails here was perhaps written; nothing is lost by not syncing. */
int
__wrap_fsync(int fd)
{
    (void)fd;
    return is_refused() ? -1 : 0;
}

int
__wrap_ftruncate64(int fd, off_t length)
{
    return is_refused() ? -1 : __real_ftruncate64(fd, length);
}

/* That it is there comes before that none can be made. */
int
__wrap_mkdir(const char *path, mode_t mode)
{
    return access(path, F_OK) != 0 && is_refused() ? -1
                                                   : __real_mkdir(path, mode);
}

int
__wrap_rename(const char *from, const char *to)
{
    return is_refused() ? -1 : __real_rename(from, to);
}

int
__wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    return is_refused() ? -1 : __real_renameat2(a, from, b, to, flags);
}

int
__wrap_unlinkat(int dir, const char *path, int flags)
{
    return is_refused() ? -1 : __real_unlinkat(dir, path, flags);
}

static void
refuse(unsigned at, int with, bool all_after)
{
    atomic_store(&fails_with, with);
    atomic_store(&goes_on, all_after);
    atomic_store(&calls, 0);
    atomic_store(&fails_at, at);
}

static char folder[FOLDER_BYTES];
static struct job job;

static void
fill(const char *name, uint32_t dim, uint64_t rows, enum rps_optimizer kind)
{
    float *row = calloc((size_t)dim, sizeof(*row));
    float *slots = calloc((size_t)dim, sizeof(*slots));
    struct rps_table *table = NULL;
    rps_table_spec spec;

    rps_table_spec_init(&spec, name, dim, kind);
    ck_assert_int_eq(
            rps_store_open_table(job.stores[0], &spec, &table, NULL), RPS_OK);
    for (uint64_t key = 0; key < rows; key++) {
        const uint32_t meta = (uint32_t)key;

        row[0] = (float)key;
        ck_assert_int_eq(
                rps_table_restore_rows(table, 1, &key, row,
                        kind == RPS_OPTIMIZER_SGD ? NULL : slots, &meta, NULL),
                RPS_OK);
    }
    free(row);
    free(slots);
}

static void
setup(void)
{
    /* in memory: whether a disk is fast is no matter here */
    if (getenv("TMPDIR") == NULL && access("/dev/shm", W_OK) == 0) {
        (void)setenv("TMPDIR", "/dev/shm", 1);
    }
    folder_make(folder);
    job_make(&job, folder, 1);
    fill("emb", 5, EMB_ROWS, RPS_OPTIMIZER_ADAGRAD);
    fill("wide", WIDE_DIM, WIDE_ROWS, RPS_OPTIMIZER_SGD);
}

static void
teardown(void)
{
    job_finish(&job);
    folder_remove(folder);
}

/* Steps that are listed, each of which must be whole: bit i is step i. */
static unsigned
complete_steps(void)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    unsigned mask = 0;

    ck_assert_int_eq(
            rps_checkpoint_list(folder, 0, 1, &steps, &count, NULL), RPS_OK);
    for (size_t i = 0; i < count; i++) {
        struct job again;
        struct rps_digest a;
        struct rps_digest b;

        mask |= 1u << steps[i];
        job_make(&again, folder, 1);
        job_restore(&again, steps[i]);
        a = job_digest(&again, "wide");
        b = job_digest(&job, "wide");
        ck_assert_mem_eq(&a, &b, sizeof(a));
        a = job_digest(&again, "emb");
        b = job_digest(&job, "emb");
        ck_assert_mem_eq(&a, &b, sizeof(a));
        job_finish(&again);
    }
    free(steps);
    return mask;
}

static bool
is_clean(void)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    bool clean = true;

    while ((entry = readdir(dir)) != NULL) {
        clean = clean && strncmp(entry->d_name, ".tmp", 4) != 0;
    }
    closedir(dir);
    return clean;
}

static void
begin_anew(void)
{
    for (unsigned step = 1; step <= 3; step++) {
        char path[FOLDER_BYTES + 32];

        (void)snprintf(path, sizeof(path), "%s/ckpt-%012u", folder, step);
        if (access(path, F_OK) == 0) {
            ck_assert_int_eq(rps_dir_remove(path, NULL), RPS_OK);
        }
    }
    job_save(&job, 1, 0);
}

/* Under TSan, where a save is twenty times as slow, fewer calls are refused:
 * what it looks for is whether the io threads meet, and all of them run in each
 * save. The other builds refuse each. */
#define SPARSER (SUITE_TSAN ? 7 : 1)

/* Each call of a save, or one in `stride`, is refused in turn. Returns how many
 * there are. */
static unsigned
refuse_each(int with, bool all_after, unsigned stride)
{
    unsigned at = 1;
    bool reached = true;

    for (; reached; at += stride) {
        struct rps_error error = {""};
        rps_status status;
        unsigned steps;

        begin_anew();
        refuse(at, with, all_after);
        status = job_try_save(&job, 2, 1, &error);
        reached = atomic_load(&calls) >= at;
        refuse(0, 0, false);
        steps = complete_steps();
        if (status == RPS_OK) { /* nothing was refused, or it was no matter */
            ck_assert_msg((steps & 4u) != 0, "call %u", at);
        } else {
            ck_assert_msg(status == RPS_E_IO && strstr(error.text, folder),
                    "call %u: %d, %s", at, (int)status, error.text);
            ck_assert_ptr_nonnull(strstr(error.text, strerror(with)));
            ck_assert_msg(steps != 0, "call %u: %s", at, error.text);
        }
        ck_assert_msg(all_after || is_clean(), "call %u: %s", at, error.text);
        job_save(&job, 3, 1); /* the disk is well again */
        ck_assert_uint_eq(complete_steps() & 8u, 8u);
        ck_assert_msg(is_clean(), "call %u", at);
    }
    return at - 1;
}

START_TEST(any_call_may_fail_with_an_io_error)
{
    /* two tables of 4 and 3 more columns, each with its checksums */
    ck_assert_uint_gt(refuse_each(EIO, false, SPARSER), 50);
}
END_TEST

START_TEST(a_disk_may_be_read_only_from_any_call_on)
{
    ck_assert_uint_gt(refuse_each(EROFS, true, 2 * SPARSER), 50);
}
END_TEST

START_TEST(a_disk_may_be_full_from_any_call_on)
{
    ck_assert_uint_gt(refuse_each(ENOSPC, true, 5 * SPARSER), 50);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("checkpoint faults");
    TCase *tcase = tcase_create("faults");

    tcase_set_timeout(tcase, 400);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, any_call_may_fail_with_an_io_error);
    tcase_add_test(tcase, a_disk_may_be_read_only_from_any_call_on);
    tcase_add_test(tcase, a_disk_may_be_full_from_any_call_on);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
