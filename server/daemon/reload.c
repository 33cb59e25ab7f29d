/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HUP: the options are read again, from the same flags, variables and files.
 * What can change in a running server is taken; the rest is named. Token and
 * certificates are read again from the files that were named at the start:
 * those are replaced by somebody else, and a slip in the options must not keep
 * an old certificate until it expires.
 */
#include "base/clock.h"
#include "base/log.h"
#include "server/daemon/daemon_impl.h"
#include "server/daemon/notify.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

/* What rps_options_read() has set by itself. */
static bool
is_taken(const char *name)
{
    return strcmp(name, "log_level") == 0 || strcmp(name, "log_format") == 0;
}

/* Options with another value than at the start: their number. */
static size_t
say_changes(const struct rps_options *old, const struct rps_options *fresh)
{
    json_t *before = rps_options_json(old, RPS_SCOPE_SERVER);
    json_t *after = rps_options_json(fresh, RPS_SCOPE_SERVER);
    size_t count = 0;
    const char *name;
    json_t *option;

    json_object_foreach(after, name, option)
    {
        const json_t *was =
                json_object_get(json_object_get(before, name), "value");

        if (!json_equal(json_object_get(option, "value"), was) &&
                !is_taken(name)) {
            rps_log(RPS_LOG_WARN, "reload",
                    "%s has changed, which takes a restart", name);
            count++;
        }
    }
    json_decref(before);
    json_decref(after);
    return count;
}

void
rps_daemon_reload(struct rps_daemon *daemon)
{
    struct rps_options fresh = {0};
    size_t changes = 0;

    /* the time by the clock that systemd compares with its own */
    rps_notify("RELOADING=1\nMONOTONIC_USEC=%" PRIu64, rps_clock_ns() / 1000);
    if (daemon->reread(&fresh) >= 0) {
        rps_log(RPS_LOG_ERROR, "reload",
                "the options are refused, they stay as they are: %s",
                fresh.refusal != NULL ? fresh.refusal : "see above");
    } else {
        changes = say_changes(daemon->options, &fresh);
        rps_log(RPS_LOG_INFO, "reload",
                "log_level=%s log_format=%s; %zu other options have changed",
                rps_log_level_str(rps_log_least()), fresh.log_format, changes);
    }
    rps_options_finish(&fresh);
    (void)rps_access_reload(&daemon->access, daemon->service);
    rps_notify("READY=1");
}
