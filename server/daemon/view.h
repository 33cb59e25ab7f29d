/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the admin thread may look at. The main thread fills it before that
 * thread starts, and moves `stage` on; everything else in it stays.
 */
#ifndef RPS_SERVER_DAEMON_VIEW_H
#define RPS_SERVER_DAEMON_VIEW_H

#include "conf/options.h"
#include "server/daemon/loop.h"
#include "server/service.h"

#include <stdatomic.h>
#include <stdint.h>

enum rps_stage {
    RPS_STAGE_STARTING, /* the port is not bound yet */
    RPS_STAGE_SERVING,
    RPS_STAGE_DRAINING /* told to stop */
};

struct rps_view {
    const struct rps_options *options;
    struct rps_service *service;
    struct rps_loops_shared *shared;
    uint64_t memory_max; /* of the control group; 0: none */

    /* stage: release by the main thread when it has written the three below,
     * acquire by the admin thread before it reads them */
    _Atomic uint32_t stage;   /* enum rps_stage */
    struct rps_loop **loops;  /* [loop_count], from SERVING on */
    uint32_t loop_count;      /* from SERVING on */
    const char *listening;    /* address as text, from SERVING on */
    const char *_Atomic stop; /* why it stops ("SIGTERM"), at DRAINING */
};

static inline enum rps_stage
rps_view_stage(const struct rps_view *view)
{
    return (enum rps_stage)atomic_load_explicit(
            &view->stage, memory_order_acquire);
}

/** The main thread: what belongs to the stage was written. */
static inline void
rps_view_enter(struct rps_view *view, enum rps_stage stage)
{
    atomic_store_explicit(&view->stage, (uint32_t)stage, memory_order_release);
}

#endif /* RPS_SERVER_DAEMON_VIEW_H */
