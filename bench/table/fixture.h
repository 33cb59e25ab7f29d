/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table full of known rows, the bare arrays beside it, and the buffers of a
 * batch. Filled in this order, so that what the table's fill adds to the
 * process's resident memory is the table's alone: the bare rows, every buffer
 * (touched), RSS, the table, RSS, then the line array of the index's size.
 */
#ifndef RPS_BENCH_TABLE_FIXTURE_H
#define RPS_BENCH_TABLE_FIXTURE_H

#include "bench/table/args.h"
#include "bench/table/gather.h"
#include "bench/table/report.h"
#include "embedding/table.h"

struct bench_batch {
    size_t n;
    uint32_t *rows;         /* [n] */
    uint64_t *keys;         /* [n] */
    const void **addresses; /* [n] */
    uint64_t *sums;         /* [n] */
    uint32_t *counts;       /* [n] */
    float *out;             /* [n][dim] */
    float *wanted;          /* [n][dim] */
    float *starts;          /* [n][dim] */
    float *gradients;       /* [n][dim] */
};

/** Touched. Errors: NOMEM. */
rps_status bench_batch_init(struct bench_batch *batch, size_t n, uint32_t dim);
void bench_batch_finish(struct bench_batch *batch);

struct bench_fixture {
    const struct bench_table_args *args;
    const struct bench_keyset *set;
    struct bench_report *report;
    rps_table_spec spec;
    uint32_t dim;
    struct rps_table *table;
    struct bench_arrays arrays;
    uint32_t *counts; /* [rows] pushes that each row took */
    size_t hot_places;
};

/** Errors: NOMEM, what the table says. Fills in overhead and bytes. */
rps_status bench_fixture_init(struct bench_fixture *fixture,
        const struct bench_table_args *args, const struct bench_keyset *set,
        struct bench_report *report);
void bench_fixture_finish(struct bench_fixture *fixture);

/** keys[i] of rows[i]. */
void bench_batch_keys(
        const struct bench_fixture *fixture, struct bench_batch *batch);

/** gradients[i] and one count more for rows[i] (a hot row once). */
void bench_batch_gradients(
        struct bench_fixture *fixture, struct bench_batch *batch);

/** One push of the batch: each row's gradient (model.h). */
rps_status bench_batch_push(struct rps_table *table,
        const struct bench_batch *batch, struct rps_error *error);

struct bench_model;

/**
 * out[n][dim] against what the rows must hold after counts[rows[i]] pushes.
 * Errors: CORRUPT, NOMEM.
 */
rps_status bench_batch_check(struct bench_fixture *fixture,
        struct bench_batch *batch, struct bench_model *model);

/** Every row of the table, at the end. */
rps_status bench_fixture_check_all(
        struct bench_fixture *fixture, struct bench_model *model);

/** Payload of a row: dim values and f32 slots. */
size_t bench_payload_bytes(const rps_table_spec *spec);

/** Rows first..first + n - 1 of the set, with their pattern. */
rps_status bench_fill(struct rps_table *table, const struct bench_keyset *set,
        uint64_t first, uint64_t n, struct bench_batch *batch,
        struct rps_error *error);

#endif /* RPS_BENCH_TABLE_FIXTURE_H */
