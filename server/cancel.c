/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns CANCEL: requests of the same connection that wait are answered
 * CANCELED; a number of the lane that has no verdict yet gets that one.
 *
 * Requests of a connection are served in order, so whatever came before a
 * CANCEL is answered or waits: there is nothing between.
 */
#include "server/job.h"
#include "server/writer.h"

#include <inttypes.h>
#include <stdlib.h>

#define CANCEL_MAX 1024u /* requests named by one CANCEL */

static struct rps_parked *
find_locked(const struct rps_request *request, uint64_t id)
{
    struct rps_parked *parked = request->service->parked;

    while (parked != NULL && (parked->session != request->session ||
                                     parked->request.request_id != id)) {
        parked = parked->next;
    }
    return parked;
}

/* False: it does not wait any more, or another thread has it in hand. */
static bool
cancel_locked(struct rps_request *request, struct rps_parked *parked)
{
    struct rps_service *service = request->service;

    if (!rps_writer_withdraw_locked(service->writer, parked) &&
            (service->job == NULL ||
                    !rps_job_withdraw_locked(service->job, parked))) {
        return false;
    }
    rps_answer_locked(service, &request->answers, parked, RPS_E_CANCELED,
            "the peer took the request back; it waited, and waits no more");
    return true;
}

static rps_status
cancel_waiting(struct rps_request *request, const json_t *list)
{
    const size_t count = json_array_size(list);
    json_int_t canceled = 0;

    if (!json_is_array(list) || count > CANCEL_MAX) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "CANCEL: requests must be an array of at most %u ids",
                CANCEL_MAX);
    }
    pthread_mutex_lock(&request->service->lock);
    for (size_t i = 0; i < count; i++) {
        struct rps_parked *parked = NULL;
        uint64_t id = 0;

        if (rps_json_whole(json_array_get(list, i), &id)) {
            parked = find_locked(request, id);
        }
        canceled += parked != NULL && cancel_locked(request, parked);
    }
    pthread_mutex_unlock(&request->service->lock);
    request->text = rps_json_text(json_pack("{s:I}", "canceled", canceled));
    return request->text != NULL ? RPS_OK : RPS_E_NOMEM;
}

/* The number is the next one, so nothing of it has taken effect. */
static rps_status
cancel_number(struct rps_request *request)
{
    const uint64_t number = request->message->header.number;
    struct rps_pushed *push = &request->session->push;

    if (push->open && push->number == number) {
        rps_pushed_clear(push);
    }
    return rps_fail(&request->error, RPS_E_CANCELED,
            "number %" PRIu64 " was taken back; nothing was changed", number);
}

rps_status
rps_serve_cancel(struct rps_request *request)
{
    json_t *object;
    rps_status status;

    if (request->message->header.number != 0) {
        return cancel_number(request);
    }
    status = rps_request_json(request, &object);
    if (status == RPS_OK) {
        status = cancel_waiting(request, json_object_get(object, "requests"));
        json_decref(object);
    }
    return status;
}
