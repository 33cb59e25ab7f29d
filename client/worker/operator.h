/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of the model that runs on the host, as an operator of the profile
 * and, where it has operands (operand.h), of a dump:
 *
 *     const uint64_t begun = rps_operator_begin(&operator);
 *     ...
 *     rps_operator_end(&operator, begun);
 *
 * While nothing is profiled or dumped that is two relaxed loads, each time.
 */
#ifndef RPS_WORKER_OPERATOR_H
#define RPS_WORKER_OPERATOR_H

#include "base/clock.h"
#include "client/profile/profile.h"
#include "client/worker/tape.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define RPS_OPERATOR_TRACK        "loop"
#define RPS_OPERATOR_NAME_BYTES   160u
#define RPS_OPERATOR_SHAPES_BYTES 64u

/** What is known of it before it runs. Zeroed: it has no name yet. */
struct rps_operator {
    const char *type;                   /* static */
    const char *holds;                  /* static; NULL: itself */
    char name[RPS_OPERATOR_NAME_BYTES]; /* "top.2/linear" */
    char shapes[RPS_OPERATOR_SHAPES_BYTES];
    uint64_t bytes;
    uint64_t flops;
    struct rps_operands *operands; /* NULL: no dump has it; borrowed */
};

/** "PART/TYPE": part is cut where it is too long. */
static inline void
rps_operator_init(
        struct rps_operator *operator, const char * type, const char *part)
{
    memset(operator, 0, sizeof(*operator));
    operator->type = type;
    (void)snprintf(operator->name, sizeof(operator->name), "%.*s/%s",
            (int)(sizeof(operator->name) - 32), part, type);
}

/** 0: no profile asks. */
static inline uint64_t
rps_operator_begin(const struct rps_operator *operator)
{
    if (rps_tape_is_on()) {
        rps_tape_inputs(operator);
    }
    return rps_profile_is_on() ? rps_clock_ns() : 0;
}

static inline void
rps_operator_end(const struct rps_operator *operator, uint64_t begun)
{
    if (rps_tape_is_on()) {
        rps_tape_outputs(operator);
    }
    if (begun != 0) {
        rps_profile_add(&(struct rps_profile_span){
                .class = RPS_PROFILE_OPERATOR,
                .type = operator->type,
                .name = operator->name,
                .holds = operator->holds,
                .track = RPS_OPERATOR_TRACK,
                .shapes = operator->shapes[0] != '\0' ? operator->shapes : NULL,
                .start_ns = begun,
                .end_ns = rps_clock_ns(),
                .bytes = operator->bytes,
                .flops = operator->flops,
        });
    }
}

/** Of one that computes row by row: row `row` of the tile is done. */
static inline void
rps_operator_row(const struct rps_operator *operator, size_t row)
{
    if (rps_tape_is_on()) {
        rps_tape_row(operator, row);
    }
}

/** A part of an operator: of dumps alone, and there of those that do not fuse
 * operators. */
static inline void
rps_operator_part_begin(const struct rps_operator *operator)
{
    if (rps_tape_is_on()) {
        rps_tape_inputs(operator);
    }
}

static inline void
rps_operator_part_end(const struct rps_operator *operator)
{
    if (rps_tape_is_on()) {
        rps_tape_outputs(operator);
    }
}

#endif /* RPS_WORKER_OPERATOR_H */
