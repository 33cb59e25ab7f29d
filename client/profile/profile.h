/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process did when: spans of operators, copies, communication and host
 * stages, and figures over time, collected while profiling is on and written
 * as files that Perfetto and people read (session.h).
 *
 * Off, a call costs one relaxed load. On, a span goes into a buffer of its
 * thread's own; nothing is formatted or written until the end.
 *
 * Threads: any.
 */
#ifndef RPS_PROFILE_PROFILE_H
#define RPS_PROFILE_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

enum rps_profile_class {
    RPS_PROFILE_OPERATOR = 0,  /* a kernel */
    RPS_PROFILE_COPY,          /* between host and device, or on it */
    RPS_PROFILE_COMMUNICATION, /* lookup, push, step end, allreduce */
    RPS_PROFILE_SCHEDULING,    /* launches, waits, stages of the host */
    RPS_PROFILE_CLASSES
};

/** Strings of a span are copied, but for `type`, which is static. */
struct rps_profile_span {
    enum rps_profile_class class;
    const char *type;   /* "linear", "to_device", "lookup": static */
    const char *name;   /* "top.2/linear"; NULL: the type */
    const char *holds;  /* of a fused operator; static; NULL */
    const char *track;  /* "stream compute", "host"; a row of the timeline */
    const char *shapes; /* "[128,13] [512,13]"; NULL */
    uint64_t start_ns;  /* monotonic (base/clock.h) */
    uint64_t end_ns;
    uint64_t bytes; /* moved, read and written; 0: not said */
    uint64_t flops; /* 0: not said */
    uint64_t step;  /* 0: the current one (rps_profile_step) */
};

/** Is anyone collecting? */
bool rps_profile_is_on(void);

void rps_profile_add(const struct rps_profile_span *span);

/** A figure at a moment, e.g. ("npu0 allocated", bytes). Copies name. */
void rps_profile_figure(const char *name, uint64_t ns, double value);

/** Step `step` begins, and the one before ends; 0: no other begins now.
 * Collecting begins and ends by it. */
void rps_profile_step(uint64_t step);

#endif /* RPS_PROFILE_PROFILE_H */
