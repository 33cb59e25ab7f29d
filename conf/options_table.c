/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables and the names: flag, variable, JSON key of an option.
 */
#include "conf/options_table.h"

#include "base/text.h"

#include <ctype.h>
#include <string.h>

#define RPS_OPTION_ROW(scope, name, type, value, unit, allowed, text) \
    {scope, RPS_OPTION_##type, #name, value, unit, allowed, text,     \
            offsetof(struct rps_options, name)},
const struct rps_option_def rps_option_table[] = {RPS_OPTIONS(RPS_OPTION_ROW)};
#undef RPS_OPTION_ROW
const size_t rps_option_count =
        sizeof(rps_option_table) / sizeof(rps_option_table[0]);

#define ALL RPS_SCOPE_JOB
/* clang-format off */
const struct rps_flag_def rps_flag_table[] = {
    {ALL, "tf_config", "JSON|@FILE", "the cluster, instead of TF_CONFIG_FILE and TF_CONFIG"},
    {ALL, "ps_hosts", "HOST:PORT,...", "parameter servers; a host flag replaces the whole cluster of TF_CONFIG"},
    {ALL, "worker_hosts", "HOST:PORT,...", "workers"},
    {ALL, "chief_hosts", "HOST:PORT", "the chief; without one worker 0 is the chief"},
    {ALL, "evaluator_hosts", "HOST:PORT", "the evaluator"},
    {ALL, "job_name", "ROLE", "role of this process, instead of task.type"},
    {ALL, "task_index", "N|auto", "its index, instead of task.index; auto: the number at the end of the host name, else JOB_COMPLETION_INDEX, VC_TASK_INDEX, VK_TASK_INDEX or SLURM_PROCID"},
    {ALL, "num_ps", "N", "parameter servers of the job, where TF_CONFIG does not list all"},
    {ALL, "num_workers", "N", "workers of the job, where TF_CONFIG does not list all"},
    {ALL, "allow_unknown_roles", "", "ignore roles of the cluster that recps does not know"},
    {RPS_SCOPE_SERVER, "check_config", "", "print how TF_CONFIG is understood; exit 0, or 78 if it is refused"},
    {RPS_SCOPE_SERVER | RPS_SCOPE_TOOL, "json", "", "answer in JSON"},
    {ALL, "help", "", "print this text"},
    {ALL, "version", "", "print the version"},
};
/* clang-format on */
const size_t rps_flag_count =
        sizeof(rps_flag_table) / sizeof(rps_flag_table[0]);

const struct rps_program rps_program_table[] = {{RPS_SCOPE_SERVER, "recpsd"},
        {RPS_SCOPE_TRAIN, "recps-train"}, {RPS_SCOPE_TOOL, "recps"}};
const size_t rps_program_count =
        sizeof(rps_program_table) / sizeof(rps_program_table[0]);

#define NAMES_MAX 256u
_Static_assert(
        sizeof(rps_option_table) / sizeof(rps_option_table[0]) +
                        sizeof(rps_flag_table) / sizeof(rps_flag_table[0]) <=
                NAMES_MAX,
        "rps_option_meant holds every name");

const struct rps_option_def *
rps_option_find(const char *name)
{
    for (size_t i = 0; i < rps_option_count; i++) {
        if (strcmp(rps_option_table[i].name, name) == 0) {
            return &rps_option_table[i];
        }
    }
    return NULL;
}

const struct rps_flag_def *
rps_flag_find(const char *name)
{
    for (size_t i = 0; i < rps_flag_count; i++) {
        if (strcmp(rps_flag_table[i].name, name) == 0) {
            return &rps_flag_table[i];
        }
    }
    return NULL;
}

char *
rps_option_flag(const char *name, char out[RPS_OPTION_NAME_MAX])
{
    size_t i = 0;

    for (; name[i] != '\0' && i + 1 < RPS_OPTION_NAME_MAX; i++) {
        out[i] = '-';
        if (name[i] != '_') {
            out[i] = name[i];
        }
    }
    out[i] = '\0';
    return out;
}

char *
rps_option_variable(const char *name, char out[RPS_OPTION_NAME_MAX])
{
    static const char prefix[] = "RECPS_";
    size_t used = sizeof(prefix) - 1;

    memcpy(out, prefix, used);
    for (size_t i = 0; name[i] != '\0' && used + 1 < RPS_OPTION_NAME_MAX; i++) {
        out[used++] = (char)toupper((unsigned char)name[i]);
    }
    out[used] = '\0';
    return out;
}

const char *
rps_option_meant(const char *name, uint32_t scope, bool flags)
{
    const char *names[NAMES_MAX];
    size_t count = 0;

    for (size_t i = 0; i < rps_option_count; i++) {
        if ((rps_option_table[i].scope & scope) != 0) {
            names[count++] = rps_option_table[i].name;
        }
    }
    for (size_t i = 0; flags && i < rps_flag_count; i++) {
        if ((rps_flag_table[i].scope & scope) != 0) {
            names[count++] = rps_flag_table[i].name;
        }
    }
    return rps_nearest_name(name, names, count);
}

char *
rps_scope_str(uint32_t scope, char out[RPS_OPTION_NAME_MAX])
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < rps_program_count; i++) {
        if ((rps_program_table[i].scope & scope) != 0) {
            used += (size_t)snprintf(out + used, RPS_OPTION_NAME_MAX - used,
                    "%s%s", used > 0 ? ", " : "", rps_program_table[i].name);
        }
    }
    return out;
}
