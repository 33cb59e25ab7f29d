/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recps profile: profile.c is the command, profile_load.c reads what it is
 * given, profile_summary.c and profile_compare.c are its two answers.
 */
#ifndef RPS_CLIENT_CLI_PROFILE_H
#define RPS_CLIENT_CLI_PROFILE_H

#include "client/cli/tool.h"
#include "client/profile/read.h"
#include "client/profile/strings.h"

#define RPS_PROFILE_RANKS_MAX 65536u

/** Spans of one class and name, of all ranks together. */
struct rps_profile_row {
    enum rps_profile_class class;
    const char *name; /* the side's strings */
    const char *type;
    const char *holds; /* "": itself */
    uint64_t count;
    uint64_t ns;
    uint64_t self_ns;
    uint64_t min_ns;
    uint64_t max_ns;
    uint64_t bytes;
    uint64_t flops;
};

struct rps_profile_rank {
    uint32_t rank;
    struct rps_totals_steps steps;
};

/** A folder or file that was named. */
struct rps_profile_side {
    const char *path;           /* borrowed */
    struct rps_trace_info info; /* counts: of all ranks */
    bool has_steps;             /* else all of it counts as one */
    struct rps_totals_steps steps;
    struct rps_profile_rank *ranks; /* [rank_count], owned */
    size_t rank_count;
    struct rps_profile_row *rows; /* [row_count] by class, longest first */
    size_t row_count;
    struct rps_strings strings;
};

/** Says what is wrong; returns an exit code. */
int rps_profile_load(struct rps_profile_side *side, const char *path);

/** A zeroed one is fine. */
void rps_profile_side_finish(struct rps_profile_side *side);

/**
 * Make one row of those that agree in class and name, and order them; type
 * and holds become the first one's.
 */
void rps_profile_merge(struct rps_profile_row *rows, size_t *count);

/** Of a class, the sum of self_ns, and of count where that is not NULL. */
uint64_t rps_profile_class_ns(const struct rps_profile_side *side,
        enum rps_profile_class class, uint64_t *count_out);

/** Of one step, on one rank. ms; or spans, or what is given. */
double rps_profile_a_step(const struct rps_profile_side *side, uint64_t whole);

/** "1 rank, 10 steps of 3.283 ms (2.903 to 4.069), 360 spans". Returns out. */
char *rps_profile_describe(
        const struct rps_profile_side *side, char *out, size_t bytes);

/** {"path", "kind", "ranks", "steps": {...}, "spans", "dropped"} */
json_t *rps_profile_side_json(const struct rps_profile_side *side);

int rps_profile_summary(
        const struct rps_profile_side *side, uint64_t top, bool json);

int rps_profile_compare(const struct rps_profile_side *a,
        const struct rps_profile_side *b, uint64_t top, bool json);

#endif /* RPS_CLIENT_CLI_PROFILE_H */
