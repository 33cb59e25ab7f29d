/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --admin of recps-train: an HTTP port with what this worker does (/metrics for
 * Prometheus, /statz for recps top, /livez). Its thread looks at what the loop
 * leaves it after each step, and never waits for the loop, nor the loop for it.
 */
#ifndef RPS_WORKER_ADMIN_PORT_H
#define RPS_WORKER_ADMIN_PORT_H

#include "client/worker/report.h"
#include "client/worker/settings.h"
#include "client/worker/spent.h"
#include "client/worker/usage.h"

struct rps_admin_port;

/** What a step leaves. */
struct rps_admin_step {
    uint64_t step;
    uint32_t epoch; /* of the job */
    double loss;
    uint64_t samples; /* of this replica, in this step */
    const struct rps_spent *spent;
    struct rps_report_cache cache; /* of the device; capacity 0: none */
};

/** Read a device; false: it cannot be asked now. Any thread. */
typedef bool (*rps_admin_device_fn)(
        void *context, struct rps_usage_device *device);

/**
 * Open it where --admin asks for it; *port_out is NULL where not. A port in use
 * is tried for a few seconds: often it is that of our predecessor.
 *
 * Errors: INVAL (no address), UNREACHABLE (in use), IO, NOMEM.
 */
rps_status rps_admin_port_open(struct rps_admin_port **port_out,
        const struct rps_settings *settings, struct rps_error *error);

/** A step has ended. The loop's thread. NULL is allowed. */
void rps_admin_port_step(
        struct rps_admin_port *port, const struct rps_admin_step *step);

/** Who answers for the device; NULL: it is gone. NULL ports are allowed. */
void rps_admin_port_device(
        struct rps_admin_port *port, rps_admin_device_fn read, void *context);

/** NULL is allowed. */
void rps_admin_port_close(struct rps_admin_port *port);

#endif /* RPS_WORKER_ADMIN_PORT_H */
