/* SPDX-License-Identifier: Apache-2.0 */
/* What was measured, and how it is printed. bench/README.md explains each. */
#ifndef RPS_BENCH_CHECKPOINT_REPORT_H
#define RPS_BENCH_CHECKPOINT_REPORT_H

#include "bench/checkpoint/args.h"

#include <stdbool.h>

/* X(name, words for people); NaN is "not measured", null in JSON. */
#define BENCH_CHECKPOINT_FIGURES(X)                                           \
    X(save_bytes, "bytes of a full save")                                     \
    X(save_seconds, "full save, s")                                           \
    X(save_bytes_per_second, "full save, bytes/s")                            \
    X(disk_write_bytes_per_second, "the disk: O_DIRECT writes, bytes/s")      \
    X(save_ratio, "save / disk")                                              \
    X(extra_rss_bytes, "largest RSS while saving, less before")               \
    X(restore_seconds, "restore, s")                                          \
    X(restore_bytes_per_second, "restore, bytes/s")                           \
    X(disk_read_bytes_per_second, "the disk: O_DIRECT reads, bytes/s")        \
    X(restore_ratio, "restore / disk")                                        \
    X(restore_extra_rss_bytes, "largest RSS while restoring, less after")     \
    X(cached_read_bytes_per_second, "reads from the page cache, bytes/s")     \
    X(verify_seconds, "verify, s")                                            \
    X(verify_bytes_per_second, "verify, bytes/s")                             \
    X(delta_rows, "rows of a delta")                                          \
    X(delta_bytes, "bytes of it")                                             \
    X(delta_seconds, "delta save, s")                                         \
    X(delta_bytes_per_second, "delta save, bytes/s")                          \
    X(delta_restore_seconds, "restore of full and delta, s")                  \
    X(push_peak_per_second, "pushes/s at the peak, as many lookups")          \
    X(push_p50_idle_us, "push, median, no save, us")                          \
    X(push_p99_idle_us, "push, p99, no save, us")                             \
    X(push_p50_saving_us, "push, median, while saving, us")                   \
    X(push_p99_saving_us, "push, p99, while saving, us")                      \
    X(push_p99_ratio, "push p99, saving / no save")                           \
    X(lookup_p50_idle_us, "lookup, median, no save, us")                      \
    X(lookup_p99_idle_us, "lookup, p99, no save, us")                         \
    X(lookup_p50_saving_us, "lookup, median, while saving, us")               \
    X(lookup_p99_saving_us, "lookup, p99, while saving, us")                  \
    X(lookup_p99_ratio, "lookup p99, saving / no save")                       \
    X(cut_pause_us, "longest pause of all pushes for a cut, us")              \
    X(saving_extra_rss_bytes, "largest RSS, save beside pushes, less before") \
    X(checked_restores, "restores whose digest was compared")

struct bench_checkpoint_report {
#define BENCH_FIELD(name, words) double name;
    BENCH_CHECKPOINT_FIGURES(BENCH_FIELD)
#undef BENCH_FIELD
};

/** Every figure NaN. */
void bench_checkpoint_report_init(struct bench_checkpoint_report *report);

/** To stdout. False: it could not be written. */
bool bench_checkpoint_report_print(const struct bench_checkpoint_report *report,
        const struct bench_checkpoint_args *args);

#endif /* RPS_BENCH_CHECKPOINT_REPORT_H */
