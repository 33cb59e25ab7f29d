/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step authority: members, clock and decisions of a job, at PS 0 alone.
 * Nothing here that a restart cannot rebuild. README.md has the rules.
 *
 * Threads: _locked functions want service->lock (and, where they read the
 * epoch, a state_lock that keeps it from moving).
 */
#ifndef RPS_SERVER_JOB_H
#define RPS_SERVER_JOB_H

#include "server/state.h"

/** Starts the timer thread. NULL: no memory or no thread. */
struct rps_job *rps_job_create(struct rps_service *service);
/** Stops the timer thread. */
void rps_job_destroy(struct rps_job *job);

rps_status rps_serve_step_end(struct rps_request *request);

/** A replica said HELLO. false: no memory. */
bool rps_job_greet_locked(struct rps_job *job, struct rps_session *session);
/** Its connection is gone (and out of the sessions' list). */
void rps_job_leave_locked(struct rps_job *job, struct rps_session *session,
        struct rps_answers *answers);
/** SHUTDOWN: who waits for the job to begin again, or for its end, waits no
 * more. */
void rps_job_end_locked(struct rps_job *job, struct rps_answers *answers);
/** A member that waits in this request waits no more; the caller answers.
 * What the request said (a step's end) stays. False: none does. */
bool rps_job_withdraw_locked(
        struct rps_job *job, const struct rps_parked *parked);
/** A request of a closed session will never be answered: forget it. */
void rps_job_forget_locked(struct rps_job *job, struct rps_parked *parked);

/** Room for the members of a new epoch, before it begins. */
rps_status rps_job_prepare_locked(struct rps_job *job, uint32_t replicas);
/** RESTORE set epoch and terms: all wait for the start again. reason: why the
 * job begins again; "": it does not. */
void rps_job_reset_locked(struct rps_job *job, const rps_terms *terms,
        uint64_t step, const char *reason, struct rps_answers *answers);

/** COMMIT or ABORT of a step was carried out here; or PREPARE of it came, with
 * the cuts of all servers taken: replicas that are held for it go on. */
void rps_job_saved_locked(
        struct rps_job *job, uint64_t step, struct rps_answers *answers);

void rps_job_figures_locked(
        const struct rps_job *job, struct rps_job_figures *figures);
/** For STAT; NULL: no memory. */
json_t *rps_job_members_locked(const struct rps_job *job);
json_t *rps_job_state_locked(const struct rps_job *job);

#endif /* RPS_SERVER_JOB_H */
