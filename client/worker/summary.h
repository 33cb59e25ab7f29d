/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scalars in TensorBoard's event format: TFRecord frames (length, masked
 * CRC32C of it, bytes, masked CRC32C of them) around Event messages.
 */
#ifndef RPS_WORKER_SUMMARY_H
#define RPS_WORKER_SUMMARY_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct rps_summary;

struct rps_scalar {
    const char *tag; /* at most RPS_SUMMARY_TAG_BYTES_MAX */
    double value;
};

#define RPS_SUMMARY_TAG_BYTES_MAX 100u
#define RPS_SUMMARY_SCALARS_MAX   8u

/** Make the folder and events.out.tfevents.<seconds>.<host> in it. */
rps_status rps_summary_create(struct rps_summary **summary_out,
        const char *folder, struct rps_error *error);

/** One event; written when it is added, whole. */
rps_status rps_summary_add(struct rps_summary *summary, uint64_t step,
        const struct rps_scalar *scalars, size_t count,
        struct rps_error *error);

/** What was added for `step` and later ones is void: TensorBoard drops it. */
rps_status rps_summary_restart(
        struct rps_summary *summary, uint64_t step, struct rps_error *error);

rps_status rps_summary_close(
        struct rps_summary *summary, struct rps_error *error);

/** CRC32C (Castagnoli), and the form in which TFRecord stores it. */
uint32_t rps_crc32c(const void *bytes, size_t length);
uint32_t rps_crc32c_masked(const void *bytes, size_t length);

#endif /* RPS_WORKER_SUMMARY_H */
