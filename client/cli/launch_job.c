/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What PS 0 says of the job, for the launcher that lost a replica.
 */
#include "client/cli/launch.h"
#include "client/cli/tool.h"

#include <stdlib.h>
#include <string.h>

#define ASK_MS 1000u /* the launcher does nothing else meanwhile */

static json_t *
stat_of_ps_0(const struct rps_launch_plan *plan, const rps_cluster *cluster)
{
    struct rps_options options = *plan->options;
    const struct rps_tool_call call = {.options = &options};
    rps_client_options settings;
    rps_client *client = NULL;
    json_t *stat = NULL;
    char *text = NULL;

    options.cluster = *cluster;
    if (rps_tool_settings(&call, "launch", &settings) != RPS_TOOL_OK) {
        return NULL;
    }
    settings.connect_timeout_ms = ASK_MS;
    settings.reconnect_timeout_ms = ASK_MS;
    settings.request_timeout_ms = ASK_MS;
    settings.report = NULL;
    if (rps_client_open(&client, &settings) == RPS_OK &&
            rps_stat(client, 0, &text) == RPS_OK) {
        stat = json_loads(text, 0, NULL);
    }
    free(text);
    rps_client_close(client);
    return stat;
}

static enum rps_launch_job
state_of(const json_t *job, char **why_out)
{
    const char *why = json_string_value(json_object_get(job, "stopped"));

    if (!json_is_object(job)) {
        return RPS_LAUNCH_JOB_UNKNOWN;
    }
    if (why != NULL) {
        *why_out = strdup(why);
        return RPS_LAUNCH_JOB_STOPPED;
    }
    return json_is_true(json_object_get(job, "started"))
                   ? RPS_LAUNCH_JOB_RUNS
                   : RPS_LAUNCH_JOB_NOT_STARTED;
}

enum rps_launch_job
rps_launch_job_ask(const struct rps_launch_plan *plan, char **why_out)
{
    enum rps_launch_job state = RPS_LAUNCH_JOB_UNKNOWN;
    rps_cluster_options place;
    rps_cluster cluster = {.role = RPS_ROLE_NONE};
    json_t *stat;

    *why_out = NULL;
    if (plan->ps_hosts == NULL) {
        return state;
    }
    rps_cluster_options_init(&place);
    place.tf_config = NULL;
    place.tf_config_env = NULL;
    place.tf_config_file = NULL;
    place.ps_hosts = plan->ps_hosts;
    place.task_optional = 1;
    if (rps_cluster_resolve(&cluster, &place, NULL) != RPS_OK) {
        return state;
    }
    stat = stat_of_ps_0(plan, &cluster);
    state = state_of(json_object_get(stat, "job"), why_out);
    json_decref(stat);
    rps_cluster_finish(&cluster);
    return state;
}
