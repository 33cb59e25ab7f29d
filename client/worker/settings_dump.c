/* SPDX-License-Identifier: Apache-2.0 */
/* The options that say what is dumped. */
#include "client/worker/settings.h"

#include <string.h>

/* --dump, or without it an option that says what it writes. */
static bool
is_asked_for(const struct rps_options *options)
{
    return options->dump ||
           (!rps_option_given(options, "dump") &&
                   (rps_option_given(options, "dump_step") ||
                           rps_option_given(options, "dump_path")));
}

/* What says how it is written, where nothing is. */
static rps_status
check_not_given(const struct rps_options *options, struct rps_error *error)
{
    static const struct {
        const char *name, *flag;
    } all[] = {
            {"rotate", "rotate"},
            {"dump_limit", "dump-limit"},
            {"dump_rank", "dump-rank"},
            {"dump_and_save", "dump-and-save"},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (rps_option_given(options, all[i].name) &&
                !rps_option_given(options, "dump")) {
            return rps_fail(error, RPS_E_INVAL,
                    "--%s says how --dump writes: give --dump, too",
                    all[i].flag);
        }
    }
    return RPS_OK;
}

static rps_status
check_company(const struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;

    if (options->evaluate || options->predict[0] != '\0') {
        return rps_fail(error, RPS_E_INVAL,
                "--dump does not go with --%s, which has no steps: it is of "
                "training",
                options->evaluate ? "evaluate" : "predict");
    }
    if (options->save_steps > 0 && !options->dump_and_save) {
        return rps_fail(error, RPS_E_INVAL,
                "--dump does not go with --save-steps=%llu: both write in the "
                "middle of the same steps, so that each waits for the other's "
                "disk, and a run that stops half way leaves half of both; give "
                "--dump-and-save to have both all the same (neither changes a "
                "bit), or dump in a run of its own",
                (unsigned long long)options->save_steps);
    }
    if (options->dump_rank >= settings->replicas &&
            settings->task == RPS_TASK_TRAIN) {
        return rps_fail(error, RPS_E_INVAL,
                "--dump-rank=%llu: there are ranks 0 to %u",
                (unsigned long long)options->dump_rank, settings->replicas - 1);
    }
    return RPS_OK;
}

rps_status
rps_settings_read_dump(struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;
    struct rps_dump_settings *dump = &settings->dump;
    struct rps_error cause;
    rps_status status;

    if (!is_asked_for(options)) {
        return check_not_given(options, error);
    }
    status = rps_dump_steps_parse(&dump->steps, options->dump_step, &cause);
    if (status != RPS_OK) {
        return rps_fail(error, status, "--dump-step=%s: %s", options->dump_step,
                cause.text);
    }
    status = check_company(settings, error);
    if (status != RPS_OK) {
        return status;
    }
    dump->path = rps_text_or_null(options->dump_path);
    if (dump->path == NULL) {
        dump->path = strcmp(options->device, "npu") == 0
                             ? "precision_data/npu/debug_0"
                             : "precision_data/tf/dump";
    }
    dump->fusion = strcmp(options->fusion, "on") == 0;
    dump->on = settings->task == RPS_TASK_TRAIN &&
               settings->rank == options->dump_rank;
    return RPS_OK;
}
