/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the folder and the thread that writes it: training goes on meanwhile,
 * and a run that ends badly later has its profile.
 */
#include "client/profile/session.h"

#include "base/file.h"
#include "client/profile/collect.h"
#include "client/profile/write.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rps_profile_session {
    struct rps_profile_options options; /* set before start; no folder */
    struct rps_profile_result result;   /* the thread's, until it is joined */
    struct rps_error error;             /* likewise */
    rps_status status;                  /* likewise */
    pthread_t thread;
};

static bool
is_empty(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    bool empty = true;

    if (dir == NULL) {
        return false;
    }
    while (empty && (entry = readdir(dir)) != NULL) {
        empty = entry->d_name[0] == '.';
    }
    closedir(dir);
    return empty;
}

static rps_status
make_folder(struct rps_profile_session *session, struct rps_error *error)
{
    const struct rps_profile_options *options = &session->options;
    char *folder = session->result.folder;
    char restart[48] = "";
    int n;
    rps_status status;

    if (options->restart > 0) {
        (void)snprintf(
                restart, sizeof(restart), ".restart%" PRIu64, options->restart);
    }
    n = snprintf(folder, sizeof(session->result.folder), "%s/rank%" PRIu32 "%s",
            options->folder, options->rank, restart);
    if (n < 0 || (size_t)n >= sizeof(session->result.folder)) {
        return rps_fail(error, RPS_E_INVAL,
                "profile: the path of its folder is too long: at most %zu "
                "bytes",
                sizeof(session->result.folder) - 64);
    }
    status = rps_dir_make(folder, error);
    if (status == RPS_OK && !is_empty(folder)) {
        return rps_fail(error, RPS_E_INVAL,
                "profile: %s is there and has files: give another folder, or "
                "remove it",
                folder);
    }
    return status;
}

static rps_status
write_all(struct rps_profile_session *session,
        const struct rps_profile_collected *collected)
{
    const char *folder = session->result.folder;
    rps_status status = rps_profile_write_trace(
            folder, &session->options, collected, &session->error);

    return status == RPS_OK ? rps_profile_write_tables(
                                      folder, collected, &session->error)
                            : status;
}

static void *
run(void *context)
{
    struct rps_profile_session *session = context;
    struct rps_profile_collected collected;

    rps_profile_await();
    if (!rps_profile_take(&collected)) {
        session->status = rps_fail(&session->error, RPS_E_NOMEM,
                "profile: %s: not written: no memory", session->result.folder);
        return NULL;
    }
    session->result.steps = collected.step_count;
    session->result.spans = collected.count;
    session->result.dropped = collected.dropped;
    if (collected.step_count > 0) {
        session->status = write_all(session, &collected);
    }
    rps_profile_collected_finish(&collected);
    return NULL;
}

/* Signals are the main thread's: they interrupt its waits. */
static rps_status
start_thread(struct rps_profile_session *session, struct rps_error *error)
{
    sigset_t all, before;
    int failed;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&session->thread, NULL, run, session);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed == 0 ? RPS_OK
                       : rps_fail(error, RPS_E_NOMEM,
                                 "profile: cannot start the thread that "
                                 "writes it: %s",
                                 strerror(failed));
}

rps_status
rps_profile_begin(struct rps_profile_session **session_out,
        const struct rps_profile_options *options, struct rps_error *error)
{
    struct rps_profile_session *session = calloc(1, sizeof(*session));
    rps_status status;

    assert(options->first_step > 0);
    assert(options->first_step <= options->last_step);
    *session_out = NULL;
    if (session == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "profile: no memory");
    }
    session->options = *options;
    status = make_folder(session, error);
    session->options.folder = NULL; /* the caller's */
    if (status == RPS_OK) {
        rps_profile_arm(options->first_step, options->last_step,
                options->bytes_max > 0 ? options->bytes_max
                                       : RPS_PROFILE_BYTES_MAX);
        status = start_thread(session, error);
        if (status != RPS_OK) {
            rps_profile_abandon();
        }
    }
    if (status != RPS_OK) {
        free(session);
        return status;
    }
    *session_out = session;
    return RPS_OK;
}

rps_status
rps_profile_end(struct rps_profile_session *session,
        struct rps_profile_result *result, struct rps_error *error)
{
    rps_status status;

    *result = (struct rps_profile_result){.steps = 0};
    if (session == NULL) {
        return RPS_OK;
    }
    rps_profile_disarm();
    (void)pthread_join(session->thread, NULL);
    *result = session->result;
    status = session->status;
    if (status != RPS_OK) {
        *error = session->error;
    }
    free(session);
    return status;
}
