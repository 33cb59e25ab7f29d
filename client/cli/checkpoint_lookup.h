/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RPS_CLIENT_CLI_CHECKPOINT_LOOKUP_H
#define RPS_CLIENT_CLI_CHECKPOINT_LOOKUP_H

#include "client/cli/keys.h"

/**
 * recps lookup --checkpoint PATH: rows of a table by key, without a job.
 * `print` gets them in the order of the keys, with a row's presence; an absent
 * key has the table's default vector, as a running job answers. Returns an
 * exit code.
 */
int rps_checkpoint_lookup(const char *path, const char *table,
        const struct rps_keys *keys,
        void (*print)(void *context, uint32_t dim, uint64_t key,
                const float *row, bool present),
        void *context);

#endif /* RPS_CLIENT_CLI_CHECKPOINT_LOOKUP_H */
