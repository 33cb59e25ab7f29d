/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run logged: a line of JSON a step, {"step": 7, "loss": 0.61}, and one
 * at its end, {"event": "done", "auc": 0.8}. recps-train --json-log writes
 * it; any program may. Other fields and other lines are passed over.
 *
 * A step that comes again (a log that was gone on with after the job went
 * back) replaces what stood there of it and of later steps.
 *
 *   steps[i] < steps[i + 1]
 */
#ifndef RPS_PRECISION_LOSSES_H
#define RPS_PRECISION_LOSSES_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_LOSSES_LINE_BYTES_MAX (1u << 20)

struct rps_loss {
    uint64_t step;
    double value; /* NaN: the log has null, which was not finite */
};

/** Zeroed it is empty. */
struct rps_losses {
    char *path;
    struct rps_loss *list; /* [count] */
    size_t count;
    size_t room;
    bool exact;     /* every one came with its bits: --deterministic */
    uint64_t backs; /* times that the job went back */
    json_t *done;   /* the last such line; NULL: the run did not end well */
};

/**
 * Read a whole log. NaN and Infinity, which Python writes and JSON does not
 * have, are null.
 *
 * Errors: NOT_FOUND, IO, NOMEM, CORRUPT (a line that is no JSON object, a
 *         step or a loss that is no number), LIMIT (of a line); they
 *         name the file and the line.
 */
rps_status rps_losses_read(
        struct rps_losses *losses, const char *path, struct rps_error *error);

void rps_losses_finish(struct rps_losses *losses);

enum rps_losses_verdict {
    /** Every step has the same loss in every run. */
    RPS_LOSSES_EQUAL = 0,
    /** The first step has, and later ones differ by less than `tolerance`. */
    RPS_LOSSES_CLOSE,
    RPS_LOSSES_DIFFER,
    /** Nothing differs, but a run has steps that the first one does not have,
     * or lacks some of it. */
    RPS_LOSSES_UNEVEN
};

/** Each run against the first, runs counted from 0 on. */
struct rps_losses_compared {
    enum rps_losses_verdict verdict;
    uint64_t steps; /* compared: those before every run's first odd one */
    bool exact;     /* by their bits; else by what digits the logs have */
    /* CLOSE, DIFFER: the first step at which one differs, and which one */
    uint64_t first_step;
    size_t first_run;
    double first_loss[2]; /* of run 0, and its own */
    /* the largest difference; infinite where one of two is not finite */
    double largest;
    uint64_t largest_step;
    size_t largest_run;
    /* the first run that has other steps than run 0; 0: none has. It agrees
     * with it in so many steps, then one goes on and the other does not (its
     * count is `even_steps`), or they go on with different steps */
    size_t uneven_run;
    size_t even_steps;
    /* the first loss that is not finite */
    bool not_finite;
    uint64_t not_finite_step;
    size_t not_finite_run;
};

/**
 * Two losses that are both not finite count as equal. count >= 1, and run 0
 * has a step.
 */
struct rps_losses_compared rps_losses_compare(
        const struct rps_losses *runs, size_t count, double tolerance);

#endif /* RPS_PRECISION_LOSSES_H */
