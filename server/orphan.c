/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what a server does with its tables at a stop that no chief saved for:
 * its own part is written, which is no checkpoint (docs/CHECKPOINT.md).
 */
#include "embedding/checkpoint/orphan.h"

#include "base/clock.h"
#include "base/terms.h"
#include "server/save.h"
#include "server/writer.h"

#include <stdlib.h>
#include <time.h>

#define LOOK_NS 10000000 /* 10 ms */

/* What the writer's thread has in hand it finishes: nobody asks for more. */
static void
wait_for_writer(struct rps_service *service)
{
    const struct timespec wait = {.tv_nsec = LOOK_NS};
    bool idle = false;

    while (!idle) {
        pthread_mutex_lock(&service->lock);
        idle = rps_writer_is_idle_locked(service->writer);
        pthread_mutex_unlock(&service->lock);
        if (!idle) {
            nanosleep(&wait, NULL);
        }
    }
}

static rps_status
write_cut(struct rps_service *service, struct rps_save *save, char **path_out,
        struct rps_error *error)
{
    const struct rps_mode_text mode = rps_terms_mode(&service->terms);
    const struct rps_orphan_about about = {.job_id = service->options.job_id,
            .job_seed = service->options.job_seed,
            .mode = mode.text,
            .begun_by = service->begun_by};
    const struct rps_checkpoint_id id = {.dir = service->options.checkpoint_dir,
            .step = save->step,
            .epoch = save->epoch,
            .part = service->options.ps_index,
            .parts = service->options.ps_count};

    return rps_orphan_write(&id, &about, save->cut, save->lanes,
            save->lane_count, path_out, error);
}

rps_status
rps_service_write_orphan(
        struct rps_service *service, char **path_out, struct rps_error *error)
{
    struct rps_save save;
    rps_status status;

    *path_out = NULL;
    if (service->options.checkpoint_dir == NULL) {
        return rps_fail(error, RPS_E_INVAL, "there is no checkpoint_dir");
    }
    wait_for_writer(service);
    pthread_rwlock_wrlock(&service->state_lock);
    status = rps_save_take(
            service, atomic_load(&service->step), rps_clock_ns(), error);
    pthread_rwlock_unlock(&service->state_lock);
    if (status != RPS_OK) {
        return status;
    }
    pthread_mutex_lock(&service->lock);
    service->save.writing = true;
    save = service->save;
    pthread_mutex_unlock(&service->lock);
    status = write_cut(service, &save, path_out, error);
    rps_save_finish(service, false); /* it is as unsaved as before */
    return status;
}
