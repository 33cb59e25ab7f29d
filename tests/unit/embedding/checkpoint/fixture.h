/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job of a few PS without a network: stores filled with rows that follow
 * from their keys, saved in two phases by a chief that is a function.
 */
#ifndef TESTS_CHECKPOINT_FIXTURE_H
#define TESTS_CHECKPOINT_FIXTURE_H

#include "embedding/checkpoint/checkpoint.h"
#include "tests/unit/folder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PARTS_MAX 8u
#define JOB_SEED  77u

struct job {
    char dir[PARTS_MAX][256]; /* [part]: all the same, or one each */
    uint32_t parts;
    uint32_t epoch;
    uint64_t seed;
    struct rps_store *stores[PARTS_MAX];
};

/**
 * Empty stores of n PS; dirs[n], or one for all. Tables: "emb" (adagrad),
 * "lazy" (adam), "plain" (sgd), "empty", "wide" (above 2 MiB in each of 2
 * parts), "w" (dense), "counted" (counts of keys without a row, and no row);
 * "half" (float16, momentum), "brain" (bfloat16, rowwise_adagrad), "follow"
 * (ftrl), "nothing" (adamw_catchup, float16, no row); "brain" and
 * "emb" have such counts too, "plain" a sketch. fill() writes them.
 */
void job_make(struct job *job, const char *dir, uint32_t parts);
/** With another job seed than JOB_SEED. */
void job_make_seeded(
        struct job *job, const char *dir, uint32_t parts, uint64_t seed);
void job_fill(struct job *job);
/** First of the two verdicts that job_save() saves. */
extern struct rps_lane_record job_first_lane;
void job_finish(struct job *job);

struct rps_checkpoint_id job_id(
        const struct job *job, uint64_t step, uint32_t part);
bool owns(const struct job *job, uint32_t part, uint64_t hash);

/** PREPARE at every PS and the manifest that a chief makes of it; free(). */
char *job_prepare(const struct job *job, uint64_t step);
rps_status job_commit(const struct job *job, uint64_t step, uint32_t keep,
        const char *manifest, struct rps_error *error);
void job_save(const struct job *job, uint64_t step, uint32_t keep);
/** The same, by a chief whose servers may fail: it gives the save up then. */
rps_status job_try_save(const struct job *job, uint64_t step, uint32_t keep,
        struct rps_error *error);

/** RESTORE at one PS; its store must be empty. */
rps_status job_restore_part(
        struct job *job, uint64_t step, uint32_t part, struct rps_error *error);
/** At every PS; fails the test if one fails. */
void job_restore(struct job *job, uint64_t step);

/**
 * Every row is the one that job_fill() wrote, and none is missing; the same
 * of the counts of keys without a row, at the PS that owns them.
 */
void job_check_rows(const struct job *job);

/** Sum over the PS of a table's digests. */
struct rps_digest job_digest(const struct job *job, const char *table);

#endif /* TESTS_CHECKPOINT_FIXTURE_H */
