/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rows a batch asks for: row numbers of the key set, drawn before the
 * clock starts.
 */
#ifndef RPS_BENCH_TABLE_DIST_H
#define RPS_BENCH_TABLE_DIST_H

#include "bench/table/keyset.h"

#include <stdbool.h>

enum bench_dist_kind {
    BENCH_DIST_UNIFORM,
    BENCH_DIST_ZIPF, /* the row of rank k: as 1 / k^skew */
    BENCH_DIST_HOT,  /* row 0 in `percent` of all places, the rest uniform */
    BENCH_DIST_SEQ,
    BENCH_DIST_TRACE
};

struct bench_dist_spec {
    enum bench_dist_kind kind;
    double skew;
    double percent;
    const char *path; /* of the trace */
};

/** "uniform", "zipf:1.1", "hot:50", "seq", "trace:FILE". */
bool bench_dist_parse(const char *text, struct bench_dist_spec *spec);

/**
 * A stream of draws. Without `distinct` a row may come twice in a batch; with
 * it only the hot row does.
 */
struct bench_dist {
    struct bench_dist_spec spec;
    const struct bench_keyset *set;
    uint64_t rows; /* local rows: drawn r is row r * lanes + lane */
    uint64_t lanes;
    uint64_t lane;
    uint64_t seed;
    uint64_t draws;
    uint64_t next;     /* seq and trace */
    uint64_t scramble; /* coprime to rows: spreads ranks over the rows */
    double zipf_low;   /* of the rejection-inversion */
    double zipf_high;
    double zipf_cut;
    uint32_t *seen; /* [seen_mask + 1] row + 1, or 0 */
    size_t seen_mask;
};

/**
 * Draw from the rows r with r mod lanes == lane; batch is the largest n of
 * bench_dist_draw(). False: no memory.
 */
bool bench_dist_init(struct bench_dist *dist,
        const struct bench_dist_spec *spec, const struct bench_keyset *set,
        uint64_t seed, size_t batch);
void bench_dist_limit(struct bench_dist *dist, uint64_t lanes, uint64_t lane);
void bench_dist_finish(struct bench_dist *dist);

/** rows_out[n]. distinct needs n <= rows (hot: rows - 1 and the hot places). */
void bench_dist_draw(
        struct bench_dist *dist, size_t n, bool distinct, uint32_t *rows_out);

/** Whether place i of a batch of n is the hot row's. */
bool bench_dist_is_hot(const struct bench_dist *dist, size_t n, size_t i);

/** Places of the hot row in a batch of n; 0 in other distributions. */
size_t bench_dist_hot_places(const struct bench_dist *dist, size_t n);

#endif /* RPS_BENCH_TABLE_DIST_H */
