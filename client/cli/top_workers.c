/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/top_workers.h"

#include "base/clock.h"
#include "client/cli/http_get.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_MS 500u /* longer than that it is silent */

/* --- who they are -------------------------------------------------------- */

static rps_status
add(struct rps_top_workers *workers, const char *address, size_t length,
        struct rps_error *error)
{
    struct rps_top_worker *list;

    if (workers->count == RPS_TOP_WORKERS_MAX) {
        return rps_fail(error, RPS_E_INVAL, "more than %u workers",
                RPS_TOP_WORKERS_MAX);
    }
    list = realloc(workers->list, (workers->count + 1) * sizeof(*list));
    if (list == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory");
    }
    workers->list = list;
    list[workers->count] =
            (struct rps_top_worker){.address = strndup(address, length)};
    workers->count++;
    return list[workers->count - 1].address != NULL
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOMEM, "no memory");
}

static rps_status
add_entries(struct rps_top_workers *workers, const rps_cluster *cluster,
        struct rps_error *error)
{
    const char *chief = cluster->chief_address;
    rps_status status =
            chief != NULL ? add(workers, chief, strlen(chief), error) : RPS_OK;

    for (uint32_t i = 0; status == RPS_OK && i < cluster->workers_listed; i++) {
        const char *address = cluster->workers[i].address;

        if (address != NULL) {
            status = add(workers, address, strlen(address), error);
        }
    }
    if (status == RPS_OK && workers->count == 0) {
        return rps_fail(error, RPS_E_INVAL,
                "entry: the cluster lists no worker: give --worker-hosts or "
                "TF_CONFIG, or HOST:PORT,...");
    }
    return status;
}

rps_status
rps_top_workers_init(struct rps_top_workers *workers, const char *where,
        const rps_cluster *cluster, struct rps_error *error)
{
    rps_status status = RPS_OK;

    *workers = (struct rps_top_workers){.count = 0};
    if (strcmp(where, "entry") == 0) {
        return add_entries(workers, cluster, error);
    }
    while (status == RPS_OK) {
        const size_t length = strcspn(where, ",");

        if (memchr(where, ':', length) == NULL) {
            return rps_fail(error, RPS_E_INVAL,
                    "must be entry, or HOST:PORT,HOST:PORT,...");
        }
        status = add(workers, where, length, error);
        if (where[length] == '\0') {
            break;
        }
        where += length + 1;
    }
    return status;
}

void
rps_top_workers_finish(struct rps_top_workers *workers)
{
    for (size_t i = 0; i < workers->count; i++) {
        free(workers->list[i].address);
        json_decref(workers->list[i].stat);
    }
    free(workers->list);
    *workers = (struct rps_top_workers){.count = 0};
}

/* --- what they say ------------------------------------------------------- */

static void
look(struct rps_top_worker *worker)
{
    struct rps_error error = {.text = ""};
    char *text = NULL;
    json_t *stat;

    worker->here = false;
    if (rps_http_get(worker->address, "/statz", ANSWER_MS, &text, &error) !=
            RPS_OK) {
        (void)snprintf(worker->why, sizeof(worker->why), "%.200s", error.text);
        return;
    }
    stat = json_loads(text, 0, NULL);
    free(text);
    if (!json_is_object(stat)) {
        json_decref(stat);
        (void)snprintf(worker->why, sizeof(worker->why),
                "its answer is no JSON object");
        return;
    }
    json_decref(worker->stat);
    worker->stat = stat;
    worker->here = true;
    worker->at_ms = rps_clock_ms();
}

void
rps_top_workers_look(struct rps_top_workers *workers)
{
    for (size_t i = 0; i < workers->count; i++) {
        look(&workers->list[i]);
    }
}

double
rps_top_worker_number(const struct rps_top_worker *worker, const char *name)
{
    const json_t *value = json_object_get(worker->stat, name);

    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

const char *
rps_top_worker_stage(const struct rps_top_worker *worker, double *share_out)
{
    const char *name;
    const char *most = NULL;
    json_t *share;

    *share_out = 0.0;
    json_object_foreach(json_object_get(worker->stat, "stages"), name, share)
    {
        if (json_number_value(share) > *share_out) {
            *share_out = json_number_value(share);
            most = name;
        }
    }
    return most;
}

json_t *
rps_top_workers_json(const struct rps_top_workers *workers)
{
    json_t *list = json_array();

    for (size_t i = 0; i < workers->count; i++) {
        const struct rps_top_worker *worker = &workers->list[i];
        json_t *object = json_object();

        if (worker->stat != NULL) {
            json_object_update(object, worker->stat);
        }
        json_object_set_new(object, "address", json_string(worker->address));
        json_object_set_new(object, "reached", json_boolean(worker->here));
        if (!worker->here) {
            json_object_set_new(object, "error", json_string(worker->why));
        }
        json_array_append_new(list, object);
    }
    return list;
}
