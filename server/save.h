/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The save in hand (service->save): its cut, from the instant it is taken to
 * COMMIT or ABORT. save_hand.c owns it; save.c has the requests and what the
 * writer's thread does.
 *
 *   NONE -> CUT -> PREPARED -> NONE
 *
 * It comes to nothing, at any point: by ABORT; when PREPARE or COMMIT fails;
 * by RESTORE; when its owner has been gone for step_timeout; or when another
 * save is asked for and its owner is not connected.
 */
#ifndef RPS_SERVER_SAVE_H
#define RPS_SERVER_SAVE_H

#include "proto/message.h"
#include "server/state.h"

/* relaxed, all three: see rps_saving_record */
static inline void
rps_record_put(_Atomic uint64_t *field, uint64_t value)
{
    atomic_store_explicit(field, value, memory_order_relaxed);
}

static inline void
rps_record_count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/** What the writer's thread has in hand from here on. */
void rps_record_busy(struct rps_service *service, enum rps_busy busy);

/**
 * Take a cut at this step. Nobody may change rows meanwhile: state_lock is
 * held exclusively, or shared with change_lock held exclusively. A save in
 * hand that may be dropped is. `pause_from_ns`: clock since when rows stood
 * still. Errors: RETRY_LATER (a save is in hand, or an EVICT runs), NOMEM.
 */
rps_status rps_save_take(struct rps_service *service, uint64_t step,
        uint64_t pause_from_ns, struct rps_error *error);

/** A decision was applied: where it has the wish `save`, its cut is taken.
 * state_lock is held exclusively. */
void rps_save_at_decision(
        struct rps_service *service, const struct rps_wire_decision *decision);

/** The save of this client (claimed by it from now on) at this step and
 * epoch; false: there is none. lock is held. */
bool rps_save_claim_locked(
        struct rps_service *service, uint64_t client, uint64_t step);

/** Another client that is connected has a save in hand. lock is held. */
bool rps_save_is_others_locked(
        const struct rps_service *service, uint64_t client);

/** Why DROP and ALTER_TABLE have to wait: RETRY_LATER in words. state_lock is
 * held exclusively. */
rps_status rps_save_check_table(struct rps_service *service,
        const struct rps_table *table, struct rps_error *error);

/**
 * What is in hand comes to nothing; nothing: fine. The tables' memory stays
 * meanwhile (state_lock in any hold, or the writer's thread). Not of the
 * writer's own work: false.
 */
bool rps_save_drop(struct rps_service *service, const char *why);

/** The same, with its cut as a part of a complete checkpoint. */
void rps_save_finish(struct rps_service *service, bool complete);

/** Drop what nobody will end. Threads: the keeper. */
void rps_save_tend(struct rps_service *service);

/** A slice of rps_cut_make_ready(), where there are saves. state_lock is
 * held. */
bool rps_save_make_ready(struct rps_service *service);

/** A save failed here: so it is said. `cut`: its number; 0: it had none, or
 * what it had is gone. */
void rps_save_note_failure(struct rps_service *service, uint64_t step,
        uint64_t cut, const char *why);

/** What a delta on ckpt-<step>, of this manifest, has to know; none where that
 * cannot be read. Reads files. */
void rps_save_read_parent(struct rps_service *service, uint64_t step,
        const json_t *manifest, struct rps_save_parent *out);

/** What stands in the tables is this checkpoint (an empty name: none): a delta
 * may stand on it. */
void rps_save_stand_on(
        struct rps_service *service, const struct rps_save_parent *parent);

/** The same of a save that is complete. */
void rps_save_stand_on_saved(struct rps_service *service,
        const struct rps_save *save, const json_t *manifest);

/** Of the save in hand and the last ones, for STAT. lock is held. */
json_t *rps_save_describe_locked(struct rps_service *service);

/** Of its cut; zeros: there is none. lock is held. */
void rps_save_figures_locked(
        struct rps_service *service, struct rps_save_figures *out);

#endif /* RPS_SERVER_SAVE_H */
