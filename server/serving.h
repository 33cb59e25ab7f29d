/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serving (--serve): the tables are those of the newest checkpoint of a
 * folder, and follow it. Nothing else changes them.
 */
#ifndef RPS_SERVER_SERVING_H
#define RPS_SERVER_SERVING_H

#include "server/figures.h"
#include "server/service.h"

#include <jansson.h>

struct rps_request;
struct rps_serving;

/** Copies dir. NULL: no memory. */
struct rps_serving *rps_serving_create(
        struct rps_service *service, const char *dir, uint64_t poll_ms);

/** Waits for a load in progress to come to its next table. NULL is allowed. */
void rps_serving_destroy(struct rps_serving *serving);

/** Load what is there, then follow it on a thread; as rps_service_serve(). */
rps_status rps_serving_start(
        struct rps_serving *serving, struct rps_error *error);

/** READ_ONLY, in words: what every request gets that would change anything. */
rps_status rps_serving_refuse(struct rps_request *request);

/** A table that is asked for by its name and is not here: NOT_FOUND, or
 * RETRY_LATER where no checkpoint is held yet. */
rps_status rps_serving_no_table(struct rps_request *request, const char *name);

/** GET_EMBEDDING_TABLE: the table is there and rows have that shape. */
rps_status rps_serving_open_table(struct rps_request *request);

/** Threads: any; takes no lock of the service. */
void rps_serving_figures(
        struct rps_serving *serving, struct rps_serving_figures *out);

/** Of STAT; a new reference. */
json_t *rps_serving_describe(struct rps_serving *serving);

#endif /* RPS_SERVER_SERVING_H */
