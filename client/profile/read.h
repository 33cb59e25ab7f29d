/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace in Chrome's format, added up: one of ours, or one that PyTorch's
 * profiler wrote (export_chrome_trace). Files come from anywhere.
 */
#ifndef RPS_PROFILE_READ_H
#define RPS_PROFILE_READ_H

#include "base/error.h"
#include "client/profile/totals.h"

#include <stdbool.h>

/** What a file is. */
struct rps_trace_info {
    bool is_ours;
    bool is_torch;
    uint64_t spans;
    uint64_t dropped; /* spans that are missing, as the file says */
};

/** How far it is, in bytes. */
typedef void (*rps_trace_progress_fn)(
        void *context, uint64_t done, uint64_t total);

/**
 * Add a file's spans and steps to *totals. Tracks get `prefix` before their
 * names, so that those of two files are not one.
 *
 * Errors: NOT_FOUND, IO, CORRUPT (its place is in the words), LIMIT, NOMEM.
 */
rps_status rps_trace_read(const char *path, const char *prefix,
        struct rps_totals *totals, struct rps_trace_info *info,
        rps_trace_progress_fn progress, void *context, struct rps_error *error);

#endif /* RPS_PROFILE_READ_H */
