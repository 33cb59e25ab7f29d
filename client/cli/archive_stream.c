/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/archive_stream.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef RPS_HAVE_ZSTD
#include <zstd.h>
#endif

#define BUFFER_BYTES ((size_t)1 << 20)
#define WINDOW_LOG   27 /* 128 MiB: what a reader takes at most */

static const unsigned char zstd_magic[4] = {0x28, 0xb5, 0x2f, 0xfd};

bool
rps_archive_has_zstd(void)
{
#ifdef RPS_HAVE_ZSTD
    return true;
#else
    return false;
#endif
}

struct rps_archive_writer {
    char *path;
    int fd;
    uint64_t bytes;
    unsigned char *buffer; /* [BUFFER_BYTES] */
    size_t used;
#ifdef RPS_HAVE_ZSTD
    ZSTD_CCtx *zstd; /* NULL: as it is */
#endif
};

void
rps_archive_writer_discard(struct rps_archive_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    if (writer->fd >= 0) {
        close(writer->fd);
    }
#ifdef RPS_HAVE_ZSTD
    ZSTD_freeCCtx(writer->zstd);
#endif
    free(writer->buffer);
    free(writer->path);
    free(writer);
}

static rps_status
begin_zstd(
        struct rps_archive_writer *writer, int level, struct rps_error *error)
{
    if (level == 0) {
        return RPS_OK;
    }
#ifdef RPS_HAVE_ZSTD
    writer->zstd = ZSTD_createCCtx();
    if (writer->zstd == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", writer->path);
    }
    if (ZSTD_isError(ZSTD_CCtx_setParameter(
                writer->zstd, ZSTD_c_compressionLevel, level)) ||
            ZSTD_isError(ZSTD_CCtx_setParameter(
                    writer->zstd, ZSTD_c_checksumFlag, 1))) {
        return rps_fail(
                error, RPS_E_INVAL, "%s: zstd level %d", writer->path, level);
    }
    return RPS_OK;
#else
    return rps_fail(error, RPS_E_UNSUPPORTED,
            "this recps was built without zstd: leave --level out");
#endif
}

rps_status
rps_archive_writer_open(struct rps_archive_writer **writer_out,
        const char *path, int level, struct rps_error *error)
{
    struct rps_archive_writer *writer = calloc(1, sizeof(*writer));
    rps_status status = RPS_OK;

    *writer_out = NULL;
    if (writer == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
    writer->fd = -1;
    writer->path = strdup(path);
    writer->buffer = malloc(BUFFER_BYTES);
    if (writer->path == NULL || writer->buffer == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
    if (status == RPS_OK) {
        status = begin_zstd(writer, level, error);
    }
    if (status == RPS_OK) {
        writer->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    }
    if (status == RPS_OK && writer->fd < 0) {
        status = rps_fail(error, RPS_E_IO, "%s: cannot create: %s", path,
                strerror(errno));
    }
    if (status != RPS_OK) {
        rps_archive_writer_discard(writer);
        return status;
    }
    *writer_out = writer;
    return RPS_OK;
}

static rps_status
flush(struct rps_archive_writer *writer, struct rps_error *error)
{
    rps_status status = rps_fd_write_all(
            writer->fd, writer->buffer, writer->used, writer->path, error);

    writer->bytes += writer->used;
    writer->used = 0;
    return status;
}

#ifdef RPS_HAVE_ZSTD
/* `end`: the frame, too. */
static rps_status
compress(struct rps_archive_writer *writer, const void *bytes, size_t n,
        bool end, struct rps_error *error)
{
    ZSTD_inBuffer in = {bytes, n, 0};
    rps_status status = RPS_OK;
    size_t left = 1;

    while (status == RPS_OK && (in.pos < in.size || (end && left != 0))) {
        ZSTD_outBuffer out = {writer->buffer, BUFFER_BYTES, writer->used};

        left = ZSTD_compressStream2(
                writer->zstd, &out, &in, end ? ZSTD_e_end : ZSTD_e_continue);
        if (ZSTD_isError(left)) {
            return rps_fail(error, RPS_E_NOMEM, "%s: zstd: %s", writer->path,
                    ZSTD_getErrorName(left));
        }
        writer->used = out.pos;
        if (writer->used == BUFFER_BYTES) {
            status = flush(writer, error);
        }
    }
    return status;
}
#endif

rps_status
rps_archive_write(struct rps_archive_writer *writer, const void *bytes,
        size_t n, struct rps_error *error)
{
    const unsigned char *from = bytes;
    rps_status status = RPS_OK;

#ifdef RPS_HAVE_ZSTD
    if (writer->zstd != NULL) {
        return compress(writer, bytes, n, false, error);
    }
#endif
    while (n > 0 && status == RPS_OK) {
        size_t some = BUFFER_BYTES - writer->used;

        some = n < some ? n : some;
        memcpy(writer->buffer + writer->used, from, some);
        writer->used += some;
        from += some;
        n -= some;
        if (writer->used == BUFFER_BYTES) {
            status = flush(writer, error);
        }
    }
    return status;
}

rps_status
rps_archive_writer_close(struct rps_archive_writer *writer, uint64_t *bytes_out,
        struct rps_error *error)
{
    rps_status status = RPS_OK;

#ifdef RPS_HAVE_ZSTD
    if (writer->zstd != NULL) {
        status = compress(writer, "", 0, true, error);
    }
#endif
    if (status == RPS_OK) {
        status = flush(writer, error);
    }
    if (status == RPS_OK && fsync(writer->fd) != 0) {
        status = rps_fail(error, RPS_E_IO, "%s: fsync: %s", writer->path,
                strerror(errno));
    }
    *bytes_out = writer->bytes;
    rps_archive_writer_discard(writer);
    return status;
}

struct rps_archive_reader {
    char *path;
    int fd;
    uint64_t done;
    uint64_t total;
    unsigned char *buffer; /* [BUFFER_BYTES]: of the file */
    size_t used;
    size_t at;
#ifdef RPS_HAVE_ZSTD
    ZSTD_DCtx *zstd; /* NULL: as it is */
#endif
};

void
rps_archive_reader_close(struct rps_archive_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    if (reader->fd >= 0) {
        close(reader->fd);
    }
#ifdef RPS_HAVE_ZSTD
    ZSTD_freeDCtx(reader->zstd);
#endif
    free(reader->buffer);
    free(reader->path);
    free(reader);
}

/* More of the file; CORRUPT where there is none. */
static rps_status
fill(struct rps_archive_reader *reader, struct rps_error *error)
{
    ssize_t got;

    do {
        got = read(reader->fd, reader->buffer, BUFFER_BYTES);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return rps_fail(
                error, RPS_E_IO, "%s: read: %s", reader->path, strerror(errno));
    }
    if (got == 0) {
        return rps_fail(
                error, RPS_E_CORRUPT, "%s: ends too early", reader->path);
    }
    reader->used = (size_t)got;
    reader->at = 0;
    reader->done += (uint64_t)got;
    return RPS_OK;
}

static rps_status
begin_reading(struct rps_archive_reader *reader, struct rps_error *error)
{
    rps_status status = fill(reader, error);

    if (status != RPS_OK || reader->used < sizeof(zstd_magic) ||
            memcmp(reader->buffer, zstd_magic, sizeof(zstd_magic)) != 0) {
        return status;
    }
#ifdef RPS_HAVE_ZSTD
    reader->zstd = ZSTD_createDCtx();
    if (reader->zstd == NULL ||
            ZSTD_isError(ZSTD_DCtx_setParameter(
                    reader->zstd, ZSTD_d_windowLogMax, WINDOW_LOG))) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", reader->path);
    }
    return RPS_OK;
#else
    return rps_fail(error, RPS_E_UNSUPPORTED,
            "%s is compressed, and this recps was built without zstd: "
            "decompress it with zstd -d",
            reader->path);
#endif
}

rps_status
rps_archive_reader_open(struct rps_archive_reader **reader_out,
        const char *path, struct rps_error *error)
{
    struct rps_archive_reader *reader = calloc(1, sizeof(*reader));
    struct stat info;
    rps_status status = RPS_OK;

    *reader_out = NULL;
    if (reader == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
    reader->path = strdup(path);
    reader->buffer = malloc(BUFFER_BYTES);
    reader->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (reader->path == NULL || reader->buffer == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    } else if (reader->fd < 0 || fstat(reader->fd, &info) != 0) {
        status = rps_fail(error, RPS_E_IO, "%s: %s", path, strerror(errno));
        status = errno == ENOENT ? RPS_E_NOT_FOUND : status;
    } else {
        reader->total = (uint64_t)info.st_size;
        status = begin_reading(reader, error);
    }
    if (status != RPS_OK) {
        rps_archive_reader_close(reader);
        return status;
    }
    *reader_out = reader;
    return RPS_OK;
}

#ifdef RPS_HAVE_ZSTD
static rps_status
decompress(struct rps_archive_reader *reader, void *bytes, size_t n,
        struct rps_error *error)
{
    ZSTD_outBuffer out = {bytes, n, 0};

    while (out.pos < out.size) {
        ZSTD_inBuffer in = {reader->buffer, reader->used, reader->at};
        const size_t before = out.pos;
        const size_t result = ZSTD_decompressStream(reader->zstd, &out, &in);
        rps_status status;

        if (ZSTD_isError(result)) {
            return rps_fail(error, RPS_E_CORRUPT, "%s: damaged: zstd: %s",
                    reader->path, ZSTD_getErrorName(result));
        }
        reader->at = in.pos;
        if (reader->at == reader->used && out.pos == before) {
            status = fill(reader, error);
            if (status != RPS_OK) {
                return status;
            }
        }
    }
    return RPS_OK;
}
#endif

rps_status
rps_archive_read(struct rps_archive_reader *reader, void *bytes, size_t n,
        struct rps_error *error)
{
    unsigned char *to = bytes;

#ifdef RPS_HAVE_ZSTD
    if (reader->zstd != NULL) {
        return decompress(reader, bytes, n, error);
    }
#endif
    while (n > 0) {
        size_t some = reader->used - reader->at;

        if (some == 0) {
            rps_status status = fill(reader, error);

            if (status != RPS_OK) {
                return status;
            }
            continue;
        }
        some = n < some ? n : some;
        memcpy(to, reader->buffer + reader->at, some);
        reader->at += some;
        to += some;
        n -= some;
    }
    return RPS_OK;
}

uint64_t
rps_archive_reader_done(const struct rps_archive_reader *reader)
{
    return reader->done;
}

uint64_t
rps_archive_reader_total(const struct rps_archive_reader *reader)
{
    return reader->total;
}
