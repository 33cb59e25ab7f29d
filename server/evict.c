/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns EVICT: a whole pass over one table or all, on the writer's thread,
 * where neither PREPARE nor RESTORE can run beside it. The pass holds no
 * lock of the service: service->evicting keeps ALTER_TABLE and DROP (and
 * slices) off the table meanwhile, and cuts off all tables.
 */
#include "base/hash.h"
#include "server/named.h"
#include "server/writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Find the table and keep it; NULL: it is gone, or has nothing to evict. */
static struct rps_table *
begin_pass(struct rps_service *service, uint64_t table_id)
{
    struct rps_table *table;

    pthread_rwlock_rdlock(&service->state_lock);
    table = rps_store_find(service->store, table_id);
    if (table != NULL && rps_table_spec_of(table)->dense_elements > 0) {
        table = NULL;
    }
    /* no cut is being taken, and none is taken until the pass is over */
    pthread_rwlock_rdlock(&service->change_lock);
    pthread_mutex_lock(&service->lock);
    service->evicting = table;
    pthread_mutex_unlock(&service->lock);
    pthread_rwlock_unlock(&service->change_lock);
    pthread_rwlock_unlock(&service->state_lock);
    return table;
}

static void
end_pass(struct rps_service *service, uint64_t table_id, uint64_t erased)
{
    rps_changes_add(service, table_id, erased);
    pthread_mutex_lock(&service->lock);
    service->evicting = NULL;
    pthread_mutex_unlock(&service->lock);
}

/* One table's part of the answer; NULL: it is gone. */
static json_t *
pass(struct rps_service *service, uint64_t table_id)
{
    struct rps_evict_report report = {0};
    struct rps_table *table = begin_pass(service, table_id);
    json_t *object;

    if (table == NULL) {
        return NULL;
    }
    rps_table_evict(table, rps_service_now(service), &report);
    object = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "name",
            rps_table_spec_of(table)->name, "examined",
            (json_int_t)report.examined, "cold", (json_int_t)report.cold,
            "full", (json_int_t)report.full, "bytes_before",
            (json_int_t)report.bytes_before, "bytes_after",
            (json_int_t)report.bytes_after);
    end_pass(service, table_id, report.cold + report.full);
    return object;
}

/* Ids of the tables that are meant, owned; NULL: no memory. */
static uint64_t *
list_tables(struct rps_service *service, const struct rps_task *task,
        size_t *count_out, rps_status *status_out, struct rps_error *error)
{
    const struct rps_header header = {
            .opcode = RPS_OP_EVICT, .epoch = task->epoch};
    uint64_t *ids;
    size_t count;

    pthread_rwlock_rdlock(&service->state_lock);
    count = rps_store_count(service->store);
    ids = calloc(count + 1, sizeof(*ids));
    for (size_t i = 0; ids != NULL && i < count; i++) {
        ids[i] = rps_table_id_of(rps_store_at(service->store, i));
    }
    if (ids != NULL && task->one_table) {
        ids[0] = task->table_id;
        count = 1;
    }
    /* a RESTORE may have stood before this in the queue */
    *status_out = ids == NULL ? rps_fail(error, RPS_E_NOMEM, "no memory")
                              : rps_epoch_check(service, &header, error);
    pthread_rwlock_unlock(&service->state_lock);
    *count_out = count;
    return ids;
}

static rps_status
run_evict(struct rps_service *service, struct rps_task *task, char **text_out,
        struct rps_error *error)
{
    rps_status status = RPS_OK;
    size_t count = 0;
    uint64_t *ids = list_tables(service, task, &count, &status, error);
    json_t *list = json_array();

    for (size_t i = 0; status == RPS_OK && i < count; i++) {
        json_t *object = pass(service, ids[i]);

        if (object != NULL) {
            json_array_append_new(list, object);
        }
    }
    free(ids);
    if (status != RPS_OK) {
        json_decref(list);
        return status;
    }
    *text_out = rps_json_text(json_pack("{s:o}", "tables", list));
    return *text_out != NULL ? RPS_OK
                             : rps_fail(error, RPS_E_NOMEM, "no memory");
}

/* Which table the request names, if it names one. */
static rps_status
read_table(struct rps_request *request, struct rps_task *task)
{
    struct rps_table *table = NULL;
    json_t *object;
    rps_status status = rps_request_json(request, &object);

    if (status != RPS_OK) {
        return status;
    }
    task->one_table = json_object_get(object, "table") != NULL;
    if (task->one_table) {
        status = rps_named_table(request, object, &table);
    }
    json_decref(object);
    if (table != NULL && rps_table_spec_of(table)->dense_elements > 0) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "table %s is a dense variable: its rows are never "
                "evicted",
                rps_table_spec_of(table)->name);
    }
    task->table_id = table != NULL ? rps_table_id_of(table) : 0;
    return status;
}

rps_status
rps_serve_evict(struct rps_request *request)
{
    struct rps_task task = {
            .run = run_evict, .epoch = request->message->header.epoch};
    rps_status status = read_table(request, &task);

    return status == RPS_OK ? rps_writer_submit(request, &task) : status;
}
