/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the loop's time goes: it is on one stage at a time, and the clock is
 * read where one ends and the next begins.
 */
#ifndef RPS_WORKER_SPENT_H
#define RPS_WORKER_SPENT_H

#include "base/clock.h"
#include "client/profile/profile.h"
#include "client/worker/report.h"

/* clang-format off */
/** X(constant, name in the JSON log, name in the last lines) */
#define RPS_SPENT_STAGES(X) \
    X(READ, "read", "read")                      /* waiting for a batch */ \
    X(LOOKUP, "lookup", "lookup")                /* making requests */ \
    X(LOOKUP_WAIT, "lookup_wait", "lookup wait") /* for the servers */ \
    X(ROWS, "rows", "rows")                      /* late rows, bags */ \
    X(COMPUTE, "compute", "compute") \
    X(ALLREDUCE, "allreduce", "allreduce")       /* dense, with its step */ \
    X(PUSH, "push", "push")                      /* making requests */ \
    X(PUSH_WAIT, "push_wait", "push wait") \
    X(STEP_END, "step_end_wait", "step end wait") \
    X(SAVE, "save", "save") \
    X(OTHER, "other", "other")                   /* reports */
/* clang-format on */

enum rps_spent_stage {
#define RPS_SPENT_CONSTANT(constant, json, words) RPS_SPENT_##constant,
    RPS_SPENT_STAGES(RPS_SPENT_CONSTANT)
#undef RPS_SPENT_CONSTANT
    RPS_SPENT_COUNT
};

/** What the reader's thread did meanwhile. */
struct rps_reader_times {
    uint64_t read_ns;  /* rows: files, parsing, shuffle */
    uint64_t split_ns; /* keys by table, early and late */
};

struct rps_spent {
    uint64_t ns[RPS_SPENT_COUNT];
    uint64_t since; /* on `stage`; 0: nothing is counted yet */
    enum rps_spent_stage stage;
    struct rps_reader_times reader;
    uint32_t depth;
    uint64_t steps;
    uint64_t round_trips;
    uint64_t sent_bytes; /* of the client: whole frames */
    uint64_t received_bytes;

    /* for profiles, of which a stage is a span */
    uint64_t (*moved)(const void *context); /* bytes over the wire so far */
    const void *moved_context;
    uint64_t moved_before; /* when the stage began, once profiled */
    bool is_profiled;
    uint64_t reduced; /* bytes that the stage sums over the group */
};

/** Its words: what `out` points to. */
struct rps_spent_told {
    struct rps_report_stage stages[RPS_SPENT_COUNT];
    struct rps_report_stage reader[2];
};

/** For the report; *told must live as long as *out is used. */
void rps_spent_tell(const struct rps_spent *spent, struct rps_spent_told *told,
        struct rps_report_stages *out);

/** The stage in hand ends now: a span of the profile. */
void rps_spent_profile(struct rps_spent *spent, uint64_t now);

/** From now on it is this one. */
static inline void
rps_spent_on(struct rps_spent *spent, enum rps_spent_stage stage)
{
    const uint64_t now = rps_clock_ns();

    if (spent->since != 0) {
        spent->ns[spent->stage] += now - spent->since;
        if (rps_profile_is_on()) {
            rps_spent_profile(spent, now);
        }
    }
    spent->since = now;
    spent->stage = stage;
}

#endif /* RPS_WORKER_SPENT_H */
