/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/ring_order.h"

#include "base/file.h"
#include "base/json.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>

#define FILE_BYTES_MAX ((size_t)16 << 20)
#define NO_RANK        UINT32_MAX

/* One {"rank": place, "was": rank}; each place and each rank once. */
static rps_status
take_entry(const json_t *entry, uint32_t count, uint32_t *order, bool *seen,
        struct rps_error *error)
{
    uint64_t place = 0;
    uint64_t rank = 0;

    if (!rps_json_count(json_object_get(entry, "rank"), &place) ||
            !rps_json_count(json_object_get(entry, "was"), &rank)) {
        return rps_fail(error, RPS_E_INVAL,
                "an entry of \"order\" has not the numbers \"rank\" and "
                "\"was\"");
    }
    if (place >= count || rank >= count || order[place] != NO_RANK ||
            seen[rank]) {
        return rps_fail(error, RPS_E_INVAL,
                "\"rank\" %llu, \"was\" %llu: each must be one of 0 to %u, "
                "once",
                (unsigned long long)place, (unsigned long long)rank, count - 1);
    }
    order[place] = (uint32_t)rank;
    seen[rank] = true;
    return RPS_OK;
}

static rps_status
take_order(const json_t *root, uint32_t count, uint32_t *order,
        struct rps_error *error)
{
    const json_t *list = json_object_get(root, "order");
    const json_t *entry;
    bool *seen = NULL;
    rps_status status = RPS_OK;
    size_t i;

    if (!json_is_array(list)) {
        return rps_fail(error, RPS_E_INVAL,
                "it has no list \"order\": give what `recps ranktable plan "
                "--json` prints");
    }
    if (json_array_size(list) != count) {
        return rps_fail(error, RPS_E_INVAL,
                "it orders %zu ranks, the job has %u replicas",
                json_array_size(list), count);
    }
    seen = calloc(count, sizeof(*seen));
    if (seen == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the ranks");
    }
    json_array_foreach(list, i, entry)
    {
        if (status == RPS_OK) {
            status = take_entry(entry, count, order, seen, error);
        }
    }
    free(seen);
    return status;
}

static rps_status
parse(const char *text, size_t length, uint32_t count, uint32_t *order,
        struct rps_error *error)
{
    json_error_t where;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &where);
    rps_status status;

    if (root == NULL) {
        return rps_fail(
                error, RPS_E_INVAL, "line %d: %s", where.line, where.text);
    }
    status = take_order(root, count, order, error);
    json_decref(root);
    return status;
}

rps_status
rps_ring_order_read(const char *path, uint32_t count, uint32_t **order_out,
        struct rps_error *error)
{
    uint32_t *order = calloc(count, sizeof(*order));
    struct rps_error cause;
    char *text = NULL;
    size_t length = 0;
    rps_status status;

    *order_out = NULL;
    if (order == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the ranks");
    }
    for (uint32_t i = 0; i < count; i++) {
        order[i] = NO_RANK;
    }
    status = rps_file_read(path, FILE_BYTES_MAX, &text, &length, &cause);
    if (status != RPS_OK) {
        free(order);
        return rps_fail(error, status, "--ring-order: %s", cause.text);
    }
    status = parse(text, length, count, order, &cause);
    free(text);
    if (status != RPS_OK) {
        free(order);
        return rps_fail(error, status, "--ring-order=%s: %s", path, cause.text);
    }
    *order_out = order;
    return RPS_OK;
}
