/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orphan parts (embedding/checkpoint/orphan.h) as recps restore takes them:
 * found, checked, brought into the folder of a checkpoint to be, committed.
 */
#ifndef RPS_CLIENT_CLI_ORPHANS_H
#define RPS_CLIENT_CLI_ORPHANS_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** One part; the newest that its server wrote. */
struct rps_orphan {
    const char *dir; /* checkpoint_dir; borrowed */
    char *path;      /* of the part's folder; NULL: there is none */
    json_t *about;   /* orphan.json */
    json_t *part;    /* the part file, as it will be */
    json_t *answer;  /* what PREPARE would have answered; NULL: not staged */
    uint64_t step;
    uint32_t epoch;
};

/** All parts of one job. */
struct rps_orphans {
    struct rps_orphan *at; /* [parts] */
    uint32_t parts;        /* 0: none found */
    uint64_t step;         /* of the checkpoint: the largest of a part */
    uint32_t epoch;        /* one above that of the parts */
    const char *job_id;
    uint64_t job_seed;
    bool is_sync; /* they are of one instant */
};

/**
 * The newest parts below these folders. Errors: NOT_FOUND (none, or one of a
 * part is missing; named), MISMATCH (they are not of one run, or in sync not
 * of one step; or a checkpoint is newer than they are), CORRUPT, IO, NOMEM.
 */
rps_status rps_orphans_find(struct rps_orphans *orphans,
        const char *const *dirs, size_t count, struct rps_error *error);

/** Their files into .tmp-ckpt-<step>-<epoch>, with part files that say so. */
rps_status rps_orphans_stage(
        struct rps_orphans *orphans, struct rps_error *error);

/** It is a checkpoint from here on; the orphans are removed. */
rps_status rps_orphans_commit(struct rps_orphans *orphans, const char *manifest,
        struct rps_error *error);

void rps_orphans_finish(struct rps_orphans *orphans);

#endif /* RPS_CLIENT_CLI_ORPHANS_H */
