/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of one PS, by id. Finding is lock-free for the caller that
 * holds the service's state lock (shared); adding and clearing need it
 * exclusive.
 */
#ifndef RPS_EMBEDDING_STORE_H
#define RPS_EMBEDDING_STORE_H

#include "embedding/table.h"

#include <jansson.h>

struct rps_store;

rps_status rps_store_create(struct rps_store **store_out, uint64_t job_seed);
void rps_store_destroy(struct rps_store *store);

/** Of all its tables, from now on; outlives the store. NULL: none. */
void rps_store_set_budget(struct rps_store *store, struct rps_budget *budget);

/**
 * Tables made from now on may have rows on the disk: in `file`, within
 * `disk`. Both outlive the store.
 */
struct rps_region_file;
void rps_store_set_tier(struct rps_store *store, struct rps_region_file *file,
        struct rps_budget *disk);

struct rps_table *rps_store_find(const struct rps_store *store, uint64_t id);
struct rps_table *rps_store_at(const struct rps_store *store, size_t index);
size_t rps_store_count(const struct rps_store *store);
uint64_t rps_store_job_seed(const struct rps_store *store);

/**
 * Open or create. Existing with another identity or policy: MISMATCH naming
 * table, field and both values (and ALTER_TABLE for policy). Two names with
 * one id: MISMATCH. After a restore the first request sets the policy.
 */
rps_status rps_store_open_table(struct rps_store *store,
        const rps_table_spec *spec, struct rps_table **table_out,
        struct rps_error *error);

/**
 * A table is going to be restored, which is not added yet: its rows beyond
 * the memory limits may go to the disk from the first one on, if the store has
 * a disk tier. Errors: NOMEM.
 */
rps_status rps_store_begin_restored(
        struct rps_store *store, struct rps_table *table);

/** Add a restored table: its policy is open until its first request. */
rps_status rps_store_add_restored(
        struct rps_store *store, struct rps_table *table);

/**
 * Change policy fields, a JSON object by name, of a table that is here; `now`
 * as rps_table_alter wants it. The caller holds the state lock exclusively.
 * After a restore the first request still sets the whole policy.
 * Errors: as rps_spec_alter and rps_table_alter; nothing was changed.
 */
rps_status rps_store_alter(struct rps_store *store, uint64_t id,
        const json_t *fields, struct rps_now now, struct rps_error *error);

/**
 * Take a table out of the store. Destroying it is the caller's, when the
 * state lock is given back. *index_out is where it stood: tables behind it
 * move up by one. NULL: there is none of this id.
 */
struct rps_table *rps_store_remove(
        struct rps_store *store, uint64_t id, size_t *index_out);

/** Drop every table. */
void rps_store_clear(struct rps_store *store);

#endif /* RPS_EMBEDDING_STORE_H */
