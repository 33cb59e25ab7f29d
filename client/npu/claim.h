/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process has a device: a lock of the system on a file
 * <folder>/recps-npu-<host>-<id>, where the folder is /dev/shm (or /tmp), and
 * <host> the simulated host (RPS_NPU_HOST; absent: "0"). The system takes it
 * back when the process ends, however it ends, and a child does not inherit
 * it. The file itself means nothing.
 *
 * Threads: any.
 */
#ifndef RPS_NPU_CLAIM_H
#define RPS_NPU_CLAIM_H

#include <recps/status.h>

#include <stdint.h>

/**
 * Errors, with words (rps_npu_error): MISMATCH (taken; the words name the
 * process), INVAL (RPS_NPU_HOST is no name), IO (no file to lock).
 */
rps_status rps_npu_claim(uint32_t id);

/** What this process claimed. */
void rps_npu_disclaim(uint32_t id);

#endif /* RPS_NPU_CLAIM_H */
