/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile of a process: begin, let steps go by, end. Files, in
 * FOLDER/rank<R>/:
 *
 *   trace.json         every span and figure, Chrome's trace event format
 *   operators.csv      spans added up: operators,
 *   communication.csv  communication and copies,
 *   scheduling.csv     launches, waits and stages of the host
 *   memory.csv         figures over time
 *
 * docs/PROFILE.md says what their fields are.
 */
#ifndef RPS_PROFILE_SESSION_H
#define RPS_PROFILE_SESSION_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define RPS_PROFILE_STEPS_MAX 100000u /* of a session */

/** Of the collected spans; those beyond are dropped, and counted. */
#define RPS_PROFILE_BYTES_MAX (256ull << 20)

struct rps_profile_options {
    const char *folder; /* made where it is not there */
    uint32_t rank;
    uint64_t restart;    /* > 0: rank<R>.restart<N> in place of rank<R> */
    uint64_t first_step; /* 1 at least */
    uint64_t last_step;  /* first_step at least */
    uint64_t bytes_max;  /* 0: RPS_PROFILE_BYTES_MAX */
};

/** What came of it. */
struct rps_profile_result {
    char folder[512]; /* that the files are in */
    uint64_t steps;
    uint64_t spans;
    uint64_t dropped;
};

struct rps_profile_session;

/**
 * Make the folder and wait, in a thread, for the last step; then write. One
 * session a process at a time.
 *
 * Owns:    copies *options; *session_out is released by rps_profile_end().
 * Threads: one at a time.
 * Errors:  INVAL (the folder has files of another profile), IO, NOMEM.
 */
rps_status rps_profile_begin(struct rps_profile_session **session_out,
        const struct rps_profile_options *options, struct rps_error *error);

/**
 * Collect no more, wait until all is written, and release. Without a step that
 * was profiled nothing is written. NULL is allowed.
 *
 * Errors: IO, NOMEM: of writing; result->folder is right in any case.
 */
rps_status rps_profile_end(struct rps_profile_session *session,
        struct rps_profile_result *result, struct rps_error *error);

#endif /* RPS_PROFILE_SESSION_H */
