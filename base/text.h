/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text that grows, and numbers read from text with every character checked.
 */
#ifndef RPS_BASE_TEXT_H
#define RPS_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A growing string; zeroed is empty. `failed`: an allocation failed. */
struct rps_text {
    char *bytes; /* NUL-terminated once something was added */
    size_t length;
    size_t capacity;
    bool failed;
};

void rps_text_add(struct rps_text *text, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
void rps_text_add_bytes(struct rps_text *text, const void *bytes, size_t n);
void rps_text_finish(struct rps_text *text);

/** Whole-string parsers: false on any other character or a range error. */
bool rps_parse_u64(const char *text, uint64_t *out);
bool rps_parse_i64(const char *text, int64_t *out);
bool rps_parse_double(const char *text, double *out); /* finite, decimal */
bool rps_parse_hex64(const char *text, uint64_t *out);

/** "64k", "256MiB", "1g": powers of 1024; false if not such a size. */
bool rps_parse_bytes(const char *text, uint64_t *out);

/** "1.5 GiB", "312 B": for people. Returns `out`. */
char *rps_format_bytes(uint64_t bytes, char out[32]);

/** For "did you mean": the nearest name within a third of the longer word's
 * length (1 at least, 3 at most), or NULL. */
const char *rps_nearest_name(
        const char *word, const char *const *names, size_t count);

/** printf into a new string, or NULL. */
char *rps_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif /* RPS_BASE_TEXT_H */
