/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of recps-train: its data, model, client and report, opened in
 * this order (run.c) and closed in the other. train.c and infer.c are the
 * tasks, evaluate.c serves both, evaluator.c has a loop of its own.
 */
#ifndef RPS_WORKER_RUN_H
#define RPS_WORKER_RUN_H

#include "client/worker/batch.h"
#include "client/worker/group.h"
#include "client/worker/layout.h"
#include "client/worker/report.h"
#include "client/worker/tables.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct rps_admin_port;
struct rps_device;  /* client/worker/device.h */
struct rps_dumping; /* client/worker/dumping.h */
struct rps_profile_session;

struct rps_run {
    const struct rps_settings *settings; /* borrowed */
    struct rps_dataset *data;
    struct rps_dataset *eval_data; /* NULL: test rows are data's */
    uint64_t train_rows;           /* rows [0, train_rows) of data train */
    uint64_t test_first;           /* rows [first, end) of the test data */
    uint64_t test_end;
    struct rps_layout layout; /* which fields go where */
    struct rps_model *model;
    struct rps_device *device; /* that computes it; NULL: plain calls do */
    rps_client *client;
    rps_terms terms; /* the chief's, once joined */
    uint32_t epoch;  /* the job's, once joined */
    bool can_save;   /* the servers have a checkpoint_dir */
    bool is_served;  /* they serve checkpoints, and nothing else */
    struct rps_tables tables;
    uint64_t warm_step; /* that a part of a checkpoint was taken of; 0: none */
    struct rps_group *group;   /* --dense allreduce; NULL: no such thing */
    struct rps_report *report; /* the chief's; others: quiet */
    struct rps_profile_session *profile; /* NULL: none, or over */
    uint64_t profile_looked_ns;          /* at the memory, last */
    struct rps_dumping *dumping;         /* NULL: none, or over */
    struct rps_admin_port *admin_port;   /* NULL: none; main.c's */
    bool device_full;                    /* its memory is not enough */
    bool data_failed;                    /* the failure in hand is the data's */
    bool running;                        /* tables are open and in use */
    struct rps_error error;              /* of the failure in hand */
};

/** Open the data, make the model that fits it, take the device. */
rps_status rps_run_open_data(struct rps_run *run);

/** Defaults, then what --job-id and its kin say; waiting is reported. */
void rps_run_client_options(struct rps_run *run, rps_client_options *client);

/** Connect, or open the embedded service. */
rps_status rps_run_open_client(struct rps_run *run);
rps_status rps_run_open_report(struct rps_run *run, uint64_t steps);
void rps_run_close(struct rps_run *run);

/** Say how many malformed rows --on-bad-row skip left out, if any. */
void rps_run_say_skipped(struct rps_run *run);

/** A PS's STAT; json_decref(*stat_out), which is NULL after an error. */
rps_status rps_run_read_stat(
        struct rps_run *run, uint32_t ps, json_t **stat_out);

/** The failing client's words become the run's. */
rps_status rps_run_client_failed(
        struct rps_run *run, rps_status status, const char *what);

/** Say a line: the chief through its report, others on stdout. */
void rps_run_say(struct rps_run *run, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/** The same for a client that waits; context is the run. */
void rps_run_report_line(void *context, const char *line);

/** The dataset whose rows [test_first, test_end) are test. */
struct rps_dataset *rps_run_test_data(const struct rps_run *run);

/** Chief: assign the start values, the seed's or those of --init-from. */
rps_status rps_run_init_from(struct rps_run *run);

/**
 * Evaluate the test rows with what the tables hold, and write --predict's
 * file where that was given. *result gets AUC and log loss.
 */
rps_status rps_run_evaluate(struct rps_run *run, const char *predict_path,
        struct rps_report_end *result);

/** Restore `step` with no other replica, and open the tables as it says. */
rps_status rps_run_restore_alone(struct rps_run *run, uint64_t step);

/** --restore=STEP, or the newest complete step; NOT_FOUND without any. */
rps_status rps_run_restore_step(struct rps_run *run, uint64_t *step_out);

/** Chief of a fresh run: INVAL if a server's folder has checkpoints. */
rps_status rps_run_check_no_checkpoint(struct rps_run *run);

/** What each task does; the run is open_data()ed before. */
rps_status rps_run_train(struct rps_run *run);
rps_status rps_run_infer(struct rps_run *run);
rps_status rps_run_evaluator(struct rps_run *run);

/** Number of the signal that asks to stop, 0: none (main.c's handler). */
int rps_stop_signal(void);

/** Did a signal wish for a checkpoint since this was asked last? */
bool rps_save_signal(void);

/** From here on this process waits for others and has nothing that it could
 * save: a signal ends it at once, with this line, which stays valid; NULL: no
 * longer (main.c). */
void rps_stop_waits(const char *words);

/** Such a line: nothing was trained yet, or what was is not all saved. */
const char *rps_run_waiting_words(const struct rps_run *run);

#endif /* RPS_WORKER_RUN_H */
