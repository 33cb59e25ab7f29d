/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes: (client, lane) numbers its changing requests 1, 2, 3 …; a number
 * gets one verdict, the last 64 are kept, a repeat gets the kept one.
 *
 * Threads: a set of lanes has its own lock (innermost but for nothing: no
 * other lock is taken under it). A lane runs one request at a time.
 */
#ifndef RPS_SERVER_LANE_H
#define RPS_SERVER_LANE_H

#include "base/error.h"
#include "embedding/checkpoint/checkpoint.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_VERDICTS_KEPT 64u
#define RPS_LANES_MAX     65536u

/** The last verdicts, a ring by number: slot = number % 64. */
struct rps_verdicts {
    uint64_t number[RPS_VERDICTS_KEPT]; /* 0: empty */
    int32_t status[RPS_VERDICTS_KEPT];
};

void rps_verdicts_keep(
        struct rps_verdicts *verdicts, uint64_t number, rps_status status);
bool rps_verdicts_find(const struct rps_verdicts *verdicts, uint64_t number,
        rps_status *status_out);

struct rps_lanes;
struct rps_lane;

/** What they came to. */
struct rps_lanes_figures {
    uint64_t lanes;      /* that are known */
    uint64_t reconnects; /* HELLOs of a lane that was known */
    uint64_t repeats;    /* numbers that were answered by a kept verdict */
};

/** A lane without a connection is forgotten after ttl_ms; 0: never. */
struct rps_lanes *rps_lanes_create(uint64_t ttl_ms);
void rps_lanes_destroy(struct rps_lanes *lanes);

/**
 * Take the lane for a new connection. The connection that had it is
 * superseded: its further numbered requests are CANCELED; one that is being
 * served is waited for. *turn_out is what the connection shows from now on.
 * Lanes that nobody has used for too long are forgotten first. NULL: no
 * memory.
 */
struct rps_lane *rps_lane_attach(struct rps_lanes *lanes, uint64_t client,
        uint32_t lane, uint64_t *turn_out);

/** The connection is gone; the lane is remembered. */
void rps_lane_detach(
        struct rps_lanes *lanes, struct rps_lane *lane, uint64_t turn);

enum rps_lane_answer {
    RPS_LANE_RUN,    /* go on, and rps_lane_end() must follow */
    RPS_LANE_REPEAT, /* *verdict is the answer */
    RPS_LANE_REFUSE  /* *verdict and error are the answer */
};

enum rps_lane_answer rps_lane_begin(struct rps_lanes *lanes,
        struct rps_lane *lane, uint64_t turn, uint64_t number,
        rps_status *verdict, struct rps_error *error);

/** keep: the number is used up by this verdict. */
void rps_lane_end(struct rps_lanes *lanes, struct rps_lane *lane,
        uint64_t number, bool keep, rps_status verdict);

/** ["last_number"] and [["7",0],…] ascending; false: no memory. */
bool rps_lane_describe(
        struct rps_lanes *lanes, struct rps_lane *lane, json_t *into);

void rps_lanes_figures_read(
        struct rps_lanes *lanes, struct rps_lanes_figures *figures);

/** Every kept verdict, for a checkpoint; free(). */
rps_status rps_lanes_record(struct rps_lanes *lanes,
        struct rps_lane_record **records_out, size_t *count_out);

/** Verdicts of a checkpoint: lanes that are known here keep their own. */
rps_status rps_lanes_merge(struct rps_lanes *lanes,
        const struct rps_lane_record *records, size_t count);

#endif /* RPS_SERVER_LANE_H */
