/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The upkeep of tables beside traffic: cold rows, budgets, ageing of counts,
 * compaction, in slices of at most RPS_SLICE_NS. recpsd has a thread for it;
 * without one (embedded) whoever changed rows does a slice.
 */
#ifndef RPS_SERVER_KEEPER_H
#define RPS_SERVER_KEEPER_H

#include "server/state.h"

#define RPS_SLICE_NS        200000u /* a slice is made to take at most this */
#define RPS_SLICE_LINES_MIN 16u     /* of the index, 4 rows each */
#define RPS_SLICE_LINES_MAX 65536u
#define RPS_PAUSE_US        800u /* after a slice: at most 1/5 of a core */
#define RPS_IDLE_MS_MAX     250u /* longest sleep while nothing is due */

struct rps_keeper;

/** with_thread: start it. NULL: no memory or no thread. */
struct rps_keeper *rps_keeper_create(
        struct rps_service *service, bool with_thread);
/** Stops the thread. NULL is fine. */
void rps_keeper_destroy(struct rps_keeper *keeper);

/**
 * One slice of one table, the next in turn. False: no table has more to do
 * now. Takes state_lock shared, and change_lock shared unless it is held
 * exclusively: then nothing is done.
 */
bool rps_keeper_slice(struct rps_keeper *keeper);

/** The same where there is no thread, else nothing. */
void rps_keeper_help(struct rps_keeper *keeper);

/**
 * How many lines the next slice should have: a slice of `lines` took `ns`;
 * `full`: its lines ran out before its work did.
 */
size_t rps_keeper_lines(size_t lines, uint64_t ns, bool full);

#endif /* RPS_SERVER_KEEPER_H */
