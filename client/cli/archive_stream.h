/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to a file and from it, through zstd where it was built in. */
#ifndef RPS_CLIENT_CLI_ARCHIVE_STREAM_H
#define RPS_CLIENT_CLI_ARCHIVE_STREAM_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_ARCHIVE_LEVEL_MAX 19

/** Was zstd built in? */
bool rps_archive_has_zstd(void);

struct rps_archive_writer;

/** Create `path`, which must not exist. level 0: as it is, 1 to 19: zstd.
 * Errors: IO, UNSUPPORTED (no zstd), NOMEM. */
rps_status rps_archive_writer_open(struct rps_archive_writer **writer_out,
        const char *path, int level, struct rps_error *error);
rps_status rps_archive_write(struct rps_archive_writer *writer,
        const void *bytes, size_t n, struct rps_error *error);
/** All of it on the disk. Frees the writer, also on error. */
rps_status rps_archive_writer_close(struct rps_archive_writer *writer,
        uint64_t *bytes_out, struct rps_error *error);
/** Without a promise; NULL is allowed. */
void rps_archive_writer_discard(struct rps_archive_writer *writer);

struct rps_archive_reader;

/** zstd or not: its first bytes say it. */
rps_status rps_archive_reader_open(struct rps_archive_reader **reader_out,
        const char *path, struct rps_error *error);
/** Exactly n bytes, or CORRUPT where the file ends or is damaged. */
rps_status rps_archive_read(struct rps_archive_reader *reader, void *bytes,
        size_t n, struct rps_error *error);
/** Of the file, so far and in all: for progress. */
uint64_t rps_archive_reader_done(const struct rps_archive_reader *reader);
uint64_t rps_archive_reader_total(const struct rps_archive_reader *reader);
void rps_archive_reader_close(struct rps_archive_reader *reader);

#endif /* RPS_CLIENT_CLI_ARCHIVE_STREAM_H */
