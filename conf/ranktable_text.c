/* SPDX-License-Identifier: Apache-2.0 */
/* A rank table, written with another order of ranks. */
#include "base/text.h"
#include "conf/ranktable.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* rank_id becomes the place, in the devices themselves. */
static bool
number_devices(struct rps_ranktable *table, const uint32_t *order)
{
    for (uint32_t place = 0; place < table->ring.rank_count; place++) {
        char digits[16];

        (void)snprintf(digits, sizeof(digits), "%" PRIu32, place);
        if (json_object_set_new(table->devices[order[place]], "rank_id",
                    json_string(digits)) != 0) {
            return false;
        }
    }
    return true;
}

/* Every host's devices in the order of their new ranks, hosts by their
 * first. `lists`: [host_count], a new list of devices each. */
static bool
fill_lists(const struct rps_ranktable *table, const uint32_t *order,
        json_t *const *lists, json_t *servers_out)
{
    const json_t *servers = json_object_get(table->root, "server_list");

    for (uint32_t place = 0; place < table->ring.rank_count; place++) {
        const uint32_t rank = order[place];
        const uint32_t host = table->ring.host_of[rank];

        if (json_array_size(lists[host]) == 0 &&
                json_array_append(servers_out, json_array_get(servers, host)) !=
                        0) {
            return false;
        }
        if (json_array_append(lists[host], table->devices[rank]) != 0) {
            return false;
        }
    }
    return true;
}

static bool
set_lists(struct rps_ranktable *table, json_t *const *lists)
{
    const json_t *servers = json_object_get(table->root, "server_list");

    for (uint32_t host = 0; host < table->ring.host_count; host++) {
        if (json_object_set(json_array_get(servers, host), "device",
                    lists[host]) != 0) {
            return false;
        }
    }
    return true;
}

static bool
reorder(struct rps_ranktable *table, const uint32_t *order)
{
    const uint32_t hosts = table->ring.host_count;
    json_t **lists = calloc(hosts, sizeof(*lists));
    json_t *servers = json_array();
    bool ok = lists != NULL && servers != NULL;

    for (uint32_t host = 0; ok && host < hosts; host++) {
        lists[host] = json_array();
        ok = lists[host] != NULL;
    }
    ok = ok && number_devices(table, order) &&
         fill_lists(table, order, lists, servers) && set_lists(table, lists) &&
         json_object_set(table->root, "server_list", servers) == 0;
    for (uint32_t host = 0; lists != NULL && host < hosts; host++) {
        json_decref(lists[host]);
    }
    free(lists);
    json_decref(servers);
    return ok;
}

char *
rps_ranktable_text(struct rps_ranktable *table, const uint32_t *order)
{
    struct rps_text text = {.bytes = NULL};
    char *json = reorder(table, order) ? json_dumps(table->root, JSON_INDENT(2))
                                       : NULL;

    if (json == NULL) {
        return NULL;
    }
    rps_text_add_bytes(&text, json, strlen(json));
    rps_text_add_bytes(&text, "\n", 1);
    free(json);
    if (text.failed) {
        rps_text_finish(&text);
        return NULL;
    }
    return text.bytes;
}
