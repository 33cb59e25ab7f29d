/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/background.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

/** What a thread is to the scheduler. */
struct rank {
    pid_t thread;
    int policy;
    int nice;
};

static void
note_rank(void *context)
{
    struct rank *rank = context;

    rank->thread = gettid();
    rank->policy = sched_getscheduler(0);
    rank->nice = getpriority(PRIO_PROCESS, (id_t)rank->thread);
}

static void *
run_note_rank(void *context)
{
    note_rank(context);
    return NULL;
}

/* As the carriers of a file's blocks are made. */
static void
note_rank_of_child(void *context)
{
    pthread_t child;

    ck_assert_int_eq(pthread_create(&child, NULL, run_note_rank, context), 0);
    pthread_join(child, NULL);
}

static void
expect_behind(const struct rank *work, const struct rank *caller)
{
    ck_assert_int_ne(work->thread, caller->thread);
    ck_assert_int_eq(work->policy, SCHED_BATCH);
    ck_assert_int_eq(work->nice, caller->nice + RPS_CKPT_NICE < 19
                                         ? caller->nice + RPS_CKPT_NICE
                                         : 19);
}

START_TEST(work_and_its_threads_give_way_and_the_caller_stays)
{
    struct rank before = {0};
    struct rank after = {0};
    struct rank work = {0};

    note_rank(&before);
    rps_ckpt_run_in_background(note_rank, &work);
    expect_behind(&work, &before);
    rps_ckpt_run_in_background(note_rank_of_child, &work);
    expect_behind(&work, &before);
    note_rank(&after);
    ck_assert_int_eq(after.policy, before.policy);
    ck_assert_int_eq(after.nice, before.nice);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("background");
    TCase *ranks = tcase_create("ranks");

    tcase_add_test(ranks, work_and_its_threads_give_way_and_the_caller_stays);
    suite_add_tcase(suite, ranks);
    return run_suite(suite);
}
