/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns how the service's counters are read. state_lock prefers writers: a
 * reader that comes while one waits for a checkpoint would wait with it, so
 * the lock is asked for with a time limit.
 */
#include "server/figures.h"

#include "base/clock.h"
#include "server/job.h"
#include "server/save.h"
#include "server/serving.h"
#include "server/state.h"
#include "server/writer.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* relaxed, here and below: each number is true by itself, and none says
 * anything about another */
static uint64_t
number(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

enum rps_busy
rps_service_busy(struct rps_service *service, uint64_t *ms_out)
{
    const struct rps_saving_record *saving = &service->saving;
    const uint64_t now = rps_clock_ms();
    const uint64_t since = number(&saving->busy_since_ms);

    if (ms_out != NULL) {
        *ms_out = now > since ? now - since : 0;
    }
    return (enum rps_busy)atomic_load_explicit(
            &saving->busy, memory_order_relaxed);
}

void
rps_service_restore_progress(struct rps_service *service, uint64_t *rows_out,
        uint64_t *rows_total_out)
{
    *rows_out = number(&service->saving.restore_rows);
    *rows_total_out = number(&service->saving.restore_rows_total);
}

uint64_t
rps_service_saves(struct rps_service *service, double *seconds_out)
{
    if (seconds_out != NULL) {
        *seconds_out = (double)number(&service->saving.save_ns) / 1e9;
    }
    return number(&service->saving.saves);
}

uint64_t
rps_service_cuts(struct rps_service *service)
{
    return number(&service->saving.cuts);
}

uint64_t
rps_service_saved_cut(struct rps_service *service)
{
    return number(&service->saving.saved_cut);
}

static void
read_saving(struct rps_service *service, struct rps_service_figures *figures)
{
    const struct rps_saving_record *saving = &service->saving;

    figures->busy = rps_service_busy(service, &figures->busy_ms);
    figures->saves = number(&saving->saves);
    figures->save_failures = number(&saving->save_failures);
    figures->saved_unix_s = number(&saving->saved_unix_s);
    figures->save_seconds = (double)number(&saving->save_ns) / 1e9;
    figures->save_bytes = number(&saving->save_bytes);
    figures->save_delta = number(&saving->save_delta) != 0;
    figures->save_pause = (double)number(&saving->pause_ns) / 1e9;
    figures->save_barrier = (double)number(&saving->barrier_ns) / 1e9;
    figures->restores = number(&saving->restores);
    figures->restore_failures = number(&saving->restore_failures);
    figures->restore_seconds = (double)number(&saving->restore_ns) / 1e9;
    rps_service_restore_progress(
            service, &figures->restore_rows, &figures->restore_rows_total);
}

/* Of the save in hand, and of those before it. */
static void
read_buffer_locked(
        struct rps_service *service, struct rps_service_figures *figures)
{
    const struct rps_saving_record *saving = &service->saving;
    const uint64_t peak = number(&saving->buffer_peak);
    struct rps_save_figures now;

    rps_save_figures_locked(service, &now);
    figures->save_open = service->save.phase != RPS_SAVE_NONE;
    figures->save_buffer_bytes = now.used;
    figures->save_buffer_peak = now.peak > peak ? now.peak : peak;
    figures->save_buffer_limit = service->options.save_buffer != 0
                                         ? service->options.save_buffer
                                         : RPS_SAVE_BUFFER_BYTES;
    figures->save_copied = number(&saving->copied) + now.rows;
    figures->save_waits = number(&saving->waits) + now.waits;
}

static void
read_table(struct rps_table *table, struct rps_table_figures *out)
{
    const rps_table_spec *spec = rps_table_spec_of(table);
    struct rps_table_stats stats;

    rps_table_stats_of(table, &stats);
    *out = (struct rps_table_figures){
            .dim = spec->dim,
            .rows = stats.rows,
            .bytes = stats.bytes,
            .index_bytes = stats.index_bytes,
            .admission_keys = stats.admission_keys,
            .admission_bytes = stats.admission_bytes,
            .memory_limit = spec->memory_limit,
            .lookups = stats.lookups,
            .missing = stats.missing,
            .pushes = stats.pushes,
            .applied = stats.applied,
            .inserted = stats.inserted,
            .erased = stats.erased,
            .evicted_cold = stats.evicted_cold,
            .evicted_full = stats.evicted_full,
            .disk_rows = stats.disk_rows,
            .disk_bytes = stats.disk_bytes,
            .disk_hits = stats.disk_hits,
            .lowered = stats.lowered,
            .raised = stats.raised,
            .dropped = stats.dropped,
            .nonfinite = stats.nonfinite,
            .unadmitted = stats.unadmitted,
    };
    memcpy(out->name, spec->name, sizeof(out->name));
}

/* state_lock is held. */
static rps_status
read_tables(struct rps_store *store, struct rps_service_figures *figures)
{
    const size_t count = rps_store_count(store);
    struct rps_table_figures *tables = calloc(count + 1, sizeof(*tables));

    if (tables == NULL) {
        return RPS_E_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        read_table(rps_store_at(store, i), &tables[i]);
    }
    free(figures->tables);
    figures->tables = tables;
    figures->table_count = count;
    return RPS_OK;
}

static void
read_lanes(struct rps_service *service, struct rps_service_figures *figures)
{
    struct rps_lanes_figures lanes;

    rps_lanes_figures_read(service->lanes, &lanes);
    figures->lanes = lanes.lanes;
    figures->reconnects = lanes.reconnects;
    figures->repeats = lanes.repeats;
}

bool
rps_state_lock_within(struct rps_service *service, uint32_t wait_ms)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until); /* what timedrdlock goes by */
    until.tv_sec += (time_t)(wait_ms / 1000);
    until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    return pthread_rwlock_timedrdlock(&service->state_lock, &until) == 0;
}

rps_status
rps_service_figures_read(struct rps_service *service, uint32_t wait_ms,
        struct rps_service_figures *figures)
{
    rps_status status = RPS_E_RETRY_LATER;

    figures->incarnation = service->incarnation;
    figures->step = number(&service->step);
    figures->epoch = atomic_load(&service->epoch);
    figures->memory_used = rps_service_tables_bytes(service);
    figures->memory_limit = service->options.memory_limit;
    figures->late = number(&service->late);
    figures->uncounted = number(&service->dropped);
    figures->auth_failures = number(&service->auth_failures);
    read_saving(service, figures);
    rps_service_serving(service, &figures->serving);
    read_lanes(service, figures);
    pthread_mutex_lock(&service->lock);
    figures->sessions = service->session_count;
    figures->writer_waiting = rps_writer_waiting_locked(service->writer);
    read_buffer_locked(service, figures);
    if (service->job != NULL) {
        rps_job_figures_locked(service->job, &figures->job);
    }
    pthread_mutex_unlock(&service->lock);
    if (rps_state_lock_within(service, wait_ms)) {
        status = read_tables(service->store, figures);
        pthread_rwlock_unlock(&service->state_lock);
    }
    return status;
}

void
rps_service_serving(
        struct rps_service *service, struct rps_serving_figures *out)
{
    *out = (struct rps_serving_figures){0};
    if (service->serving != NULL) {
        rps_serving_figures(service->serving, out);
    }
}

void
rps_service_figures_finish(struct rps_service_figures *figures)
{
    free(figures->tables);
    memset(figures, 0, sizeof(*figures));
}
