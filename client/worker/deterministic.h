/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --deterministic: what it refuses, in words that say why. What it promises
 * is how the loop works anyway: bags are pooled here in their order, steps
 * are combined in rank order, and no stage changes a bit.
 */
#ifndef RPS_WORKER_DETERMINISTIC_H
#define RPS_WORKER_DETERMINISTIC_H

#include "base/error.h"

#include <recps/client.h>
#include <recps/types.h>

/** Terms of a job, this replica's or the chief's. INVAL. */
rps_status rps_deterministic_check_terms(
        const rps_terms *terms, struct rps_error *error);

/** Threads of the dense kernels. INVAL. */
rps_status rps_deterministic_check_threads(
        uint64_t blas_threads, struct rps_error *error);

/** A table of the model. INVAL names it. */
rps_status rps_deterministic_check_table(
        const rps_table_spec *spec, struct rps_error *error);

#endif /* RPS_WORKER_DETERMINISTIC_H */
