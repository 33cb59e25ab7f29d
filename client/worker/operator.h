/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of the model that runs on the host, as an operator of the profile:
 *
 *     const uint64_t begun = rps_operator_begin();
 *     ...
 *     rps_operator_end(&operator, begun);
 *
 * While nothing is profiled that is one relaxed load.
 */
#ifndef RPS_WORKER_OPERATOR_H
#define RPS_WORKER_OPERATOR_H

#include "base/clock.h"
#include "client/profile/profile.h"

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

/** 0: nobody asks. */
static inline uint64_t
rps_operator_begin(void)
{
    return rps_profile_is_on() ? rps_clock_ns() : 0;
}

static inline void
rps_operator_end(const struct rps_operator *operator, uint64_t begun)
{
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

#endif /* RPS_WORKER_OPERATOR_H */
