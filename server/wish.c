/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what the process itself may wish of the chief, and what it looks at to
 * see whether that came true.
 */
#include "base/log.h"
#include "server/state.h"

bool
rps_service_chief_connected(struct rps_service *service)
{
    bool chief;

    pthread_mutex_lock(&service->lock);
    chief = rps_chief_connected_locked(service);
    pthread_mutex_unlock(&service->lock);
    return chief;
}

bool
rps_service_is_unsaved(struct rps_service *service)
{
    bool unsaved;

    pthread_mutex_lock(&service->lock);
    unsaved = rps_is_unsaved_locked(service);
    pthread_mutex_unlock(&service->lock);
    return unsaved;
}

static rps_status
wish_locked(struct rps_service *service, uint32_t wish, struct rps_error *error)
{
    if (!rps_chief_connected_locked(service)) {
        return rps_fail(error, RPS_E_NOT_FOUND,
                "no chief is connected that could save");
    }
    atomic_fetch_or(&service->wishes, wish);
    return RPS_OK;
}

rps_status
rps_service_wish_save(struct rps_service *service, struct rps_error *error)
{
    rps_status status;

    pthread_mutex_lock(&service->lock);
    status = wish_locked(service, RPS_WISH_SAVE, error);
    pthread_mutex_unlock(&service->lock);
    return status;
}

enum rps_end_wish
rps_service_wish_end(struct rps_service *service, struct rps_error *error)
{
    enum rps_end_wish wished = RPS_END_WISH_NONE;

    pthread_mutex_lock(&service->lock);
    if (atomic_load(&service->epoch) != 0 &&
            !atomic_load(&service->comes_back)) {
        wished = RPS_END_WISH_STOP; /* a job that stops saves */
    } else if (rps_is_unsaved_locked(service)) {
        wished = RPS_END_WISH_SAVE;
    }
    if (wished != RPS_END_WISH_NONE &&
            wish_locked(service,
                    wished == RPS_END_WISH_STOP ? RPS_WISH_STOP : RPS_WISH_SAVE,
                    error) != RPS_OK) {
        wished = RPS_END_WISH_NONE;
    }
    pthread_mutex_unlock(&service->lock);
    return wished;
}

void
rps_service_end_begins(struct rps_service *service)
{
    atomic_store(&service->ending, true);
}
