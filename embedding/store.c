/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the tables of one PS: in the order in which they were made, and
 * sorted by id for finding. Locks nothing: the service's state lock does.
 */
#include "embedding/store.h"

#include "base/hash.h"
#include "base/spec.h"
#include "embedding/save_buffer.h"
#include "embedding/store_impl.h"
#include "embedding/table_impl.h"
#include "embedding/tier.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    uint64_t id;
    struct rps_table *table;
    bool policy_open; /* restored, and not yet asked for */
};

struct rps_store {
    uint64_t job_seed;
    struct rps_budget *budget;    /* of the server; NULL: none */
    struct rps_region_file *tier; /* of the server; NULL: no disk tier */
    struct rps_budget *disk;      /* what may be there */
    struct rps_save_buffer *buffer;
    struct rps_cut *cut;
    struct rps_table **tables; /* [count], as made */
    struct entry *entries;     /* [count], by id */
    size_t count;
    size_t room; /* of both arrays */
};

rps_status
rps_store_create(struct rps_store **store_out, uint64_t job_seed)
{
    struct rps_store *store = calloc(1, sizeof(*store));

    *store_out = store;
    if (store == NULL) {
        return RPS_E_NOMEM;
    }
    store->job_seed = job_seed;
    store->buffer = rps_save_buffer_create();
    if (store->buffer == NULL) {
        free(store);
        *store_out = NULL;
        return RPS_E_NOMEM;
    }
    return RPS_OK;
}

struct rps_save_buffer *
rps_store_buffer(struct rps_store *store)
{
    return store->buffer;
}

struct rps_cut **
rps_store_cut(struct rps_store *store)
{
    return &store->cut;
}

void
rps_store_set_budget(struct rps_store *store, struct rps_budget *budget)
{
    assert(store->count == 0);
    store->budget = budget;
    rps_save_buffer_set_budget(store->buffer, budget);
}

void
rps_store_set_tier(struct rps_store *store, struct rps_region_file *file,
        struct rps_budget *disk)
{
    assert(store->count == 0);
    store->tier = file;
    store->disk = disk;
}

void
rps_store_clear(struct rps_store *store)
{
    for (size_t i = 0; i < store->count; i++) {
        rps_table_destroy(store->tables[i]);
    }
    store->count = 0;
}

void
rps_store_destroy(struct rps_store *store)
{
    if (store == NULL) {
        return;
    }
    rps_store_clear(store);
    rps_save_buffer_destroy(store->buffer);
    free(store->tables);
    free(store->entries);
    free(store);
}

size_t
rps_store_count(const struct rps_store *store)
{
    return store->count;
}

uint64_t
rps_store_job_seed(const struct rps_store *store)
{
    return store->job_seed;
}

struct rps_table *
rps_store_at(const struct rps_store *store, size_t index)
{
    assert(index < store->count);
    return store->tables[index];
}

/* The first entry whose id is not less: where the id is, or belongs. */
static size_t
lower_bound(const struct rps_store *store, uint64_t id)
{
    size_t low = 0;
    size_t high = store->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (store->entries[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct entry *
find_entry(const struct rps_store *store, uint64_t id)
{
    const size_t at = lower_bound(store, id);

    return at < store->count && store->entries[at].id == id
                   ? &store->entries[at]
                   : NULL;
}

struct rps_table *
rps_store_find(const struct rps_store *store, uint64_t id)
{
    const struct entry *entry = find_entry(store, id);

    return entry == NULL ? NULL : entry->table;
}

static rps_status
make_room(struct rps_store *store)
{
    const size_t room = store->room == 0 ? 8 : store->room * 2;
    struct rps_table **tables = NULL;
    struct entry *entries = NULL;

    if (store->count < store->room) {
        return RPS_OK;
    }
    tables = realloc(store->tables, room * sizeof(*tables));
    if (tables == NULL) {
        return RPS_E_NOMEM;
    }
    store->tables = tables;
    entries = realloc(store->entries, room * sizeof(*entries));
    if (entries == NULL) {
        return RPS_E_NOMEM;
    }
    store->entries = entries;
    store->room = room;
    return RPS_OK;
}

/* Takes the table; room was made and the id is new. */
static void
add(struct rps_store *store, struct rps_table *table, bool policy_open)
{
    const uint64_t id = rps_table_id_of(table);
    const size_t at = lower_bound(store, id);

    memmove(store->entries + at + 1, store->entries + at,
            (store->count - at) * sizeof(*store->entries));
    store->entries[at] = (struct entry){
            .id = id, .table = table, .policy_open = policy_open};
    table->buffer = store->buffer;
    store->tables[store->count] = table;
    store->count++;
}

/* "learning_rate is 0.02 here and 0.01 in the request" */
static rps_status
fail_differs(const rps_table_spec *here, const rps_table_spec *asked,
        const char *field, const char *advice, struct rps_error *error)
{
    json_t *ours = rps_spec_to_value(here);
    json_t *theirs = rps_spec_to_value(asked);
    char *our_value = json_dumps(json_object_get(ours, field),
            JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    char *their_value = json_dumps(json_object_get(theirs, field),
            JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));

    rps_fail(error, RPS_E_MISMATCH,
            "table %s: %s is %s here and %s in the "
            "request: %s",
            here->name, field, our_value == NULL ? "another" : our_value,
            their_value == NULL ? "another" : their_value, advice);
    free(our_value);
    free(their_value);
    json_decref(ours);
    json_decref(theirs);
    return RPS_E_MISMATCH;
}

/* The same table asked for again. */
static rps_status
reopen(struct entry *entry, const rps_table_spec *spec, struct rps_error *error)
{
    const rps_table_spec *here = rps_table_spec_of(entry->table);
    const char *field = NULL;

    if (strcmp(here->name, spec->name) != 0) {
        return rps_fail(error, RPS_E_MISMATCH,
                "table %s: its id is also that of table %s: rename one of "
                "them",
                spec->name, here->name);
    }
    field = rps_spec_identity_differs(here, spec);
    if (field != NULL) {
        return fail_differs(here, spec, field,
                "it is part of what the table is; use the same value or "
                "another name",
                error);
    }
    if (entry->policy_open) {
        const rps_status status =
                rps_table_set_policy(entry->table, spec, error);
        entry->policy_open = status != RPS_OK;
        return status;
    }
    field = rps_spec_policy_differs(here, spec);
    if (field != NULL) {
        return fail_differs(here, spec, field,
                "use the same value, or change it with ALTER_TABLE (recps "
                "alter)",
                error);
    }
    return RPS_OK;
}

static rps_status
check_spec(const rps_table_spec *spec, struct rps_error *error)
{
    char why[RPS_ERROR_BYTES] = "";
    const rps_status status = rps_table_spec_check(spec, why, sizeof(why));

    return status == RPS_OK ? RPS_OK : rps_fail(error, status, "%s", why);
}

rps_status
rps_store_open_table(struct rps_store *store, const rps_table_spec *spec,
        struct rps_table **table_out, struct rps_error *error)
{
    struct entry *entry = NULL;
    rps_status status = check_spec(spec, error);

    *table_out = NULL;
    if (status != RPS_OK) {
        return status;
    }
    entry = find_entry(store, rps_table_id(spec->name));
    if (entry != NULL) {
        status = reopen(entry, spec, error);
        *table_out = status == RPS_OK ? entry->table : NULL;
        return status;
    }
    status = make_room(store);
    if (status != RPS_OK) {
        return rps_fail(
                error, status, "table %s: no memory to add it", spec->name);
    }
    status = rps_table_create(table_out, spec, store->job_seed, error);
    if (status == RPS_OK && store->budget != NULL) {
        status = rps_table_enter_budget(*table_out, store->budget, error);
    }
    if (status == RPS_OK && store->tier != NULL &&
            rps_tier_enter(*table_out, store->tier, store->disk) != RPS_OK) {
        status = rps_fail(error, RPS_E_NOMEM, "table %s: no memory to add it",
                spec->name);
    }
    if (status == RPS_OK) {
        add(store, *table_out, false);
    } else {
        rps_table_destroy(*table_out);
        *table_out = NULL;
    }
    return status;
}

/* Without a tier the limit of the server is one for new rows only. */
rps_status
rps_store_begin_restored(struct rps_store *store, struct rps_table *table)
{
    if (store->tier == NULL || rps_table_spec_of(table)->dense_elements != 0) {
        return RPS_OK;
    }
    if (store->budget != NULL) {
        rps_table_join_budget(table, store->budget);
    }
    return rps_tier_enter(table, store->tier, store->disk);
}

rps_status
rps_store_add_restored(struct rps_store *store, struct rps_table *table)
{
    rps_status status = RPS_OK;

    if (find_entry(store, rps_table_id_of(table)) != NULL) {
        return RPS_E_MISMATCH;
    }
    status = make_room(store);
    if (status == RPS_OK) {
        if (store->budget != NULL && !table->tiered) {
            rps_table_join_budget(table, store->budget);
        }
        add(store, table, true);
    }
    return status;
}

rps_status
rps_store_alter(struct rps_store *store, uint64_t id, const json_t *fields,
        struct rps_now now, struct rps_error *error)
{
    struct rps_table *table = rps_store_find(store, id);
    rps_table_spec spec;
    rps_status status = RPS_OK;

    assert(table != NULL);
    status = rps_spec_alter(rps_table_spec_of(table), fields, &spec, error);
    return status == RPS_OK ? rps_table_alter(table, &spec, now, error)
                            : status;
}

struct rps_table *
rps_store_remove(struct rps_store *store, uint64_t id, size_t *index_out)
{
    const size_t at = lower_bound(store, id);
    struct rps_table *table = rps_store_find(store, id);
    size_t index = 0;

    if (table == NULL) {
        return NULL;
    }
    while (store->tables[index] != table) {
        index++;
    }
    store->count--;
    memmove(store->entries + at, store->entries + at + 1,
            (store->count - at) * sizeof(*store->entries));
    memmove(store->tables + index, store->tables + index + 1,
            (store->count - index) * sizeof(struct rps_table *));
    *index_out = index;
    return table;
}
