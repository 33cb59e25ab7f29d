/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)256 << 10)

void
rps_line_reader_init(
        struct rps_line_reader *reader, const struct rps_file_list *files)
{
    *reader = (struct rps_line_reader){.files = files, .fd = -1};
}

static void
close_file(struct rps_line_reader *reader)
{
    if (reader->fd >= 0) {
        close(reader->fd);
    }
    reader->fd = -1;
    reader->begin = 0;
    reader->end = 0;
    reader->number = 0;
    reader->at_end = false;
}

void
rps_line_reader_rewind(struct rps_line_reader *reader)
{
    close_file(reader);
    reader->next_file = 0;
}

void
rps_line_reader_finish(struct rps_line_reader *reader)
{
    close_file(reader);
    free(reader->buffer);
    reader->buffer = NULL;
    reader->capacity = 0;
}

static const char *
open_path(const struct rps_line_reader *reader)
{
    return reader->files->paths[reader->next_file - 1];
}

static rps_status
open_next(struct rps_line_reader *reader, struct rps_error *error)
{
    close_file(reader);
    if (reader->next_file == reader->files->count) {
        return RPS_E_NOT_FOUND;
    }
    reader->next_file++;
    reader->fd = open(open_path(reader), O_RDONLY | O_CLOEXEC);
    if (reader->fd < 0) {
        return rps_fail(
                error, RPS_E_IO, "%s: %s", open_path(reader), strerror(errno));
    }
    return RPS_OK;
}

/* Room for more bytes behind `end`, one of them for the final NUL. */
static rps_status
make_room(struct rps_line_reader *reader, struct rps_error *error)
{
    size_t capacity = reader->capacity;
    char *buffer;

    if (reader->begin > 0) {
        memmove(reader->buffer, reader->buffer + reader->begin,
                reader->end - reader->begin);
        reader->end -= reader->begin;
        reader->begin = 0;
    }
    if (capacity - reader->end > BUFFER_BYTES / 2) {
        return RPS_OK;
    }
    if (capacity > RPS_LINE_BYTES_MAX) {
        return rps_fail(error, RPS_E_LIMIT,
                "%s:%llu: the line is longer than %zu bytes", open_path(reader),
                (unsigned long long)reader->number + 1, RPS_LINE_BYTES_MAX);
    }
    capacity = capacity == 0 ? BUFFER_BYTES : capacity * 2;
    buffer = realloc(reader->buffer, capacity);
    if (buffer == NULL) {
        return rps_fail(error, RPS_E_NOMEM,
                "%s:%llu: no memory for a line of %zu bytes", open_path(reader),
                (unsigned long long)reader->number + 1, capacity);
    }
    reader->buffer = buffer;
    reader->capacity = capacity;
    return RPS_OK;
}

static rps_status
read_more(struct rps_line_reader *reader, struct rps_error *error)
{
    ssize_t got;
    rps_status status = make_room(reader, error);

    if (status != RPS_OK) {
        return status;
    }
    do {
        got = read(reader->fd, reader->buffer + reader->end,
                reader->capacity - reader->end - 1);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return rps_fail(
                error, RPS_E_IO, "%s: %s", open_path(reader), strerror(errno));
    }
    reader->at_end = got == 0;
    reader->end += (size_t)got;
    return RPS_OK;
}

/* Hand out [begin, stop); `skip` bytes more belong to the line's end. */
static void
take(struct rps_line_reader *reader, size_t stop, size_t skip,
        struct rps_line *line)
{
    line->path = open_path(reader);
    line->number = ++reader->number;
    line->text = reader->buffer + reader->begin;
    line->length = stop - reader->begin;
    reader->begin = stop + skip;
    if (line->length > 0 && line->text[line->length - 1] == '\r') {
        line->length--;
    }
    line->text[line->length] = '\0';
}

rps_status
rps_line_reader_next(struct rps_line_reader *reader, struct rps_line *line,
        struct rps_error *error)
{
    size_t looked = 0; /* bytes behind begin that hold no LF */
    rps_status status = RPS_OK;

    while (status == RPS_OK) {
        size_t left = reader->end - reader->begin;
        char *found = left == looked
                              ? NULL
                              : memchr(reader->buffer + reader->begin + looked,
                                        '\n', left - looked);

        if (found != NULL) {
            take(reader, (size_t)(found - reader->buffer), 1, line);
            return RPS_OK;
        }
        looked = left;
        if (reader->fd >= 0 && !reader->at_end) {
            status = read_more(reader, error);
        } else if (left > 0) {
            take(reader, reader->end, 0, line);
            return RPS_OK;
        } else {
            status = open_next(reader, error);
        }
    }
    return status;
}

rps_status
rps_bad_row(struct rps_error *error, const struct rps_line *line, size_t column,
        const char *format, ...)
{
    char words[512];
    va_list list;

    va_start(list, format);
    (void)vsnprintf(words, sizeof(words), format, list);
    va_end(list);
    return rps_fail(error, RPS_E_INVAL, "%s:%llu: column %zu: %s", line->path,
            (unsigned long long)line->number, column, words);
}

rps_status
rps_line_check_nul(
        const struct rps_line *line, char separator, struct rps_error *error)
{
    size_t column = 1;
    size_t at = strlen(line->text);
    size_t i;

    if (at == line->length) {
        return RPS_OK;
    }
    for (i = 0; i < at; i++) {
        column += line->text[i] == separator;
    }
    return rps_bad_row(
            error, line, column, "a NUL byte (is the file plain text?)");
}
