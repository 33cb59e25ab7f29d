/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rows a batch asks for: row numbers of the key set, drawn before the
 * clock starts.
 */
#ifndef RPS_BENCH_DIST_H
#define RPS_BENCH_DIST_H

#include "bench/keyset.h"

#include <stdbool.h>

enum bench_dist_kind {
    BENCH_DIST_UNIFORM,
    BENCH_DIST_ZIPF, /* the row of rank k: as 1 / k^skew */
    BENCH_DIST_HOT,  /* row 0 in `percent` of all places, the rest uniform */
    BENCH_DIST_SEQ,
    BENCH_DIST_TRACE,
    BENCH_DIST_REUSE /* rows used as often within a batch as a histogram says */
};

#define BENCH_REUSE_BINS_MAX 64u

/** Rows that are used about so often within a batch. */
struct bench_reuse_bin {
    double uses;    /* of one row */
    double lookups; /* share of all lookups */
};

struct bench_dist_spec {
    enum bench_dist_kind kind;
    double skew;
    double percent;
    const char *path; /* of the trace or the histogram */
    struct bench_reuse_bin bins[BENCH_REUSE_BINS_MAX];
    size_t bin_count;
};

/** "uniform", "zipf:1.1", "hot:50", "seq", "trace:FILE", "reuse:FILE". */
bool bench_dist_parse(const char *text, struct bench_dist_spec *spec);

/**
 * Reads the histogram of "reuse:FILE", if that is the distribution: a line a
 * bin, uses above, uses up to (or inf), share of the distinct rows, share of
 * the lookups, with tabs or blanks between; # begins a comment.
 * Errors: INVAL (naming file and line), NOMEM.
 */
rps_status bench_dist_load(
        struct bench_dist_spec *spec, struct rps_error *error);

/** The path of the trace, or NULL. */
static inline const char *
bench_dist_trace(const struct bench_dist_spec *spec)
{
    return spec->kind == BENCH_DIST_TRACE ? spec->path : NULL;
}

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

/** bench_dist_draw() of "reuse:FILE": n places, in random order. */
void bench_reuse_draw(struct bench_dist *dist, size_t n, uint32_t *rows_out);

/** 64 random bits, and a number in [0, n), n < 2^32. */
uint64_t bench_dist_bits(struct bench_dist *dist);
uint64_t bench_dist_below(struct bench_dist *dist, uint64_t n);

/** Whether place i of a batch of n is the hot row's. */
bool bench_dist_is_hot(const struct bench_dist *dist, size_t n, size_t i);

/** Places of the hot row in a batch of n; 0 in other distributions. */
size_t bench_dist_hot_places(const struct bench_dist *dist, size_t n);

#endif /* RPS_BENCH_DIST_H */
