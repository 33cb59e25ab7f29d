/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON of any size, a value at a time: what holds the values (an array, an
 * object) is walked through here, a value is taken whole and read by Jansson.
 *
 * Threads: one at a time.
 */
#ifndef RPS_PROFILE_JSON_STREAM_H
#define RPS_PROFILE_JSON_STREAM_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_JSON_VALUE_BYTES_MAX (1u << 20) /* that is taken whole */
#define RPS_JSON_SKIP_DEPTH_MAX  512u       /* of one that is passed over */

struct rps_json_stream {
    int fd;
    const char *path; /* borrowed; for words */
    char *buffer;
    size_t at;
    size_t filled;
    uint64_t offset; /* of the byte buffer[at] in the file */
    uint64_t line;   /* that it stands in, from 1 on */
    char *value;     /* the one in hand */
    size_t value_length;
    size_t value_capacity;
};

/** Errors: NOT_FOUND, IO, NOMEM, CORRUPT (compressed). */
rps_status rps_json_stream_open(struct rps_json_stream *stream,
        const char *path, struct rps_error *error);

/** A zeroed one with fd -1 is fine. */
void rps_json_stream_close(struct rps_json_stream *stream);

/** The next byte that is no blank, which stays; -1: the end. */
rps_status rps_json_stream_peek(
        struct rps_json_stream *stream, int *byte_out, struct rps_error *error);

/** Take this byte, blanks before it. CORRUPT: another one stands there. */
rps_status rps_json_stream_take(
        struct rps_json_stream *stream, char byte, struct rps_error *error);

/**
 * Take a whole value.
 *
 * Owns:   *value_out is a new reference.
 * Errors: CORRUPT (no JSON, with its place), LIMIT (of bytes), NOMEM, IO.
 */
rps_status rps_json_stream_value(struct rps_json_stream *stream,
        json_t **value_out, struct rps_error *error);

/** Pass over a value of any size. Only its brackets and strings are looked at.
 */
rps_status rps_json_stream_skip(
        struct rps_json_stream *stream, struct rps_error *error);

/** Another value follows? Takes the comma, or `close`, behind one. `first`:
 * none was taken yet. */
rps_status rps_json_stream_more(struct rps_json_stream *stream, char close,
        bool first, bool *more_out, struct rps_error *error);

/** Fail with "PATH: line N: WORDS". */
rps_status rps_json_stream_fail(const struct rps_json_stream *stream,
        rps_status status, struct rps_error *error, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

#endif /* RPS_PROFILE_JSON_STREAM_H */
