/* SPDX-License-Identifier: Apache-2.0 */
/* Leaves the event file of a short run in a folder, for check_events.py. */
#include "client/worker/report.h"

#include <math.h>
#include <stdio.h>

static rps_status
write_run(struct rps_report *report, struct rps_error *error)
{
    static const double losses[] = {0.5, 0.693147180559945, (double)NAN};
    const struct rps_report_end end = {.has_auc = true,
            .auc = 0.75,
            .has_log_loss = true,
            .log_loss = 0.25,
            .steps = 3};
    rps_status status = RPS_OK;
    uint64_t i;

    for (i = 0; status == RPS_OK && i < 3; i++) {
        struct rps_report_step step = {.step = i + 1,
                .loss = losses[i],
                .samples = 128,
                .sparse_lr = 0.02,
                .dense_lr = 0.001};

        status = rps_report_step(report, &step, error);
    }
    return status == RPS_OK ? rps_report_done(report, &end, error) : status;
}

int
main(int argc, char **argv)
{
    struct rps_report_options options = {.log_every = 1};
    struct rps_report *report = NULL;
    struct rps_error error = {""};
    rps_status status;

    if (argc != 2) {
        fprintf(stderr, "usage: write_events FOLDER\n");
        return 2;
    }
    options.summary_dir = argv[1];
    status = rps_report_create(&report, &options, &error);
    if (status == RPS_OK) {
        status = write_run(report, &error);
    }
    rps_report_destroy(report);
    if (status != RPS_OK) {
        fprintf(stderr, "%s\n", error.text);
    }
    return status == RPS_OK ? 0 : 1;
}
