/* SPDX-License-Identifier: Apache-2.0 */
/* The workers of recps top: who they are, and what their admin ports say. */
#ifndef RPS_CLIENT_CLI_TOP_WORKERS_H
#define RPS_CLIENT_CLI_TOP_WORKERS_H

#include "base/error.h"

#include <recps/cluster.h>

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_TOP_WORKERS_MAX 1024u

struct rps_top_worker {
    char *address;  /* owned */
    json_t *stat;   /* /statz, the last one; owned; NULL: none yet */
    bool here;      /* that is of now */
    uint64_t at_ms; /* of it */
    char why[256];  /* not here */
};

struct rps_top_workers {
    struct rps_top_worker *list; /* [count], owned */
    size_t count;
};

/**
 * where: "entry": every chief and worker of the cluster at its entry; else
 * host:port,host:port,…
 *
 * Errors: INVAL (words in *error), NOMEM. Finish them in any case.
 */
rps_status rps_top_workers_init(struct rps_top_workers *workers,
        const char *where, const rps_cluster *cluster, struct rps_error *error);

void rps_top_workers_finish(struct rps_top_workers *workers);

/** Ask them all, one after the other. */
void rps_top_workers_look(struct rps_top_workers *workers);

/** A number of its answer; NaN: it has none. */
double rps_top_worker_number(
        const struct rps_top_worker *worker, const char *name);

/** The stage with the largest share, NULL without any. */
const char *rps_top_worker_stage(
        const struct rps_top_worker *worker, double *share_out);

/** A list for --json; new reference. */
json_t *rps_top_workers_json(const struct rps_top_workers *workers);

#endif /* RPS_CLIENT_CLI_TOP_WORKERS_H */
