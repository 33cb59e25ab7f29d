/* SPDX-License-Identifier: Apache-2.0 */
/* The options that say what is profiled. */
#include "base/text.h"
#include "client/profile/session.h"
#include "client/worker/settings.h"

#include <stdlib.h>
#include <string.h>

/* "A:B", both from 1 on. */
static bool
read_range(const char *text, uint64_t *first, uint64_t *last)
{
    const char *colon = strchr(text, ':');
    char *head;
    bool good;

    if (colon == NULL) {
        return false;
    }
    head = strndup(text, (size_t)(colon - text));
    good = head != NULL && rps_parse_u64(head, first) &&
           rps_parse_u64(colon + 1, last) && *first > 0;
    free(head);
    return good;
}

static rps_status
read_steps(struct rps_settings *settings, struct rps_error *error)
{
    const char *text = settings->options->profile_steps;
    struct rps_profile_settings *profile = &settings->profile;

    if (!read_range(text, &profile->first, &profile->last)) {
        return rps_fail(error, RPS_E_INVAL,
                "--profile-steps=%s: must be the first and the last step with "
                "a colon between, from 1 on, as in 11:20",
                text);
    }
    if (profile->first > profile->last) {
        return rps_fail(error, RPS_E_INVAL,
                "--profile-steps=%s: the first step is behind the last: the "
                "smaller number comes first",
                text);
    }
    if (profile->last - profile->first >= RPS_PROFILE_STEPS_MAX) {
        return rps_fail(error, RPS_E_INVAL,
                "--profile-steps=%s: are %llu steps: at most %u", text,
                (unsigned long long)(profile->last - profile->first + 1),
                RPS_PROFILE_STEPS_MAX);
    }
    return RPS_OK;
}

rps_status
rps_settings_read_profile(
        struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;

    settings->profile.folder = rps_text_or_null(options->profile);
    if (settings->profile.folder == NULL) {
        return rps_option_given(options, "profile_steps")
                       ? rps_fail(error, RPS_E_INVAL,
                                 "--profile-steps=%s says what --profile "
                                 "writes: give --profile FOLDER, too",
                                 options->profile_steps)
                       : RPS_OK;
    }
    if (options->evaluate || options->predict[0] != '\0') {
        return rps_fail(error, RPS_E_INVAL,
                "--profile does not go with --%s, which has no steps: it is "
                "of training",
                options->evaluate ? "evaluate" : "predict");
    }
    return read_steps(settings, error);
}
