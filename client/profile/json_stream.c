/* SPDX-License-Identifier: Apache-2.0 */
#include "client/profile/json_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES (256u << 10)
#define KEEP_BYTES   (64u << 10) /* of room for values, from one to the next */

rps_status
rps_json_stream_fail(const struct rps_json_stream *stream, rps_status status,
        struct rps_error *error, const char *format, ...)
{
    char words[512];
    va_list list;

    va_start(list, format);
    vsnprintf(words, sizeof(words), format, list);
    va_end(list);
    return rps_fail(error, status, "%s: line %" PRIu64 ", byte %" PRIu64 ": %s",
            stream->path, stream->line, stream->offset, words);
}

/* --- bytes --------------------------------------------------------------- */

/* At least one byte in the buffer, unless the file has ended. */
static rps_status
fill(struct rps_json_stream *stream, struct rps_error *error)
{
    ssize_t n;

    if (stream->at < stream->filled) {
        return RPS_OK;
    }
    do {
        n = read(stream->fd, stream->buffer, BUFFER_BYTES);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return rps_fail(error, RPS_E_IO, "cannot read %s: %s", stream->path,
                strerror(errno));
    }
    stream->at = 0;
    stream->filled = (size_t)n;
    return RPS_OK;
}

static bool
has_ended(const struct rps_json_stream *stream)
{
    return stream->at == stream->filled;
}

/* Filled, and not at the end. */
static char
next(struct rps_json_stream *stream)
{
    const char byte = stream->buffer[stream->at++];

    stream->offset++;
    stream->line += byte == '\n';
    return byte;
}

rps_status
rps_json_stream_open(struct rps_json_stream *stream, const char *path,
        struct rps_error *error)
{
    struct stat info;
    rps_status status;

    *stream = (struct rps_json_stream){.path = path, .line = 1};
    stream->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (stream->fd < 0) {
        return rps_fail(error, errno == ENOENT ? RPS_E_NOT_FOUND : RPS_E_IO,
                "cannot open %s: %s", path, strerror(errno));
    }
    stream->buffer = malloc(BUFFER_BYTES);
    if (stream->buffer == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    } else if (fstat(stream->fd, &info) == 0 && S_ISDIR(info.st_mode)) {
        status = rps_fail(error, RPS_E_IO, "%s is a folder", path);
    } else {
        status = fill(stream, error);
    }
    if (status == RPS_OK && stream->filled >= 2 &&
            memcmp(stream->buffer, "\x1f\x8b", 2) == 0) {
        status = rps_fail(error, RPS_E_CORRUPT,
                "%s is compressed: unpack it first (gunzip)", path);
    }
    if (status != RPS_OK) {
        rps_json_stream_close(stream);
    }
    return status;
}

void
rps_json_stream_close(struct rps_json_stream *stream)
{
    if (stream->fd >= 0) {
        close(stream->fd);
    }
    free(stream->buffer);
    free(stream->value);
    *stream = (struct rps_json_stream){.fd = -1};
}

/* --- between values ------------------------------------------------------ */

rps_status
rps_json_stream_peek(
        struct rps_json_stream *stream, int *byte_out, struct rps_error *error)
{
    for (;;) {
        rps_status status = fill(stream, error);
        char byte;

        if (status != RPS_OK || has_ended(stream)) {
            *byte_out = -1;
            return status;
        }
        byte = stream->buffer[stream->at];
        if (byte != ' ' && byte != '\n' && byte != '\r' && byte != '\t') {
            *byte_out = (unsigned char)byte;
            return RPS_OK;
        }
        (void)next(stream);
    }
}

static rps_status
unexpected(const struct rps_json_stream *stream, int byte, const char *wanted,
        struct rps_error *error)
{
    if (byte < 0) {
        return rps_json_stream_fail(stream, RPS_E_CORRUPT, error,
                "the file ends where %s should be: it is cut off", wanted);
    }
    if (byte > ' ' && byte < 0x7f) {
        return rps_json_stream_fail(stream, RPS_E_CORRUPT, error,
                "'%c' where %s should be", byte, wanted);
    }
    return rps_json_stream_fail(stream, RPS_E_CORRUPT, error,
            "byte 0x%02x where %s should be", (unsigned)byte, wanted);
}

rps_status
rps_json_stream_take(
        struct rps_json_stream *stream, char byte, struct rps_error *error)
{
    const char wanted[] = {'\'', byte, '\'', '\0'};
    int found;
    rps_status status = rps_json_stream_peek(stream, &found, error);

    if (status != RPS_OK) {
        return status;
    }
    if (found != (unsigned char)byte) {
        return unexpected(stream, found, wanted, error);
    }
    (void)next(stream);
    return RPS_OK;
}

rps_status
rps_json_stream_more(struct rps_json_stream *stream, char close, bool first,
        bool *more_out, struct rps_error *error)
{
    const char wanted[] = {
            '\'', ',', '\'', ' ', 'o', 'r', ' ', '\'', close, '\'', '\0'};
    int found;
    rps_status status = rps_json_stream_peek(stream, &found, error);

    *more_out = false;
    if (status != RPS_OK) {
        return status;
    }
    if (found == (unsigned char)close) {
        (void)next(stream);
        return RPS_OK;
    }
    *more_out = true;
    if (first && found >= 0) {
        return RPS_OK;
    }
    if (found != ',') {
        return unexpected(stream, found, wanted, error);
    }
    (void)next(stream);
    return RPS_OK;
}

/* --- values -------------------------------------------------------------- */

/* Where a value is, byte by byte. */
struct walk {
    char open[RPS_JSON_SKIP_DEPTH_MAX]; /* what closes each bracket */
    size_t depth;
    bool in_string;
    bool escaped;
    bool is_scalar; /* a number or a word: it ends before what ends it */
};

static rps_status
open_bracket(struct rps_json_stream *stream, struct walk *walk, char close,
        struct rps_error *error)
{
    if (walk->depth == RPS_JSON_SKIP_DEPTH_MAX) {
        return rps_json_stream_fail(stream, RPS_E_CORRUPT, error,
                "brackets are more than %u deep", RPS_JSON_SKIP_DEPTH_MAX);
    }
    walk->open[walk->depth++] = close;
    return RPS_OK;
}

/* *done_out: the value ends with this byte. */
static rps_status
step(struct rps_json_stream *stream, struct walk *walk, char byte,
        bool *done_out, struct rps_error *error)
{
    *done_out = false;
    if (walk->in_string) {
        walk->in_string = walk->escaped || byte != '"';
        walk->escaped = !walk->escaped && byte == '\\';
        *done_out = !walk->in_string && walk->depth == 0;
        return RPS_OK;
    }
    switch (byte) {
    case '"':
        walk->in_string = true;
        return RPS_OK;
    case '{':
        return open_bracket(stream, walk, '}', error);
    case '[':
        return open_bracket(stream, walk, ']', error);
    case '}':
    case ']':
        if (walk->depth == 0 || walk->open[walk->depth - 1] != byte) {
            return rps_json_stream_fail(
                    stream, RPS_E_CORRUPT, error, "'%c' closes nothing", byte);
        }
        walk->depth--;
        *done_out = walk->depth == 0;
        return RPS_OK;
    default:
        return RPS_OK;
    }
}

static bool
ends_scalar(char byte)
{
    return strchr(" \n\r\t,]}:\"[{", byte) != NULL;
}

static rps_status
keep(struct rps_json_stream *stream, char byte, struct rps_error *error)
{
    if (stream->value_length == RPS_JSON_VALUE_BYTES_MAX) {
        return rps_json_stream_fail(stream, RPS_E_LIMIT, error,
                "a value has more than %u bytes", RPS_JSON_VALUE_BYTES_MAX);
    }
    if (stream->value_length == stream->value_capacity) {
        const size_t capacity = 2 * stream->value_capacity + 512;
        char *grown = realloc(stream->value, capacity);

        if (grown == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "%s: no memory", stream->path);
        }
        stream->value = grown;
        stream->value_capacity = capacity;
    }
    stream->value[stream->value_length++] = byte;
    return RPS_OK;
}

/* From its first byte to its last, into stream->value if it is kept. */
static rps_status
walk_value(
        struct rps_json_stream *stream, bool is_kept, struct rps_error *error)
{
    struct walk walk = {.depth = 0};
    bool done = false;
    int first;
    rps_status status = rps_json_stream_peek(stream, &first, error);

    if (status == RPS_OK && (first < 0 || strchr(",]}:", first) != NULL)) {
        return unexpected(stream, first, "a value", error);
    }
    walk.is_scalar = strchr("\"[{", first) == NULL;
    while (status == RPS_OK && !done) {
        status = fill(stream, error);
        if (status != RPS_OK) {
            break;
        }
        if (has_ended(stream)) {
            return walk.is_scalar
                           ? RPS_OK
                           : unexpected(stream, -1,
                                     walk.in_string ? "the end of a string"
                                                    : "the end of a value",
                                     error);
        }
        if (walk.is_scalar && ends_scalar(stream->buffer[stream->at])) {
            return RPS_OK;
        }
        if (is_kept) {
            status = keep(stream, stream->buffer[stream->at], error);
        }
        if (status == RPS_OK && !walk.is_scalar) {
            status = step(
                    stream, &walk, stream->buffer[stream->at], &done, error);
        }
        (void)next(stream);
    }
    return status;
}

rps_status
rps_json_stream_value(struct rps_json_stream *stream, json_t **value_out,
        struct rps_error *error)
{
    json_error_t cause;
    uint64_t line;
    int first;
    rps_status status = rps_json_stream_peek(stream, &first, error);

    *value_out = NULL;
    stream->value_length = 0;
    line = stream->line;
    if (status == RPS_OK) {
        status = walk_value(stream, true, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    *value_out = json_loadb(
            stream->value, stream->value_length, JSON_DECODE_ANY, &cause);
    if (*value_out == NULL) {
        status = rps_json_stream_fail(stream, RPS_E_CORRUPT, error,
                "the value from line %" PRIu64 " on is no JSON: %.200s", line,
                cause.text);
    }
    if (stream->value_capacity > KEEP_BYTES) {
        free(stream->value);
        stream->value = NULL;
        stream->value_capacity = 0;
    }
    return status;
}

rps_status
rps_json_stream_skip(struct rps_json_stream *stream, struct rps_error *error)
{
    return walk_value(stream, false, error);
}
