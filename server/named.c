/* SPDX-License-Identifier: Apache-2.0 */
#include "server/named.h"

#include "base/hash.h"
#include "server/serving.h"

#include <inttypes.h>
#include <string.h>

rps_status
rps_named_table(struct rps_request *request, const json_t *object,
        struct rps_table **table_out)
{
    struct rps_service *service = request->service;
    const json_t *field = json_object_get(object, "table");
    const char *name = json_string_value(field);

    *table_out = NULL;
    if (name == NULL || name[0] == '\0' ||
            json_string_length(field) > RPS_NAME_BYTES_MAX) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "table must be a table's name, 1 to %u characters",
                RPS_NAME_BYTES_MAX);
    }
    *table_out = rps_store_find(service->store, rps_table_id(name));
    if (*table_out == NULL ||
            strcmp(rps_table_spec_of(*table_out)->name, name) != 0) {
        *table_out = NULL;
        if (service->serving != NULL) {
            return rps_serving_no_table(request, name);
        }
        return rps_fail(&request->error, RPS_E_NOT_FOUND,
                "there is no table %s at PS %" PRIu32, name,
                service->options.ps_index);
    }
    return RPS_OK;
}
