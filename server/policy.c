/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the requests that change what a table is or end it: ALTER_TABLE,
 * DROP. Both hold state_lock exclusively: nothing else runs on the tables.
 */
#include "base/hash.h"
#include "base/log.h"
#include "base/spec.h"
#include "server/named.h"
#include "server/save.h"
#include "server/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A pass (EVICT) runs on the writer's thread without state_lock; a cut has the
 * table's rows until it is written. */
static rps_status
check_not_in_use(struct rps_request *request, const struct rps_table *table)
{
    struct rps_service *service = request->service;
    bool found;

    pthread_mutex_lock(&service->lock);
    found = service->evicting == table;
    pthread_mutex_unlock(&service->lock);
    return found ? rps_fail(&request->error, RPS_E_RETRY_LATER,
                           "an EVICT of table %s runs here: try again when it "
                           "is done",
                           rps_table_spec_of(table)->name)
                 : rps_save_check_table(service, table, &request->error);
}

static void
tell_altered(struct rps_request *request, const char *name, const json_t *set)
{
    struct rps_log_about about = {.table = name};
    char *text = json_dumps(
            set, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(9));

    rps_log_enter(&about);
    rps_service_event(request->service, RPS_LOG_INFO, "table_altered",
            "table %s: %s, asked by %s", name, text != NULL ? text : "?",
            request->session->peer);
    rps_log_leave(&about);
    free(text);
}

rps_status
rps_serve_alter(struct rps_request *request)
{
    struct rps_service *service = request->service;
    struct rps_table *table = NULL;
    json_t *object;
    const json_t *set;
    rps_status status = rps_request_json(request, &object);

    if (status != RPS_OK) {
        return status;
    }
    set = json_object_get(object, "set");
    status = rps_named_table(request, object, &table);
    if (status == RPS_OK) {
        status = check_not_in_use(request, table);
    }
    if (status == RPS_OK) {
        status = rps_store_alter(service->store, rps_table_id_of(table), set,
                rps_service_now(service), &request->error);
    }
    if (status == RPS_OK) {
        tell_altered(request, rps_table_spec_of(table)->name, set);
        request->text = rps_json_text(json_pack(
                "{s:o}", "spec", rps_spec_to_value(rps_table_spec_of(table))));
        status = request->text != NULL ? RPS_OK : RPS_E_NOMEM;
    }
    json_decref(object);
    return status;
}

/* What replicas have pushed to it for the step that comes is void. A copied
 * frame is the service's own: under the exclusive lock nobody reads it. */
static void
void_contributions(struct rps_service *service, uint64_t table_id)
{
    for (uint32_t rank = 0;
            rank < service->terms.replica_count && service->contributed != NULL;
            rank++) {
        struct rps_push_frame *frame = service->contributed[rank].push.first;

        for (; frame != NULL; frame = frame->next) {
            struct rps_section *sections = (struct rps_section *)(void
                            *)(frame->bytes +
                               ((const uint8_t *)frame->message.sections -
                                       frame->message.frame));

            for (uint32_t i = 0; i < frame->message.section_count; i++) {
                if (sections[i].table_id == table_id) {
                    sections[i].kind = 0; /* of no kind: never found */
                }
            }
        }
    }
}

/* No checkpoint will hold what was pushed to it. */
static void
forget_changes(struct rps_service *service, uint64_t table_id)
{
    struct rps_changes *changes;

    pthread_mutex_lock(&service->lock);
    changes = rps_changes_of_locked(service, table_id);
    if (changes != NULL) {
        *changes = (struct rps_changes){.table_id = table_id};
    }
    pthread_mutex_unlock(&service->lock);
}

static void
take_out(struct rps_request *request, uint64_t table_id)
{
    struct rps_service *service = request->service;
    size_t index = 0;

    request->dropped = rps_store_remove(service->store, table_id, &index);
    if (index < service->apply_next) {
        service->apply_next--; /* it counts tables that have the step */
    }
    service->drops++;
    void_contributions(service, table_id);
    forget_changes(service, table_id);
}

/* Every row of a dense variable exists for the whole job: without it each
 * replica fails at its next step. */
static rps_status
check_drop(struct rps_request *request, const struct rps_table *table)
{
    const rps_table_spec *spec = rps_table_spec_of(table);
    const uint32_t epoch = atomic_load(&request->service->epoch);

    if (spec->dense_elements > 0 && epoch > 0 && request->session->rank != 0) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "table %s is a dense variable of a job (epoch %" PRIu32
                "): only the job's chief (rank 0) may drop it",
                spec->name, epoch);
    }
    return check_not_in_use(request, table);
}

rps_status
rps_serve_drop(struct rps_request *request)
{
    struct rps_log_about about = {.table = NULL};
    struct rps_table *table = NULL;
    struct rps_table_stats stats;
    json_t *object;
    rps_status status = rps_request_json(request, &object);

    if (status != RPS_OK) {
        return status;
    }
    status = rps_named_table(request, object, &table);
    json_decref(object);
    if (status == RPS_OK) {
        status = check_drop(request, table);
    }
    if (status != RPS_OK) {
        return status;
    }
    rps_table_stats_of(table, &stats);
    request->text = rps_json_text(json_pack("{s:I, s:I}", "rows",
            (json_int_t)stats.rows, "bytes", (json_int_t)stats.bytes));
    if (request->text == NULL) {
        return rps_fail(&request->error, RPS_E_NOMEM, "no memory");
    }
    take_out(request, rps_table_id_of(table));
    about.table = rps_table_spec_of(request->dropped)->name;
    rps_log_enter(&about);
    rps_service_event(request->service, RPS_LOG_INFO, "table_dropped",
            "table %s: %" PRIu64 " rows, asked by %s", about.table, stats.rows,
            request->session->peer);
    rps_log_leave(&about);
    return RPS_OK;
}
