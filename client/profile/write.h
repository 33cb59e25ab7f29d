/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a profile. session.c decides when. */
#ifndef RPS_PROFILE_WRITE_H
#define RPS_PROFILE_WRITE_H

#include "base/error.h"
#include "client/profile/collect.h"
#include "client/profile/session.h"

/** Times are told from here: the first step's start. */
static inline uint64_t
rps_profile_origin(const struct rps_profile_collected *collected)
{
    uint64_t origin =
            collected->step_count > 0 ? collected->steps[0].start_ns : 0;

    if (collected->count > 0 && collected->records[0]->span.start_ns < origin) {
        origin = collected->records[0]->span.start_ns;
    }
    return origin;
}

/** folder/trace.json */
rps_status rps_profile_write_trace(const char *folder,
        const struct rps_profile_options *options,
        const struct rps_profile_collected *collected, struct rps_error *error);

/** folder's tables. LIMIT: more kinds of spans than totals.h takes. */
rps_status rps_profile_write_tables(const char *folder,
        const struct rps_profile_collected *collected, struct rps_error *error);

#endif /* RPS_PROFILE_WRITE_H */
