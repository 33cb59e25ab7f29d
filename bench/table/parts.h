/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the benchmark. Each fills its figures into the report, checks
 * every answer outside of the timing, and returns CORRUPT with words in
 * report->error on a wrong one.
 */
#ifndef RPS_BENCH_TABLE_PARTS_H
#define RPS_BENCH_TABLE_PARTS_H

#include "bench/model.h"
#include "bench/table/fixture.h"

/** A part ends after so many times --seconds with its checks, however little
 * of that was timed: of small batches nearly nothing is. */
#define BENCH_WALL_MOST 5.0

/** Lookup, both bare gathers and the peers, interleaved batch by batch. */
rps_status bench_part_lookup(struct bench_fixture *fixture);

/** Push beside lookup, interleaved. */
rps_status bench_part_push(
        struct bench_fixture *fixture, struct bench_model *model);

/** All threads against one, for lookups and for the bare gathers. */
rps_status bench_part_scaling(struct bench_fixture *fixture);

/** One key in hot:P of all places against uniform keys, all threads. */
rps_status bench_part_hot(struct bench_fixture *fixture);

/** New keys by pushes of 256 into a table that grows to all rows. */
rps_status bench_part_insert(const struct bench_table_args *args,
        const struct bench_keyset *set, struct bench_report *report);

/** Weighted lookups, pushes and inserts, each thread on rows of its own. */
rps_status bench_part_mix(struct bench_fixture *fixture);

/** Overhead at several sizes of a growing table, for each dim. */
rps_status bench_part_sweep(const struct bench_table_args *args,
        const struct bench_keyset *set, struct bench_report *report);

/** What evicting nine rows of ten gives back, and whether it is reused. */
rps_status bench_part_evict(const struct bench_table_args *args,
        const struct bench_keyset *set, struct bench_report *report);

/** Tables created, filled and dropped. */
rps_status bench_part_memory(const struct bench_table_args *args,
        const struct bench_keyset *set, struct bench_report *report);

#endif /* RPS_BENCH_TABLE_PARTS_H */
