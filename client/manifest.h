/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest of a checkpoint, from what every PS answered to PREPARE. It
 * needs no disk: the servers write its bytes.
 */
#ifndef RPS_CLIENT_MANIFEST_H
#define RPS_CLIENT_MANIFEST_H

#include "base/error.h"

#include <jansson.h>
#include <stdint.h>

/** What is in it, of all parts. */
struct rps_manifest_sums {
    uint64_t rows;
    uint64_t erased;
    uint64_t bytes; /* of the parts' files */
};

struct rps_manifest_plan {
    uint64_t step;
    uint32_t epoch;
    const char *job_id;
    uint64_t job_seed;
    const json_t *data_position; /* NULL: none */
    const char *parent_name;     /* of a delta; NULL: it is a full one */
    const char *parent_digest;   /* likewise */
    json_t *const *answers;      /* [parts]: PREPARE's, by PS */
    uint32_t parts;
    struct rps_manifest_sums *sums; /* are filled in; NULL: never mind */
};

/**
 * New text; free(). CORRUPT, MISMATCH: an answer is malformed or parts do
 * not belong together; the words name PS and field.
 */
rps_status rps_manifest_build(const struct rps_manifest_plan *plan,
        char **text_out, struct rps_error *error);

#endif /* RPS_CLIENT_MANIFEST_H */
