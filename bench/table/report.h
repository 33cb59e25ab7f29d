/* SPDX-License-Identifier: Apache-2.0 */
/* What was measured, and how it is printed. bench/README.md explains each. */
#ifndef RPS_BENCH_TABLE_REPORT_H
#define RPS_BENCH_TABLE_REPORT_H

#include "bench/table/args.h"

/* X(name, words for people); NaN is "not measured", null in JSON. */
#define BENCH_FIGURES(X)                                             \
    X(lookup_ns, "lookup, ns a key")                                 \
    X(push_ns, "push, ns a key")                                     \
    X(insert_ns, "insert by pushes of 256, ns a key")                \
    X(index_gather_ns, "bare gather of a line, ns a key")            \
    X(row_gather_ns, "bare gather of the row, ns a key")             \
    X(absl_ns, "absl::flat_hash_map, ns a key")                      \
    X(libcuckoo_ns, "libcuckoo, ns a key")                           \
    X(lookup_over_limit, "lookup / (line + row gather)")             \
    X(push_over_lookup, "push / lookup, interleaved")                \
    X(lookup_vs_absl, "lookup rate / absl's")                        \
    X(lookup_vs_libcuckoo, "lookup rate / libcuckoo's")              \
    X(lookup_scaling, "lookup rate, all threads / one")              \
    X(gather_scaling, "gather rate, all threads / one")              \
    X(scaling_vs_gather, "lookup scaling / gather scaling")          \
    X(hot_lookup_ratio, "lookup rate, hot / uniform")                \
    X(hot_push_ratio, "push rate, hot / uniform")                    \
    X(mix_keys_per_second, "keys/s of the mix")                      \
    X(overhead_bytes_per_row, "resident bytes a row beyond payload") \
    X(insert_batch_p50_us, "insert batch, median, CPU us")           \
    X(insert_batch_p9999_us, "insert batch, p99.99, CPU us")         \
    X(insert_batch_max_us, "insert batch, largest, CPU us")          \
    X(insert_batch_once_max_us, "the same in any of three growths")  \
    X(insert_batch_p50_wall_us, "insert batch, median, wall us")     \
    X(insert_batch_p9999_wall_us, "insert batch, p99.99, wall us")   \
    X(insert_batch_max_wall_us, "insert batch, largest, wall us")    \
    X(insert_p9999_over_p50, "insert batch, p99.99 / median, CPU")   \
    X(grow_peak_ratio, "largest RSS while growing / at the end")     \
    X(index_bytes, "bytes of the index")                             \
    X(table_bytes, "bytes of the table")                             \
    X(overhead_mean, "overhead over all sizes, mean")                \
    X(overhead_max, "overhead over all sizes, largest")              \
    X(drop_rss_growth_bytes, "RSS growth over 50 tables dropped")    \
    X(evict_rss_ratio, "RSS after evicting 90 % / payload before")   \
    X(evict_reuse_ratio, "RSS after refilling / RSS before")         \
    X(checked_answers, "answers checked")

#define BENCH_SWEEP_POINTS_MAX 16000u

/** One size of a sweep. */
struct bench_point {
    uint32_t dim;
    uint64_t rows;
    double overhead;
};

/** Plain memory, so that a child process can fill it in. */
struct bench_report {
#define BENCH_FIELD(name, words) double name;
    BENCH_FIGURES(BENCH_FIELD)
#undef BENCH_FIELD
    unsigned index_distance; /* prefetch distance that was best */
    unsigned row_distance;
    unsigned absl_distance;
    char absl[64]; /* which form of it; empty: none */
    char libcuckoo[64];
    struct bench_point points[BENCH_SWEEP_POINTS_MAX];
    size_t point_count;
    struct rps_error error;
};

/** Every figure NaN. */
void bench_report_init(struct bench_report *report);

/** To stdout. False: it could not be written. */
bool bench_report_print(const struct bench_report *report,
        const struct bench_table_args *args, uint64_t rows);

#endif /* RPS_BENCH_TABLE_REPORT_H */
