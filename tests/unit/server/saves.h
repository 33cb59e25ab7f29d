/* SPDX-License-Identifier: Apache-2.0 */
/* SAVE as a chief of a job with one PS sends it. */
#ifndef RPS_TESTS_UNIT_SERVER_SAVES_H
#define RPS_TESTS_UNIT_SERVER_SAVES_H

#include "tests/unit/server/fixture.h"

struct rps_header save_header(struct peer *peer, uint64_t step);

/** The manifest that PREPARE's answer makes; of a delta on a parent, or (NULL)
 * full. free() it. */
char *manifest_on(const char *prepared, uint64_t step, uint32_t epoch,
        const char *parent, const char *parent_digest);
char *manifest_of(const char *prepared, uint64_t step, uint32_t epoch);

void commit_save(struct peer *peer, uint64_t step, const char *manifest);

/** PREPARE and COMMIT. */
void save(struct peer *peer, uint64_t step);

#endif /* RPS_TESTS_UNIT_SERVER_SAVES_H */
