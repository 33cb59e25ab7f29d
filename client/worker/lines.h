/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of one or several text files, streamed: memory is one buffer, as
 * long as the longest line.
 */
#ifndef RPS_WORKER_LINES_H
#define RPS_WORKER_LINES_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_LINE_BYTES_MAX ((size_t)1 << 30)

/** Regular, non-empty files in sorted name order. */
struct rps_file_list {
    char **paths;
    size_t count;
};

/**
 * PATH: a file, a folder (its files, those that start with a dot left out)
 * or a glob. `format` is said in errors.
 *
 * Errors: INVAL: nothing matches, an empty file, not a regular file. IO.
 */
rps_status rps_file_list_find(struct rps_file_list *list, const char *format,
        const char *path, struct rps_error *error);
void rps_file_list_finish(struct rps_file_list *list);

struct rps_line {
    const char *path;
    uint64_t number; /* from 1, in its file */
    char *text;      /* NUL-terminated, without LF or CRLF; may be changed */
    size_t length;
};

struct rps_line_reader {
    const struct rps_file_list *files; /* borrowed */
    size_t next_file;                  /* the one after the open one */
    int fd;                            /* -1: none is open */
    uint64_t number;
    char *buffer;
    size_t begin;
    size_t end; /* bytes [begin, end) are not handed out yet */
    size_t capacity;
    bool at_end; /* of the open file */
};

void rps_line_reader_init(
        struct rps_line_reader *reader, const struct rps_file_list *files);
void rps_line_reader_rewind(struct rps_line_reader *reader);
void rps_line_reader_finish(struct rps_line_reader *reader);

/** The line is valid until the next call. NOT_FOUND after the last one. */
rps_status rps_line_reader_next(struct rps_line_reader *reader,
        struct rps_line *line, struct rps_error *error);

/** INVAL with "PATH:LINE: column C: words". */
rps_status rps_bad_row(struct rps_error *error, const struct rps_line *line,
        size_t column, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

/** INVAL if the line holds a NUL byte; columns are split at `separator`. */
rps_status rps_line_check_nul(
        const struct rps_line *line, char separator, struct rps_error *error);

#endif /* RPS_WORKER_LINES_H */
