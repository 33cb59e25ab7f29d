/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of recps-train, read into what the run needs and checked
 * against one another, before any file is opened or server called.
 */
#ifndef RPS_WORKER_SETTINGS_H
#define RPS_WORKER_SETTINGS_H

#include "client/precision/dump.h"
#include "client/worker/loss_scale.h"
#include "client/worker/model_config.h"
#include "client/worker/schedule.h"
#include "conf/options.h"

#include <recps/client.h>
#include <recps/types.h>

#include <stdbool.h>
#include <stdint.h>

#define RPS_BATCH_ROWS_MAX (1u << 24)

/** What this process does in the job. */
enum rps_task {
    RPS_TASK_TRAIN,    /* a replica, the chief included */
    RPS_TASK_INFER,    /* the chief of --evaluate and --predict */
    RPS_TASK_LEAVE,    /* another replica of these: nothing to do */
    RPS_TASK_EVALUATOR /* the role of that name */
};

/** The learning rates of one step. */
struct rps_rates {
    double sparse[RPS_MODEL_TABLES_MAX]; /* in the order of the tables */
    double dense;
};

/** What a start takes of a checkpoint, if not all of it. */
struct rps_warm_settings {
    char *dir;          /* another job's; owned; NULL: none */
    uint64_t step;      /* of it; 0: the newest */
    const char *tables; /* --restore-tables, or NULL; borrowed */
    bool weights_only;
};

/** --device npu and what goes with it. */
struct rps_device_settings {
    bool npu;
    uint32_t id;
    uint64_t memory_bytes;
    uint64_t loop_size; /* 0: the library's default */
    uint64_t link_bytes_per_second;
    uint64_t copy_latency_ns;
    uint64_t launch_latency_ns;
    uint32_t parts; /* of a batch */
    bool recompute;
    bool offload;
    double dropout;
    bool mixed;
    bool high_precision;
    bool fusion;
    bool cache;               /* rows of sparse tables stay there */
    uint64_t cache_rows;      /* of each table; 0: its device_vocabulary_size */
    uint64_t cache_staleness; /* steps */
};

/** What --profile asks for. */
struct rps_profile_settings {
    const char *folder; /* NULL: nothing; borrowed */
    uint64_t first;     /* step, 1 at least */
    uint64_t last;      /* first at least */
};

/** What --dump asks for. */
struct rps_dump_settings {
    bool on; /* this replica dumps */
    struct rps_dump_steps steps;
    const char *path; /* borrowed; NULL: no replica dumps */
    bool fusion;      /* operators as they are fused */
};

struct rps_settings {
    const struct rps_options *options; /* borrowed */
    enum rps_task task;
    struct rps_model_config model; /* owned */
    struct rps_schedule sparse_schedules[RPS_MODEL_TABLES_MAX];
    struct rps_schedule dense_schedule;
    struct rps_loss_scale loss_scale; /* as it begins */
    rps_terms terms;                  /* that the chief begins the job with */
    bool in_group;       /* --dense allreduce, and this task trains */
    uint64_t dense_seed; /* of the dense start values */
    uint32_t replicas;   /* 1 when embedded */
    uint32_t rank;
    bool is_chief;
    bool restore;           /* --restore, --evaluate or --predict */
    bool restore_if_any;    /* --restore=auto: from nothing without any */
    uint64_t restore_step;  /* 0: the newest */
    uint64_t restart_count; /* of this process, by who starts it again */
    struct rps_warm_settings warm;
    struct rps_device_settings device;
    struct rps_profile_settings profile;
    struct rps_dump_settings dump;
    const char *admin;           /* --admin; NULL: none; borrowed */
    const char *admin_port_file; /* NULL: none; borrowed */
    bool evaluate;
    bool has_test; /* there are rows to evaluate */
};

/**
 * Errors: INVAL in words that name the options; NOT_FOUND, IO: of the file of
 * --model-config. Finish them in any case.
 */
rps_status rps_settings_read(struct rps_settings *settings,
        const struct rps_options *options, struct rps_error *error);
void rps_settings_finish(struct rps_settings *settings);

/** The model's part of it; rps_settings_read() calls it. */
rps_status rps_settings_read_model(
        struct rps_settings *settings, struct rps_error *error);

/** Where dense variables live, once the mode and the task are read. */
rps_status rps_settings_read_dense(
        struct rps_settings *settings, struct rps_error *error);

/** What computes the model, once the task and the model's part are read. */
rps_status rps_settings_read_device(
        struct rps_settings *settings, struct rps_error *error);

/** --warm-start and what goes with it, once the task is read. */
rps_status rps_settings_read_warm(
        struct rps_settings *settings, struct rps_error *error);

/** Rows of table t that stay on the device. */
uint64_t rps_settings_cache_rows(
        const struct rps_settings *settings, uint32_t t);

/** Schedules and loss scale, once the model's part is read. */
rps_status rps_settings_read_schedules(
        struct rps_settings *settings, struct rps_error *error);

/** --profile and its kin. */
rps_status rps_settings_read_profile(
        struct rps_settings *settings, struct rps_error *error);

/** --dump and its kin, once the task is read and before the device is. */
rps_status rps_settings_read_dump(
        struct rps_settings *settings, struct rps_error *error);

/** Of the step that comes after `done` steps. */
struct rps_rates rps_settings_rates(
        const struct rps_settings *settings, uint64_t done);

/** NULL for an empty string: an option that was not given. */
const char *rps_text_or_null(const char *text);

#endif /* RPS_WORKER_SETTINGS_H */
