/* SPDX-License-Identifier: Apache-2.0 */
/* Which switch each host of a rank table hangs from, and each switch. */
#include "conf/ranktable.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

/* A list of the topology while it is read. */
struct list {
    const char *path;
    const char *field; /* "switches" */
    json_t *index;     /* name -> place */
};

/* The place that `name` has in the list, or RPS_RING_NONE. */
static uint32_t
place_of(const struct list *list, const char *name)
{
    const json_t *place = json_object_get(list->index, name);

    return place != NULL ? (uint32_t)json_integer_value(place) : RPS_RING_NONE;
}

/* Entry `at` has a name that no one before has. */
static rps_status
index_entry(struct list *list, size_t at, const json_t *entry,
        const char *field, struct rps_error *error)
{
    const char *name = rps_ranktable_name(entry, field);

    if (name == NULL) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: %s[%zu].%s is missing or no text without blanks: give "
                "it a name",
                list->path, list->field, at, field);
    }
    if (json_object_get(list->index, name) != NULL) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: %s[%zu].%s \"%s\" is there twice: list it once",
                list->path, list->field, at, field, name);
    }
    return json_object_set_new(
                   list->index, name, json_integer((json_int_t)at)) == 0
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOMEM, "no memory");
}

static rps_status
index_all(struct list *list, const json_t *entries, const char *field,
        struct rps_error *error)
{
    rps_status status = RPS_OK;
    const json_t *entry;
    size_t i;

    if (!json_is_array(entries) || json_array_size(entries) == 0) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: %s must be a list with at least one entry", list->path,
                list->field);
    }
    list->index = json_object();
    json_array_foreach(entries, i, entry)
    {
        status = index_entry(list, i, entry, field, error);
        if (status != RPS_OK) {
            break;
        }
    }
    return status;
}

/* The switch that an entry's field names. */
static rps_status
find_switch(const struct list *switches, const char *where, size_t at,
        const json_t *entry, const char *field, uint32_t *out,
        struct rps_error *error)
{
    const char *name = rps_ranktable_name(entry, field);

    *out = name != NULL ? place_of(switches, name) : RPS_RING_NONE;
    if (name == NULL) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: %s[%zu].%s must be the name of a switch", switches->path,
                where, at, field);
    }
    if (*out == RPS_RING_NONE) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: %s[%zu].%s names \"%s\", which is not in switches: add "
                "it there, or correct the name",
                switches->path, where, at, field, name);
    }
    return RPS_OK;
}

/* Is `a_switch` above itself? */
static bool
in_cycle(const struct rps_ring *ring, uint32_t a_switch)
{
    uint32_t at = ring->parent_of[a_switch];

    for (uint32_t n = 0; n < ring->switch_count && at != a_switch; n++) {
        if (at == RPS_RING_NONE) {
            return false;
        }
        at = ring->parent_of[at];
    }
    return at == a_switch;
}

static rps_status
check_levels(const struct rps_ranktable *table, const char *path,
        struct rps_error *error)
{
    const struct rps_ring *ring = &table->ring;
    uint32_t deep = RPS_RING_NONE;

    for (uint32_t s = 0; s < ring->switch_count; s++) {
        if (rps_ring_level(ring, s) != 0) {
            continue;
        }
        /* of those below a cycle the cycle is the cause */
        if (in_cycle(ring, s)) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "%s: switches[%" PRIu32 "], \"%s\", is above itself by "
                    "its parents: a cycle; the topmost switch has no parent",
                    path, s, table->switch_names[s]);
        }
        deep = deep == RPS_RING_NONE ? s : deep;
    }
    return deep == RPS_RING_NONE
                   ? RPS_OK
                   : rps_fail(error, RPS_E_CORRUPT,
                             "%s: switches[%" PRIu32 "], \"%s\", is more than "
                             "%u levels deep: leave levels out",
                             path, deep, table->switch_names[deep],
                             RPS_RING_LEVELS_MAX);
}

static rps_status
take_switches(struct rps_ranktable *table, const struct list *list,
        const json_t *entries, struct rps_error *error)
{
    const size_t count = json_array_size(entries);
    struct rps_ring *ring = &table->ring;
    rps_status status = RPS_OK;
    const json_t *entry;
    size_t i;

    table->switch_names = calloc(count, sizeof(*table->switch_names));
    ring->parent_of = calloc(count, sizeof(*ring->parent_of));
    if (table->switch_names == NULL || ring->parent_of == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the topology");
    }
    ring->switch_count = (uint32_t)count;
    json_array_foreach(entries, i, entry)
    {
        table->switch_names[i] = rps_ranktable_name(entry, "name");
        ring->parent_of[i] = RPS_RING_NONE;
        if (json_object_get(entry, "parent") != NULL) {
            status = find_switch(list, list->field, i, entry, "parent",
                    &ring->parent_of[i], error);
        }
        if (status != RPS_OK) {
            return status;
        }
    }
    return check_levels(table, list->path, error);
}

/* Every host of the rank table stands in the topology. */
static rps_status
take_hosts(struct rps_ranktable *table, const struct list *hosts,
        const struct list *switches, const json_t *entries,
        struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (uint32_t h = 0; status == RPS_OK && h < table->ring.host_count; h++) {
        const uint32_t place = place_of(hosts, table->host_names[h]);

        if (place == RPS_RING_NONE) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "%s: hosts has no server_id \"%s\", which is "
                    "server_list[%" PRIu32 "] of the rank table: add it, with "
                    "the switch that it hangs from",
                    hosts->path, table->host_names[h], h);
        }
        status = find_switch(switches, "hosts", place,
                json_array_get(entries, place), "switch",
                &table->ring.switch_of[h], error);
    }
    return status;
}

rps_status
rps_ranktable_read_topology(
        struct rps_ranktable *table, const char *path, struct rps_error *error)
{
    struct list switches = {.path = path, .field = "switches"};
    struct list hosts = {.path = path, .field = "hosts"};
    rps_status status = rps_ranktable_load(path, &table->topology, error);
    const json_t *switch_list = json_object_get(table->topology, "switches");
    const json_t *host_list = json_object_get(table->topology, "hosts");

    if (status == RPS_OK) {
        status = index_all(&switches, switch_list, "name", error);
    }
    if (status == RPS_OK) {
        status = take_switches(table, &switches, switch_list, error);
    }
    if (status == RPS_OK) {
        status = index_all(&hosts, host_list, "server_id", error);
    }
    if (status == RPS_OK) {
        status = take_hosts(table, &hosts, &switches, host_list, error);
    }
    json_decref(switches.index);
    json_decref(hosts.index);
    return status;
}
