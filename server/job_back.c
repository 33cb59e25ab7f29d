/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what follows when a process of the job comes back (terms.recover): the
 * epoch is void once another process waits in the place of one that is gone,
 * and who is done waits for the job's end, for it may have to go back, too.
 */
#include "base/text.h"
#include "server/job_state.h"

#include <inttypes.h>
#include <stdlib.h>

/* The process that had the rank is gone, and another one waits in STEP_END(0).
 * Who left is not needed again, unless the job goes back for another reason. */
static bool
is_replaced(const struct rps_replica *member)
{
    return member->started && !member->left && member->connections == 0 &&
           member->joining != NULL && member->joining->session != NULL &&
           member->joining->session->client != member->client;
}

void
rps_job_look_back_locked(
        struct rps_job *job, uint32_t rank, struct rps_answers *answers)
{
    char *why;

    if (!job->started || job->stopped || !job->terms.recover ||
            !is_replaced(&job->members[rank])) {
        return;
    }
    why = rps_format("rank %" PRIu32 " was lost after step %" PRIu64
                     " and is here again as another process: the job goes back"
                     " to its newest checkpoint",
            rank, job->members[rank].ended);
    rps_job_stop_locked(job, answers, RPS_E_ROLLED_BACK,
            why != NULL ? why : "a replica was lost and is here again");
    free(why);
}

void
rps_job_end_locked(struct rps_job *job, struct rps_answers *answers)
{
    rps_job_fail_joining_locked(
            job, answers, RPS_E_CANCELED, "the chief has ended the job");
    for (uint32_t i = 0; i < RPS_OBSERVERS_MAX; i++) {
        if (job->observers[i] != NULL) {
            rps_answer_locked(
                    job->service, answers, job->observers[i], RPS_OK, "{}");
            job->observers[i] = NULL;
        }
    }
}

/* Its own place from when it asked before, or a free one; NULL: none. */
static struct rps_parked **
place_of(struct rps_job *job, const struct rps_session *session)
{
    struct rps_parked **free_place = NULL;

    for (uint32_t i = 0; i < RPS_OBSERVERS_MAX; i++) {
        if (job->observers[i] == NULL) {
            free_place = &job->observers[i];
        } else if (job->observers[i]->session == session) {
            return &job->observers[i];
        }
    }
    return free_place;
}

rps_status
rps_job_observe_locked(struct rps_request *request, struct rps_job *job)
{
    struct rps_parked **place = place_of(job, request->session);
    struct rps_parked *parked = place != NULL ? rps_park_locked(request) : NULL;

    if (place == NULL) {
        return rps_fail(&request->error, RPS_E_LIMIT,
                "STEP_END: %u evaluators wait for the end here already",
                RPS_OBSERVERS_MAX);
    }
    if (parked == NULL) {
        return rps_fail(
                &request->error, RPS_E_NOMEM, "STEP_END: no memory to wait");
    }
    if (*place != NULL) {
        rps_answer_locked(job->service, &request->answers, *place,
                RPS_E_CANCELED, "STEP_END(0) was sent again");
    }
    *place = parked;
    return RPS_OK;
}
