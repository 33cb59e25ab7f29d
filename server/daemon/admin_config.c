/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /configz: who this server thinks it is, and every option with where its
 * value came from.
 */
#include "base/json.h"
#include "proto/frame.h"
#include "server/daemon/admin_impl.h"
#include "server/daemon/version.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static json_t *
addresses(const rps_member *members, uint32_t count)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < count; i++) {
        const char *address = members[i].address;

        json_array_append_new(
                list, address != NULL ? json_string(address) : json_null());
    }
    return list;
}

static json_t *
describe_cluster(const rps_cluster *cluster)
{
    char fingerprint[24];

    snprintf(fingerprint, sizeof(fingerprint), "%016" PRIx64,
            cluster->fingerprint);
    return json_pack("{s:s, s:I, s:I, s:s?, s:o, s:o, s:s?, s:s?, s:s}", "role",
            rps_role_str(cluster->role), "index", (json_int_t)cluster->index,
            "n_ps", (json_int_t)cluster->ps_count, "own_address",
            cluster->own_address, "ps",
            addresses(cluster->ps, cluster->ps_count), "worker",
            addresses(cluster->workers, cluster->workers_listed), "chief",
            cluster->chief_address, "evaluator", cluster->evaluator_address,
            "fingerprint", fingerprint);
}

void
rps_admin_configz(
        const struct rps_admin_request *request, struct rps_http_answer *answer)
{
    const struct rps_view *view = request->view;
    const bool bound = rps_view_stage(view) != RPS_STAGE_STARTING;
    char *text;

    answer->type = "application/json";
    text = rps_json_text(json_pack("{s:s, s:s, s:i, s:s?, s:o, s:o}", "version",
            RPS_VERSION, "commit", RPS_COMMIT, "wire_version",
            (int)RPS_WIRE_VERSION, "listening", bound ? view->listening : NULL,
            "cluster", describe_cluster(&view->options->cluster), "options",
            rps_options_json(view->options, RPS_SCOPE_SERVER)));
    if (text == NULL) {
        answer->code = 500;
        rps_text_add(&answer->body, "{\"error\": \"no memory\"}\n");
        return;
    }
    rps_text_add(&answer->body, "%s\n", text);
    free(text);
}
