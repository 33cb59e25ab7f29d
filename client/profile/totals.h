/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans added up: of each kind of span how often, how long, and how long
 * without what lies inside it on the same track; of each step its time.
 * The files of a profile and `recps profile` are made of this.
 *
 * Threads: one at a time.
 */
#ifndef RPS_PROFILE_TOTALS_H
#define RPS_PROFILE_TOTALS_H

#include "client/profile/profile.h"

#include <recps/status.h>

#include <stddef.h>

#define RPS_TOTALS_SPANS_MAX 8000000u /* 32 bytes each */
#define RPS_TOTALS_KINDS_MAX 65536u
#define RPS_TOTALS_STEPS_MAX 1000000u

/** What is added up: spans that agree in all of this. */
struct rps_total {
    enum rps_profile_class class;
    const char *type; /* strings: the totals'; "" where nothing was given */
    const char *name;
    const char *holds;
    const char *track;
    const char *shapes;

    uint64_t count;
    uint64_t ns;
    uint64_t self_ns; /* without spans inside */
    uint64_t min_ns;
    uint64_t max_ns;
    uint64_t bytes;
    uint64_t flops;
};

struct rps_totals;

/** NULL: no memory. */
struct rps_totals *rps_totals_create(void);

/** NULL is allowed. */
void rps_totals_destroy(struct rps_totals *totals);

/**
 * Count a span; strings are copied. Not after rps_totals_work_out().
 *
 * Errors: NOMEM, LIMIT (more spans, or more kinds of them, than the limits).
 */
rps_status rps_totals_add(
        struct rps_totals *totals, const struct rps_profile_span *span);

/** A step of so long. Errors: as above. */
rps_status rps_totals_step(struct rps_totals *totals, uint64_t ns);

/** Spans of this type are of another class. When all are added. */
void rps_totals_reclass(struct rps_totals *totals, const char *type,
        enum rps_profile_class class);

/** All is added: work out what is inside what. */
void rps_totals_work_out(struct rps_totals *totals);

/** *[count_out], by class, the longest (self) first. The totals'. */
const struct rps_total *rps_totals_list(
        const struct rps_totals *totals, size_t *count_out);

/** Of a class, the sum of self_ns; how many spans. */
uint64_t rps_totals_class_ns(
        const struct rps_totals *totals, enum rps_profile_class class);
uint64_t rps_totals_class_count(
        const struct rps_totals *totals, enum rps_profile_class class);

/** The steps: how many, and their time. */
struct rps_totals_steps {
    uint64_t count;
    uint64_t ns; /* together */
    uint64_t min_ns;
    uint64_t median_ns;
    uint64_t max_ns;
};

struct rps_totals_steps rps_totals_steps(const struct rps_totals *totals);

/** From the first begin to the last end of a span. */
uint64_t rps_totals_wall_ns(const struct rps_totals *totals);

/** "operator", "copy", "communication", "scheduling": in every file. */
const char *rps_profile_class_name(enum rps_profile_class class);

#endif /* RPS_PROFILE_TOTALS_H */
