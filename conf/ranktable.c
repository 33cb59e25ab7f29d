/* SPDX-License-Identifier: Apache-2.0 */
#include "conf/ranktable.h"

#include "base/file.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES_MAX 255u

rps_status
rps_ranktable_load(const char *path, json_t **root_out, struct rps_error *error)
{
    json_error_t where;
    size_t length = 0;
    char *bytes = NULL;
    rps_status status = rps_file_read(
            path, RPS_RANKTABLE_BYTES_MAX, &bytes, &length, error);

    *root_out = NULL;
    if (status != RPS_OK) {
        return status;
    }
    *root_out = json_loadb(bytes, length, JSON_REJECT_DUPLICATES, &where);
    free(bytes);
    if (*root_out == NULL) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: line %d, column %d is no JSON (%s): correct it there",
                path, where.line, where.column, where.text);
    }
    if (!json_is_object(*root_out)) {
        json_decref(*root_out);
        *root_out = NULL;
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: must be a JSON object, {\"...\": ...}", path);
    }
    return RPS_OK;
}

const char *
rps_ranktable_name(const json_t *object, const char *field)
{
    const char *text = json_string_value(json_object_get(object, field));
    const size_t length = text != NULL ? strlen(text) : 0;

    if (length == 0 || length > NAME_BYTES_MAX) {
        return NULL;
    }
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] <= ' ' || text[i] == 0x7f) {
            return NULL;
        }
    }
    return text;
}

/* Numbers are texts in a rank table; a bare one is understood, too. */
static bool
read_number(const json_t *value, uint64_t *out)
{
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *out = (uint64_t)json_integer_value(value);
        return true;
    }
    return json_is_string(value) &&
           rps_parse_u64(json_string_value(value), out);
}

static rps_status
check_head(const json_t *root, const char *path, struct rps_error *error)
{
    const char *status = json_string_value(json_object_get(root, "status"));
    const char *version = json_string_value(json_object_get(root, "version"));

    if (json_object_get(root, "group_list") != NULL) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: group_list belongs to the older form without a version; "
                "write the table in version 1.0, with server_list",
                path);
    }
    if (version == NULL || strcmp(version, "1.0") != 0) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: version must be \"1.0\", the form with server_list", path);
    }
    if (status == NULL || strcmp(status, "completed") != 0) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: status must be \"completed\"; with another one the table "
                "is still being made: wait for it",
                path);
    }
    return RPS_OK;
}

/* server_count, where it is given, and the ranks of all servers. */
static rps_status
check_servers(struct rps_ranktable *table, const char *path, const json_t *list,
        struct rps_error *error)
{
    const json_t *said = json_object_get(table->root, "server_count");
    const json_t *server;
    uint64_t count = 0;
    size_t ranks = 0, i;

    if (!json_is_array(list) || json_array_size(list) == 0) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: server_list must be a list of at least one server", path);
    }
    if (said != NULL &&
            (!read_number(said, &count) || count != json_array_size(list))) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: server_count is not the %zu servers of server_list: "
                "correct it, or add the servers that are missing",
                path, json_array_size(list));
    }
    json_array_foreach(list, i, server)
    {
        const json_t *devices = json_object_get(server, "device");

        if (!json_is_array(devices) || json_array_size(devices) == 0) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "%s: server_list[%zu].device must be a list of at least "
                    "one device; leave a server without any out",
                    path, i);
        }
        ranks += json_array_size(devices);
    }
    table->ring.host_count = (uint32_t)json_array_size(list);
    table->ring.rank_count = (uint32_t)ranks; /* of a file of 1 MiB */
    return RPS_OK;
}

static rps_status
reserve(struct rps_ranktable *table, struct rps_error *error)
{
    struct rps_ring *ring = &table->ring;

    table->host_names = calloc(ring->host_count, sizeof(*table->host_names));
    table->device_ids = calloc(ring->rank_count, sizeof(*table->device_ids));
    table->devices = calloc(ring->rank_count, sizeof(*table->devices));
    ring->host_of = calloc(ring->rank_count, sizeof(*ring->host_of));
    ring->switch_of = calloc(ring->host_count, sizeof(*ring->switch_of));
    if (table->host_names == NULL || table->device_ids == NULL ||
            table->devices == NULL || ring->host_of == NULL ||
            ring->switch_of == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the rank table");
    }
    for (uint32_t host = 0; host < ring->host_count; host++) {
        ring->switch_of[host] = RPS_RING_NONE;
    }
    return RPS_OK;
}

/* Device `at` of a host takes its rank's place. */
static rps_status
take_device(struct rps_ranktable *table, const char *path, uint32_t host,
        size_t at, json_t *device, struct rps_error *error)
{
    const uint32_t count = table->ring.rank_count;
    const char *id = rps_ranktable_name(device, "device_id");
    uint64_t rank = 0;

    if (id == NULL) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: server_list[%" PRIu32 "].device[%zu].device_id is "
                "missing or no text: give the device's number, such as \"0\"",
                path, host, at);
    }
    if (!read_number(json_object_get(device, "rank_id"), &rank) ||
            rank >= count) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: server_list[%" PRIu32 "].device[%zu].rank_id must be a "
                "number from \"0\" to \"%" PRIu32 "\": the table has %" PRIu32
                " devices, and each has one rank",
                path, host, at, count - 1, count);
    }
    if (table->devices[rank] != NULL) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: server_list[%" PRIu32 "].device[%zu].rank_id \"%" PRIu64
                "\" is also that of server_list[%" PRIu32
                "]: give each device a rank of its own",
                path, host, at, rank, table->ring.host_of[rank]);
    }
    table->devices[rank] = device;
    table->device_ids[rank] = id;
    table->ring.host_of[rank] = host;
    return RPS_OK;
}

/* `seen` gets what this function has to know again: a name once only. */
static rps_status
take_once(json_t *seen, const char *name, struct rps_error *error, bool *again)
{
    *again = json_object_get(seen, name) != NULL;
    return *again || json_object_set_new(seen, name, json_true()) == 0
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOMEM, "no memory for the table");
}

static rps_status
take_devices(struct rps_ranktable *table, const char *path, uint32_t host,
        const json_t *server, struct rps_error *error)
{
    json_t *seen = json_object();
    rps_status status = RPS_OK;
    json_t *device;
    size_t i;

    json_array_foreach(json_object_get(server, "device"), i, device)
    {
        const char *id = rps_ranktable_name(device, "device_id");
        bool again = false;

        if (id != NULL) {
            status = take_once(seen, id, error, &again);
        }
        if (status == RPS_OK && again) {
            status = rps_fail(error, RPS_E_CORRUPT,
                    "%s: server_list[%" PRIu32 "].device[%zu].device_id "
                    "\"%s\" is there twice: give each device its own number",
                    path, host, i, id);
        }
        if (status == RPS_OK) {
            status = take_device(table, path, host, i, device, error);
        }
        if (status != RPS_OK) {
            break;
        }
    }
    json_decref(seen);
    return status;
}

static rps_status
take_servers(struct rps_ranktable *table, const char *path, const json_t *list,
        struct rps_error *error)
{
    json_t *seen = json_object();
    rps_status status = RPS_OK;
    json_t *server;
    size_t i;

    json_array_foreach(list, i, server)
    {
        const char *name = rps_ranktable_name(server, "server_id");
        bool again = false;

        if (name == NULL) {
            status = rps_fail(error, RPS_E_CORRUPT,
                    "%s: server_list[%zu].server_id is missing or no text "
                    "without blanks: give the host's address or name",
                    path, i);
        } else {
            status = take_once(seen, name, error, &again);
        }
        if (status == RPS_OK && again) {
            status = rps_fail(error, RPS_E_CORRUPT,
                    "%s: server_list[%zu].server_id \"%s\" is there twice: "
                    "list all devices of a host in one entry",
                    path, i, name);
        }
        if (status == RPS_OK) {
            table->host_names[i] = name;
            status = take_devices(table, path, (uint32_t)i, server, error);
        }
        if (status != RPS_OK) {
            break;
        }
    }
    json_decref(seen);
    return status;
}

rps_status
rps_ranktable_read(
        struct rps_ranktable *table, const char *path, struct rps_error *error)
{
    const json_t *list;
    rps_status status = rps_ranktable_load(path, &table->root, error);

    if (status == RPS_OK) {
        status = check_head(table->root, path, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    list = json_object_get(table->root, "server_list");
    status = check_servers(table, path, list, error);
    if (status == RPS_OK) {
        status = reserve(table, error);
    }
    return status == RPS_OK ? take_servers(table, path, list, error) : status;
}

void
rps_ranktable_finish(struct rps_ranktable *table)
{
    json_decref(table->root);
    json_decref(table->topology);
    free(table->host_names);
    free(table->device_ids);
    free(table->devices);
    free(table->switch_names);
    free(table->ring.host_of);
    free(table->ring.switch_of);
    free(table->ring.parent_of);
    memset(table, 0, sizeof(*table));
}
