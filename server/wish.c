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

rps_status
rps_service_wish_save(struct rps_service *service, struct rps_error *error)
{
    bool chief;

    pthread_mutex_lock(&service->lock);
    chief = rps_chief_connected_locked(service);
    if (chief) {
        atomic_fetch_or(&service->wishes, RPS_WISH_SAVE);
    }
    pthread_mutex_unlock(&service->lock);
    return chief ? RPS_OK
                 : rps_fail(error, RPS_E_NOT_FOUND,
                           "no chief is connected that could save");
}
