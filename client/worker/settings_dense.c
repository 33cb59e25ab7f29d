/* SPDX-License-Identifier: Apache-2.0 */
/* --dense allreduce, and what does not go with it. */
#include "client/worker/settings.h"

#include <string.h>

/* Options of a group that there is none to take. */
static rps_status
check_not_given(const struct rps_options *options, struct rps_error *error)
{
    static const struct {
        const char *name, *flag;
    } group[] = {
            {"allreduce", "allreduce"},
            {"allreduce_bucket", "allreduce-bucket"},
            {"ring_order", "ring-order"},
    };

    for (size_t i = 0; i < sizeof(group) / sizeof(group[0]); i++) {
        if (rps_option_given(options, group[i].name)) {
            return rps_fail(error, RPS_E_INVAL,
                    "--%s goes with --dense allreduce only; here dense "
                    "variables are at the servers (--dense ps)",
                    group[i].flag);
        }
    }
    return RPS_OK;
}

/* Its ranks take every step together, or hang. */
static rps_status
check_terms(const struct rps_settings *settings, struct rps_error *error)
{
    const rps_terms *terms = &settings->terms;

    if (terms->mode != RPS_MODE_SYNC) {
        return rps_fail(error, RPS_E_INVAL,
                "--dense allreduce does not go with --mode=%s: all ranks take "
                "each step together; use --mode=sync, or --dense=ps",
                settings->options->mode);
    }
    if (terms->backup_workers > 0) {
        return rps_fail(error, RPS_E_INVAL,
                "--dense allreduce does not go with --backup-workers=%u: no "
                "rank can be left out of a sum; use --dense=ps",
                terms->backup_workers);
    }
    if (terms->on_lost != RPS_ON_LOST_STOP) {
        return rps_fail(error, RPS_E_INVAL,
                "--dense allreduce does not go with --on-lost=%s: a rank that "
                "is lost ends all of them; use --on-lost=stop, or --dense=ps",
                settings->options->on_lost);
    }
    return RPS_OK;
}

rps_status
rps_settings_read_dense(struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;

    settings->dense_seed = rps_option_given(options, "dense_seed")
                                   ? options->dense_seed
                                   : options->seed;
    if (strcmp(options->dense, "allreduce") != 0) {
        return check_not_given(options, error);
    }
    settings->in_group = settings->task == RPS_TASK_TRAIN;
    return settings->in_group ? check_terms(settings, error) : RPS_OK;
}
