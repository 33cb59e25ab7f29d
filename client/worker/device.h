/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --device npu: the model of a run on a simulated NPU. Training is a compiled
 * step that loops (device_step.c) and calls the two halves of step.c as host
 * functions; evaluation is a compiled forward of tiles (device_predict.c).
 *
 * Threads: one, the run's; while steps run, the stream's thread has the loop,
 * the client and the model's buffers, and the run's waits for it.
 */
#ifndef RPS_WORKER_DEVICE_H
#define RPS_WORKER_DEVICE_H

#include "client/precision/dump.h"
#include "client/worker/loop.h"
#include "client/worker/stage.h"
#include "client/worker/usage.h"

struct rps_device;

/** Rows of an evaluation's tile: row i of the answer is computed at place
 * i mod this, so that its bits depend on no batch size. */
#define RPS_DEVICE_TILE 256u

/** Sets that lie ready in the input queue, at most, whatever the loop size. */
#define RPS_DEVICE_AHEAD_MAX 1024u

/**
 * Take the device that the settings name, and put the model's variables there.
 *
 * Owns:   borrows settings and model; *device_out is released by
 *         rps_device_close().
 * Errors: those of rps_npu_open(), in words that name the option; a device that
 *         is taken is UNREACHABLE.
 */
rps_status rps_device_open(struct rps_device **device_out,
        const struct rps_settings *settings, struct rps_model *model,
        struct rps_error *error);

/** NULL is fine. */
void rps_device_close(struct rps_device *device);

/** Batches that its input thread copies ahead, for a loop with so many steps
 * left: the reader must be as far. INVAL: NPU_LOOP_SIZE is no number. */
rps_status rps_device_ahead(const struct rps_device *device, uint64_t steps,
        uint32_t *ahead_out, struct rps_error *error);

/**
 * One launch: up to a loop's size of steps, as one_step() does one. The loop's
 * reader reads ahead and makes slots.
 *
 * Errors: those of the steps; NOMEM: the device's memory, with its statistics.
 */
rps_status rps_device_steps(struct rps_device *device, struct rps_loop *loop);

/** No step comes for now: its memory goes back to the pool, for an evaluation.
 * Steps that come all the same are compiled again. */
void rps_device_end_steps(struct rps_device *device);

/** Before the loop's reader is destroyed: the input thread ends, and what
 * failed is forgotten. */
void rps_device_pause(struct rps_device *device);

/** The model's values, as they are now, are those of predictions. */
rps_status rps_device_take_values(
        struct rps_device *device, struct rps_error *error);

/** Rows that stay on it from step to step; NULL: none do. */
struct rps_device_rows *rps_device_rows_of(const struct rps_device *device);

/** How a stage computes its tiles there. */
struct rps_stage_engine rps_device_stage_engine(struct rps_device *device);

/** For metrics: context is the device. Any thread. */
bool rps_device_usage(void *context, struct rps_usage_device *usage);

/** Its pool's memory, as figures of the profile, by the names that the pool
 * gives them when it changes: in a launch it does not for many steps. */
void rps_device_profile(const struct rps_device *device, uint64_t now_ns);

/** Show every operator to a dump; before the first step. Errors: the usual. */
rps_status rps_device_watch(struct rps_device *device, struct rps_dump *dump,
        struct rps_error *error);
/** No longer. What still runs is waited for. */
void rps_device_unwatch(struct rps_device *device);

/** Where it lies that the host has at `at`; what is not copied there: `at`. */
uint64_t rps_device_place(const struct rps_device *device, const void *at);

/** Was its memory not enough once? */
bool rps_device_is_full(const struct rps_device *device);

/** What it did so far. */
struct rps_report_npu rps_device_tell(const struct rps_device *device);

#endif /* RPS_WORKER_DEVICE_H */
