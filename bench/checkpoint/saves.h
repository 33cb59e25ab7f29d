/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table full of known rows, saved, restored and verified through
 * embedding/checkpoint/ alone. What is removed, filled, digested and compared
 * is outside of the timing.
 */
#ifndef RPS_BENCH_CHECKPOINT_SAVES_H
#define RPS_BENCH_CHECKPOINT_SAVES_H

#include "bench/checkpoint/args.h"
#include "bench/checkpoint/manifest.h"
#include "bench/checkpoint/report.h"
#include "bench/keyset.h"
#include "bench/memory.h"
#include "embedding/store.h"

#include <pthread.h>

struct bench_saves {
    const struct bench_checkpoint_args *args;
    struct bench_checkpoint_report *report;
    struct bench_keyset set;
    struct rps_store *store;
    struct rps_table *table;
    /* Whoever changes the table has it shared, a cut exclusively. */
    pthread_rwlock_t changing;
    struct bench_parent parent; /* the newest save */
    /* Warm memory, for the rows of the next restore: on a virtual machine
     * memory that was free for some seconds costs more than the disk. */
    struct bench_reserve reserve;
    char folder[256]; /* made below args->dir; empty: not yet */
    struct rps_error error;
};

/** Errors, here and below: words in saves->error. */
rps_status bench_saves_init(struct bench_saves *saves,
        const struct bench_checkpoint_args *args,
        struct bench_checkpoint_report *report);
void bench_saves_finish(struct bench_saves *saves);

/** One save, from its cut to the folder with its name. */
struct bench_saved {
    double seconds;
    double pause;   /* of it, in which nothing may change: the cut */
    uint64_t bytes; /* of all its files */
    uint64_t rows;
    double extra_rss; /* largest RSS meanwhile, less before; NaN: unknown */
};

/** Full, or what changed since the newest save, on which it stands. */
rps_status bench_saves_write(struct bench_saves *saves, uint64_t step,
        bool is_delta, struct bench_saved *saved);

struct bench_restored {
    double seconds;
    double extra_rss; /* largest RSS meanwhile, less after; NaN: unknown */
};

/**
 * Into an empty store. CORRUPT where its digest is not the table's, of which
 * `same` says that it was not changed since; where it was, the digest is
 * only compared with the manifest's, by bench_saves_verify().
 */
rps_status bench_saves_restore(struct bench_saves *saves, uint64_t step,
        bool same, struct bench_restored *restored);
rps_status bench_saves_verify(struct bench_saves *saves, uint64_t step,
        double *seconds_out, uint64_t *bytes_out);

/** Not timed: the checkpoint goes. */
rps_status bench_saves_remove(struct bench_saves *saves, uint64_t step);

#endif /* RPS_BENCH_CHECKPOINT_SAVES_H */
