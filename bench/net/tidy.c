/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handler of a signal only writes its number to a pipe; a thread reads it
 * and does the rest, with the lock that it never gives back: who makes or ends
 * anything meanwhile waits for the end of the process there.
 */
#include "bench/net/tidy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THINGS_MAX 16 /* four servers, a stream: a handful */

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
#define SIGNALS (sizeof(signals) / sizeof(signals[0]))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char folders[THINGS_MAX][64]; /* lock; "": a free place */
static pid_t children[THINGS_MAX];   /* lock; 0: a free place */
static int ends[2] = {-1, -1};       /* a pipe; set before start */

/* --- folders ------------------------------------------------------------- */

rps_status
bench_folder_make(char folder[64], struct rps_error *error)
{
    bool made;
    int code;

    snprintf(folder, 64, "/tmp/recps-bench-XXXXXX");
    pthread_mutex_lock(&lock);
    made = mkdtemp(folder) != NULL;
    code = errno;
    for (size_t i = 0; made && i < THINGS_MAX; i++) {
        if (folders[i][0] == '\0') {
            memcpy(folders[i], folder, sizeof(folders[i]));
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    if (!made) {
        folder[0] = '\0';
        return rps_fail(
                error, RPS_E_IO, "a folder in /tmp: %s", strerror(code));
    }
    return RPS_OK;
}

static void
remove_locked(const char *folder)
{
    DIR *dir = folder[0] != '\0' ? opendir(folder) : NULL;
    const struct dirent *entry = NULL;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        (void)unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir != NULL) {
        closedir(dir);
        (void)rmdir(folder);
    }
}

void
bench_folder_remove(const char *folder)
{
    pthread_mutex_lock(&lock);
    remove_locked(folder);
    for (size_t i = 0; i < THINGS_MAX; i++) {
        if (folder[0] != '\0' && strcmp(folders[i], folder) == 0) {
            folders[i][0] = '\0';
        }
    }
    pthread_mutex_unlock(&lock);
}

/* --- children ------------------------------------------------------------ */

pid_t
bench_child_start(void)
{
    pid_t pid;

    pthread_mutex_lock(&lock);
    pid = fork();
    if (pid == 0) {
        for (size_t i = 0; i < SIGNALS && ends[0] >= 0; i++) {
            struct sigaction was;

            if (sigaction(signals[i], NULL, &was) == 0 &&
                    was.sa_handler != SIG_IGN) {
                signal(signals[i], SIG_DFL);
            }
        }
        return 0; /* the lock stays: the child has no use for it */
    }
    for (size_t i = 0; pid > 0 && i < THINGS_MAX; i++) {
        if (children[i] == 0) {
            children[i] = pid;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return pid;
}

void
bench_child_forget(pid_t pid)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < THINGS_MAX; i++) {
        if (children[i] == pid) {
            children[i] = 0;
        }
    }
    pthread_mutex_unlock(&lock);
}

void
bench_child_stop(pid_t pid)
{
    if (pid > 0) {
        bench_child_forget(pid); /* its number may be another's from here on */
        kill(pid, SIGTERM);
        waitpid(pid, NULL, 0);
    }
}

/* --- a signal ------------------------------------------------------------ */

static void
note(int number)
{
    const int before = errno;
    const unsigned char byte = (unsigned char)number;

    (void)!write(ends[1], &byte, 1);
    errno = before;
}

static void *
tidy(void *context)
{
    unsigned char byte = 0;

    while (read(ends[0], &byte, 1) != 1) {
        if (errno != EINTR) {
            return NULL;
        }
    }
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < THINGS_MAX; i++) {
        if (children[i] > 0) {
            kill(children[i], SIGKILL);
            waitpid(children[i], NULL, 0);
        }
    }
    for (size_t i = 0; i < THINGS_MAX; i++) {
        remove_locked(folders[i]);
    }
    signal(byte, SIG_DFL);
    raise(byte);
    _exit(128 + byte); /* not reached: all of them end a process */
}

static void
handle_all(void)
{
    const struct sigaction handled = {
            .sa_handler = note, .sa_flags = SA_RESTART};

    for (size_t i = 0; i < SIGNALS; i++) {
        struct sigaction was;

        if (sigaction(signals[i], NULL, &was) == 0 &&
                was.sa_handler != SIG_IGN) {
            (void)sigaction(signals[i], &handled, NULL);
        }
    }
}

rps_status
bench_tidy_start(struct rps_error *error)
{
    pthread_t thread;
    int code = pipe2(ends, O_CLOEXEC) == 0 ? 0 : errno;

    if (code == 0) {
        code = pthread_create(&thread, NULL, tidy, NULL);
    }
    if (code != 0) {
        return rps_fail(error, RPS_E_IO, "a thread that waits for signals: %s",
                strerror(code));
    }
    (void)pthread_detach(thread);
    handle_all();
    return RPS_OK;
}

void
bench_tidy_await_end(void)
{
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}
