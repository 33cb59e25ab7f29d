/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people and programs see of a run: the report lines, the live line on
 * a terminal, the JSON log, the summaries (docs/TRAINING.md says the forms).
 */
#ifndef RPS_WORKER_REPORT_H
#define RPS_WORKER_REPORT_H

#include "base/error.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>

struct rps_report;

struct rps_report_options {
    const char *json_log;    /* path or NULL */
    const char *summary_dir; /* path or NULL */
    uint64_t log_every;      /* steps */
    uint64_t steps_total;    /* for the time left; 0: unknown */
    bool quiet;              /* not the chief: prints and writes nothing */
    bool loss_bits;          /* into the JSON log, too: 9 digits are not all */
    bool goes_on;            /* the JSON log is gone on with, if there is one */
};

/** Of one table, where a model has several. */
struct rps_report_rate {
    const char *table;
    double rate;
};

struct rps_report_step {
    uint64_t step;
    uint32_t epoch; /* of the job; 0: not told */
    double loss;
    uint64_t samples; /* of this step, global batch */
    double sparse_lr;
    double dense_lr;
    const struct rps_report_rate *rates; /* [rate_count] */
    uint32_t rate_count;                 /* 0: sparse_lr says all */
    double loss_scale;                   /* 0: none */
    bool skipped;                        /* for an overflow, this step */
    uint64_t skipped_steps;              /* so far */
    uint32_t counted;                    /* replicas, of many; 0: not told */
    uint64_t round_trips;                /* of this step, to its end */
};

/** A stage's part of a time. */
struct rps_report_stage {
    const char *name;  /* in the JSON log */
    const char *words; /* in the last lines */
    double share;      /* 0 to 1 */
};

/** Where the time of training went. */
struct rps_report_stages {
    const struct rps_report_stage *stages; /* [count], of the loop: their
                                            * shares are 1 */
    uint32_t count;                        /* 0: nothing was trained */
    const struct rps_report_stage *reader; /* [reader_count], of its thread */
    uint32_t reader_count;                 /* 0: there was none */
    uint32_t depth;
    double round_trips; /* a step, the mean, as the next two */
    double sent_bytes;  /* to the servers, whole frames; 0: not counted */
    double received_bytes;
};

/** A device cache: rows of distinct keys, summed over tables and steps. */
struct rps_report_cache {
    uint64_t capacity; /* places */
    uint64_t staleness;
    uint64_t asked;
    uint64_t held;      /* of them, found on the device */
    uint64_t fresh;     /* of those, used as they were */
    uint64_t unchanged; /* of those, asked for with REFRESH, and not changed */
    uint64_t moved;     /* to the device */
    uint64_t extra;     /* of those, that had no place to stay */
    uint64_t evicted;
};

/** What an NPU did. */
struct rps_report_npu {
    bool there; /* false: the model was computed on the host */
    uint32_t id;
    uint64_t capacity_bytes;
    uint64_t allocated_peak_bytes; /* by the pool */
    uint64_t reserved_bytes;
    uint64_t reserved_peak_bytes;
    uint64_t reserved_first_bytes; /* once the first launch ended */
    uint64_t reserved_train_bytes; /* once the last one did */
    uint64_t queue_bytes;          /* of the input queue, beside the pool's */
    uint64_t launches;             /* host calls that the training steps took */
    uint64_t steps;                /* of training, on the device */
    uint64_t compiles;
    uint64_t input_copies; /* sets of the input thread */
    uint64_t input_ahead;  /* sets that lay ready, at most */
    uint64_t loop_size;    /* as it was given; what is left may be less */
    uint64_t bytes_to_device;
    uint64_t bytes_to_host;
    struct rps_report_cache cache; /* capacity 0: there is none */
};

struct rps_report_end {
    bool has_auc;
    double auc;
    bool has_log_loss;
    double log_loss;
    bool has_final_loss;
    double final_loss;
    uint64_t steps;
    double samples_per_second; /* 0 if nothing was trained */
    struct rps_report_stages spent;
    struct rps_report_npu npu;
};

rps_status rps_report_create(struct rps_report **report_out,
        const struct rps_report_options *options, struct rps_error *error);
/** Training begins now: samples/s count from here (else from create). */
void rps_report_start(struct rps_report *report);
rps_status rps_report_step(struct rps_report *report,
        const struct rps_report_step *step, struct rps_error *error);
/** The words of a way back: from, to, reason, epoch. */
#define RPS_REPORT_BACK_WORDS \
    "rolled back from step %" PRIu64 " to %" PRIu64 ": %s (epoch %" PRIu32 ")"

/** The job went back: what was reported of later steps than `to` is void. */
struct rps_report_back {
    uint64_t from;
    uint64_t to;
    uint32_t epoch; /* that begins there */
    const char *reason;
};

rps_status rps_report_back(struct rps_report *report,
        const struct rps_report_back *back, struct rps_error *error);
/** The last line, and the scalars auc and log_loss at step end->steps;
 * closes the files. */
rps_status rps_report_done(struct rps_report *report,
        const struct rps_report_end *end, struct rps_error *error);
/** A plain line between reports (clears the live line first). */
void rps_report_note(struct rps_report *report, const char *line);
double rps_report_samples_per_second(const struct rps_report *report);
void rps_report_destroy(struct rps_report *report);

#endif /* RPS_WORKER_REPORT_H */
