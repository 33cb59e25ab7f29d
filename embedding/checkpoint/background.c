/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/background.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>

struct job {
    void (*work)(void *context);
    void *context;
};

/* As well as the system lets us: it goes on in any case. */
static void
give_way(void)
{
    const struct sched_param none = {.sched_priority = 0};
    const id_t self = (id_t)gettid(); /* Linux: nice is a thread's */
    int nice_now = 0;

    (void)sched_setscheduler(0, SCHED_BATCH, &none);
    errno = 0;
    nice_now = getpriority(PRIO_PROCESS, self);
    if (errno == 0) {
        (void)setpriority(PRIO_PROCESS, self, nice_now + RPS_CKPT_NICE);
    }
}

static void *
run(void *argument)
{
    const struct job *job = argument;

    give_way();
    job->work(job->context);
    return NULL;
}

void
rps_ckpt_run_in_background(void (*work)(void *context), void *context)
{
    struct job job = {.work = work, .context = context};
    pthread_t thread;
    sigset_t all;
    sigset_t old;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    failed = pthread_create(&thread, NULL, run, &job);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed != 0) {
        work(context);
        return;
    }
    pthread_join(thread, NULL);
}
