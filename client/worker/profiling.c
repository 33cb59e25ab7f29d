/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/profiling.h"

#include "base/clock.h"
#include "base/process.h"
#include "client/profile/profile.h"
#include "client/profile/session.h"
#include "client/worker/device.h"

#include <inttypes.h>

/* Asking the kernel takes some 20 us: of steps of a millisecond it would be
 * seen. */
#define LOOK_NS 10000000u

static bool
is_asked_for(const struct rps_run *run)
{
    return run->settings->profile.folder != NULL &&
           run->settings->task == RPS_TASK_TRAIN;
}

rps_status
rps_profiling_begin(struct rps_run *run, uint64_t steps)
{
    const struct rps_settings *settings = run->settings;
    const struct rps_profile_settings *asked = &settings->profile;
    const struct rps_profile_options options = {
            .folder = asked->folder,
            .rank = settings->rank,
            .restart = settings->restart_count,
            .first_step = asked->first,
            .last_step = asked->last,
    };

    if (!is_asked_for(run)) {
        return RPS_OK;
    }
    if (!settings->restore && asked->first > steps) {
        return rps_fail(&run->error, RPS_E_INVAL,
                "--profile-steps=%s: the run ends with step %" PRIu64
                ": give steps up to there",
                settings->options->profile_steps, steps);
    }
    return rps_profile_begin(&run->profile, &options, &run->error);
}

void
rps_profiling_joined(struct rps_run *run, uint64_t done, uint64_t last)
{
    const struct rps_profile_settings *asked = &run->settings->profile;

    if (run->profile == NULL) {
        return;
    }
    if (asked->last <= done) {
        rps_run_say(run,
                "profile: nothing: the run goes on behind step %" PRIu64
                ", and --profile-steps=%s are over",
                done, run->settings->options->profile_steps);
    } else if (asked->first > last) {
        rps_run_say(run,
                "profile: nothing: the run ends with step %" PRIu64
                ", before --profile-steps=%s",
                last, run->settings->options->profile_steps);
    }
}

void
rps_profiling_step(struct rps_run *run, uint64_t step)
{
    uint64_t now;

    rps_profile_step(step);
    if (!rps_profile_is_on()) {
        return;
    }
    now = rps_clock_ns();
    if (now - run->profile_looked_ns < LOOK_NS) {
        return;
    }
    run->profile_looked_ns = now;
    rps_profile_figure("host resident", now, (double)rps_process_resident());
    if (run->device != NULL) {
        rps_device_profile(run->device, now);
    }
}

static void
say_result(struct rps_run *run, const struct rps_profile_result *result)
{
    if (result->steps == 0) {
        return; /* why not was said at the start, or the run failed before */
    }
    rps_run_say(run, "profile of %" PRIu64 " step%s: %s (%" PRIu64 " spans)",
            result->steps, result->steps == 1 ? "" : "s", result->folder,
            result->spans);
    if (result->dropped > 0) {
        rps_run_say(run,
                "profile: %" PRIu64 " spans found no room and are missing: "
                "give fewer steps",
                result->dropped);
    }
}

rps_status
rps_profiling_end(struct rps_run *run, struct rps_error *error)
{
    struct rps_profile_result result;
    rps_status status = rps_profile_end(run->profile, &result, error);

    run->profile = NULL;
    if (status == RPS_OK) {
        say_result(run, &result);
    }
    return status;
}
