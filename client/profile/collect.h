/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collecting: what profile.h's calls leave in the threads' buffers, between
 * arming and taking. session.c arms, waits and takes; one session a process at
 * a time.
 */
#ifndef RPS_PROFILE_COLLECT_H
#define RPS_PROFILE_COLLECT_H

#include "client/profile/profile.h"
#include "client/profile/strings.h"

#include <stddef.h>

/** A span; or, where `is_figure`, name, start_ns and value. */
struct rps_profile_record {
    struct rps_profile_span span; /* strings: kept ones */
    double value;
    bool is_figure;
};

/** A step that was profiled. */
struct rps_profile_step_span {
    uint64_t step;
    uint64_t start_ns;
    uint64_t end_ns;
};

/** What a session collected. */
struct rps_profile_collected {
    struct rps_profile_record **records; /* [count] by start, into chunks */
    size_t count;
    struct rps_profile_step_span *steps; /* [step_count] */
    size_t step_count;
    uint64_t dropped;                 /* records for which there was no room */
    struct rps_profile_chunk *chunks; /* where the records lie */
    struct rps_profile_kept *kept;    /* where their strings lie */
};

/** Collect from the begin of step `first` to the end of step `last`, into
 * at most about bytes_max. */
void rps_profile_arm(uint64_t first, uint64_t last, uint64_t bytes_max);

/** Wait until the last step has ended, or rps_profile_disarm(). */
void rps_profile_await(void);

/** No more is collected; who waits goes on. */
void rps_profile_disarm(void);

/**
 * Take what was collected out of the buffers. Disarmed.
 *
 * Returns: false: no memory; what was taken is released.
 */
bool rps_profile_take(struct rps_profile_collected *collected);

/** Disarm, and drop what was collected. */
void rps_profile_abandon(void);

void rps_profile_collected_finish(struct rps_profile_collected *collected);

#endif /* RPS_PROFILE_COLLECT_H */
