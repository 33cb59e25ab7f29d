/* SPDX-License-Identifier: Apache-2.0 */
#include "server/load.h"

#include "base/log.h"

#include <inttypes.h>

/** What a restore calls back with. */
struct loading {
    struct rps_service *service;
    struct rps_warm *warm; /* NULL: none */
};

static bool
owns(void *context, uint64_t hash)
{
    const struct loading *loading = context;
    const struct rps_service *service = loading->service;

    return rps_route_owner(&service->route, hash) == service->options.ps_index;
}

/* relaxed: they are shown, and order nothing */
static void
put(_Atomic uint64_t *field, uint64_t value)
{
    atomic_store_explicit(field, value, memory_order_relaxed);
}

void
rps_load_progress(
        struct rps_service *service, uint64_t rows, uint64_t rows_total)
{
    put(&service->saving.restore_rows_total, rows_total);
    put(&service->saving.restore_rows, rows);
}

static void
on_progress(void *context, uint64_t rows, uint64_t rows_total)
{
    const struct loading *loading = context;

    rps_load_progress(loading->service, rows, rows_total);
}

static void
on_table(void *context, const char *table, const char *from, bool slots)
{
    const struct loading *loading = context;

    if (loading->warm != NULL) {
        rps_warm_told(loading->warm, table, slots);
        rps_service_event(loading->service, RPS_LOG_INFO, "table_taken",
                "table %s of the checkpoint is %s here, %s", from, table,
                slots ? "with its slots" : "with fresh slots");
    }
}

rps_status
rps_load(struct rps_service *service, uint64_t step, struct rps_warm *warm,
        struct rps_store *store, json_t **manifest_out,
        struct rps_lane_record **lanes_out, size_t *lane_count_out,
        struct rps_error *error)
{
    struct loading loading = {service, warm};
    struct rps_restore restore = {.dir = service->options.checkpoint_dir,
            .step = step,
            .part = service->options.ps_index,
            .parts = service->options.ps_count,
            .owns = owns,
            .progress = on_progress,
            .told = on_table,
            .context = &loading};
    rps_status status = RPS_OK;

    if (warm != NULL) {
        status = rps_warm_prepare(service, warm, &restore, error);
    }
    if (status == RPS_OK && restore.dir == NULL) {
        status = rps_fail(error, RPS_E_NOT_FOUND,
                "RESTORE of step %" PRIu64 ": PS %" PRIu32
                " has no checkpoint_dir",
                step, service->options.ps_index);
    }
    return status == RPS_OK
                   ? rps_checkpoint_restore(&restore, store, manifest_out,
                             lanes_out, lane_count_out, error)
                   : status;
}
