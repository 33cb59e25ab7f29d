/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bare rows, as many and as long as those of the table: what a message is
 * gathered from where the bare stream does that, too. Each reader has a pool of
 * places drawn before, and goes through it over and over.
 */
#ifndef RPS_BENCH_NET_ROWS_H
#define RPS_BENCH_NET_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Threads: any number of readers. */
struct bench_rows {
    uint64_t count; /* 0: none; nothing is gathered */
    size_t row_bytes;
    char *rows; /* [count][row_bytes], in huge pages */
};

/** A reader; zeroed and finished is fine. */
struct bench_rows_reader {
    const struct bench_rows *rows;
    const void **pool; /* [BENCH_ROWS_POOL] */
    size_t at;
};

#define BENCH_ROWS_POOL (1u << 18)

/** Makes `rows` of count and row_bytes, touched. false: no memory. */
bool bench_rows_init(struct bench_rows *rows);
void bench_rows_finish(struct bench_rows *rows);

/** false: no memory. */
bool bench_rows_reader_init(struct bench_rows_reader *reader,
        const struct bench_rows *rows, uint64_t seed);
void bench_rows_reader_finish(struct bench_rows_reader *reader);

/** As many rows as fit, to the end of bytes[n]. */
void bench_rows_gather(struct bench_rows_reader *reader, char *bytes, size_t n);

#endif /* RPS_BENCH_NET_ROWS_H */
