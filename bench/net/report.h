/* SPDX-License-Identifier: Apache-2.0 */
/* What was measured, and how it is printed. bench/README.md explains each. */
#ifndef RPS_BENCH_NET_REPORT_H
#define RPS_BENCH_NET_REPORT_H

#include "bench/net/args.h"

/* X(name, words for people); NaN is "not measured", null in JSON. */
#define BENCH_NET_FIGURES(X)                                            \
    X(rows_per_second, "rows/s")                                        \
    X(bytes_per_second, "bytes/s, frames both ways")                    \
    X(p50_us, "a request, median, us")                                  \
    X(p99_us, "a request, p99, us")                                     \
    X(p999_us, "a request, p99.9, us")                                  \
    X(p999_over_p50, "p99.9 / median")                                  \
    X(client_cpu_seconds_per_million, "client CPU, s a million rows")   \
    X(server_cpu_seconds_per_million, "server CPU, s a million rows")   \
    X(request_bytes, "bytes of a request's frame")                      \
    X(reply_bytes, "bytes of a reply's frame")                          \
    X(bytes_saved, "bytes if each id were sent / bytes")                \
    X(stream_bytes_per_second, "bare stream, bytes/s")                  \
    X(stream_ratio, "bytes/s / the bare stream's")                      \
    X(gather_bytes_per_second, "bare stream of gathered rows, bytes/s") \
    X(gather_ratio, "bytes/s / that one's")                             \
    X(ping_p50_us, "bare ping-pong, median, us")                        \
    X(p50_over_ping, "median / the bare ping-pong's")                   \
    X(local_rows_per_second, "in process, rows/s")                      \
    X(over_local, "rows/s / in process")                                \
    X(tcp_rows_per_second, "tcp, rows/s")                               \
    X(over_tcp, "rows/s / tcp's")                                       \
    X(f32_rows_per_second, "f32 on the wire, rows/s")                   \
    X(over_f32, "rows/s / those of f32 on the wire")                    \
    X(lookup_rows_per_second, "lookups alone, rows/s")                  \
    X(over_lookup, "rows/s / those of lookups alone")                   \
    X(beside_rows_per_second, "the connection beside, rows/s")          \
    X(redis_rows_per_second, "redis, rows/s")                           \
    X(versus_redis, "rows/s / redis's")                                 \
    X(redis_depth, "redis, requests in flight (the best)")              \
    X(memcached_rows_per_second, "memcached, rows/s")                   \
    X(versus_memcached, "rows/s / memcached's")                         \
    X(memcached_depth, "memcached, requests in flight (the best)")      \
    X(checked_answers, "rows compared")

struct bench_net_report {
#define BENCH_FIELD(name, words) double name;
    BENCH_NET_FIGURES(BENCH_FIELD)
#undef BENCH_FIELD
};

/** Every figure NaN. */
void bench_net_report_init(struct bench_net_report *report);

/** To stdout. False: it could not be written. */
bool bench_net_report_print(const struct bench_net_report *report,
        const struct bench_net_args *args, uint64_t rows);

#endif /* RPS_BENCH_NET_REPORT_H */
