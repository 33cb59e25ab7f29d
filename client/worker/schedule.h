/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A learning rate that depends on the step: warm-up, then one of four rules.
 * Pure: no clock, no state; a run that goes on from a checkpoint asks for the
 * next step and gets what the straight run would have got.
 */
#ifndef RPS_WORKER_SCHEDULE_H
#define RPS_WORKER_SCHEDULE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define RPS_SCHEDULE_PIECES_MAX 32u

enum rps_schedule_kind {
    RPS_SCHEDULE_CONSTANT,
    RPS_SCHEDULE_POLYNOMIAL,
    RPS_SCHEDULE_EXPONENTIAL,
    RPS_SCHEDULE_PIECEWISE
};

/** Zeroed: constant, no warm-up. */
struct rps_schedule {
    enum rps_schedule_kind kind;
    uint64_t warmup; /* steps */
    uint64_t begin;  /* steps done when the decay begins */
    uint64_t steps;  /* of the decay: > 0 where the kind has it */
    double end;      /* polynomial: the last rate */
    double power;    /* polynomial */
    bool cycle;      /* polynomial: start again, each time longer */
    double factor;   /* exponential: a rate after `steps` steps / one before */
    bool staircase;  /* exponential: only after whole `steps` */
    uint32_t piece_count;
    struct {
        uint64_t from; /* steps done */
        double rate;
    } pieces[RPS_SCHEDULE_PIECES_MAX]; /* `from` ascends */
};

/**
 * "polynomial:steps=1000,end=1e-4,warmup=100"; docs/TRAINING.md has every
 * kind and key. `flag` is for the words.
 *
 * Errors: INVAL.
 */
rps_status rps_schedule_parse(struct rps_schedule *schedule, const char *flag,
        const char *text, struct rps_error *error);

/**
 * The rate of the step that comes after `done` steps, of a base rate; in
 * double, from +, *, /, pow alone. Never negative, never more than the
 * largest of base, end, and the pieces' rates.
 */
double rps_schedule_rate(
        const struct rps_schedule *schedule, double base, uint64_t done);

#endif /* RPS_WORKER_SCHEDULE_H */
