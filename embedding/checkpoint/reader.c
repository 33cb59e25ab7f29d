/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/reader.h"

#include "base/checksum.h"
#include "base/text.h"
#include "embedding/checkpoint/fields.h"
#include "embedding/checkpoint/layout.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file that a part lists: opened, and as long as it was written. */
static rps_status
open_listed(const struct rps_ckpt_folder *folder, const json_t *files,
        const char *name, int *fd_out, struct rps_ckpt_listed *listed,
        struct rps_error *error)
{
    uint64_t bytes = 0;
    rps_status status;

    if (!rps_ckpt_listed_parse(json_object_get(files, name), listed)) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s/%s is not listed in its part file", folder->path, name);
    }
    status = rps_ckpt_folder_file(folder, name, fd_out, &bytes, error);
    if (status == RPS_E_NOT_FOUND) {
        return RPS_E_CORRUPT; /* the part is there, its file is not */
    }
    if (status != RPS_OK) {
        return status;
    }
    if (bytes != listed->bytes) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s/%s has %" PRIu64 " bytes, %" PRIu64
                " were written: block %" PRIu64 " (of 1 MiB) is not whole",
                folder->path, name, bytes, listed->bytes,
                (bytes < listed->bytes ? bytes : listed->bytes) /
                        RPS_CKPT_BLOCK_BYTES);
    }
    return RPS_OK;
}

/* <file>.xxh3, whole: 8 bytes a MiB of the file. */
static rps_status
read_sums(struct rps_ckpt_reader *reader, const struct rps_ckpt_folder *folder,
        const json_t *files, const char *name, struct rps_error *error)
{
    struct rps_ckpt_listed listed = {0, 0};
    char *sums_name = rps_format("%s.xxh3", name);
    size_t bytes = (size_t)reader->block_count * sizeof(*reader->sums);
    rps_status status = RPS_E_NOMEM;
    int fd = -1;

    reader->sums = malloc(bytes + 1);
    if (sums_name == NULL || reader->sums == NULL) {
        rps_fail(error, RPS_E_NOMEM, "%s: no memory", reader->path);
        goto out;
    }
    status = open_listed(folder, files, sums_name, &fd, &listed, error);
    if (status != RPS_OK) {
        goto out;
    }
    if (listed.bytes != bytes) {
        status = rps_fail(error, RPS_E_CORRUPT,
                "%s.xxh3 has %" PRIu64 " bytes, %zu are needed", reader->path,
                listed.bytes, bytes);
        goto out;
    }
    status = rps_ckpt_read_all(fd, reader->path, reader->sums, bytes, error);
    if (status == RPS_OK && rps_checksum(reader->sums, bytes) != listed.sum) {
        status = rps_fail(error, RPS_E_CORRUPT,
                "%s.xxh3 is damaged: its checksum differs from the part "
                "file's",
                reader->path);
    }
out:
    if (fd >= 0) {
        close(fd);
    }
    free(sums_name);
    return status;
}

static size_t
block_bytes(const struct rps_ckpt_reader *reader, uint64_t i)
{
    const uint64_t left = reader->bytes - i * RPS_CKPT_BLOCK_BYTES;

    return left < RPS_CKPT_BLOCK_BYTES ? (size_t)left : RPS_CKPT_BLOCK_BYTES;
}

/* As many as there are places: the block at hand is read to its end. */
static rps_status
read_ahead(struct rps_ckpt_reader *reader, struct rps_error *error)
{
    while (reader->ahead < reader->block_count &&
            reader->ahead < reader->next + RPS_CKPT_IO_BLOCKS) {
        if (rps_ckpt_io_memory(&reader->io, reader->ahead) == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "%s: no memory", reader->path);
        }
        rps_ckpt_io_submit(
                &reader->io, reader->ahead, block_bytes(reader, reader->ahead));
        reader->ahead++;
    }
    return RPS_OK;
}

static rps_status
take_block(struct rps_ckpt_reader *reader, struct rps_error *error)
{
    const uint64_t done = reader->next * RPS_CKPT_BLOCK_BYTES;
    const size_t n = block_bytes(reader, reader->next);
    const int cause = rps_ckpt_io_wait(&reader->io, reader->next);

    if (cause == EBADMSG) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: ends within block %" PRIu64 " (of 1 MiB)", reader->path,
                reader->next);
    }
    if (cause != 0) {
        return rps_fail(
                error, RPS_E_IO, "%s: read: %s", reader->path, strerror(cause));
    }
    reader->block = rps_ckpt_io_memory(&reader->io, reader->next);
    if (rps_ckpt_io_sum(&reader->io, reader->next) !=
            reader->sums[reader->next]) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: block %" PRIu64 " is damaged (bytes %" PRIu64
                " to %" PRIu64 ", at MiB %" PRIu64 ")",
                reader->path, reader->next, done, done + n - 1, reader->next);
    }
    rps_checksum_add(reader->whole, reader->block, n);
    reader->used = n;
    reader->at = 0;
    reader->next++;
    return RPS_OK;
}

static rps_status
next_block(struct rps_ckpt_reader *reader, struct rps_error *error)
{
    rps_status status;

    assert(reader->at == reader->used);
    if (reader->next >= reader->block_count) {
        return rps_fail(error, RPS_E_CORRUPT, "%s: ends before its last row",
                reader->path);
    }
    status = read_ahead(reader, error);
    return status == RPS_OK ? take_block(reader, error) : status;
}

static rps_status
read_header(struct rps_ckpt_reader *reader, struct rps_error *error)
{
    struct rps_error cause = {""};
    rps_status status = next_block(reader, error);

    if (status != RPS_OK) {
        return status;
    }
    status = rps_npy_parse(
            reader->block, reader->used, reader->bytes, &reader->npy, &cause);
    if (status != RPS_OK) {
        return rps_fail(error, status, "%s: %s", reader->path, cause.text);
    }
    reader->at = reader->npy.data_offset;
    return RPS_OK;
}

rps_status
rps_ckpt_reader_open(struct rps_ckpt_reader *reader,
        const struct rps_ckpt_folder *folder, const json_t *files,
        const char *name, struct rps_error *error)
{
    struct rps_ckpt_listed listed = {0, 0};
    rps_status status;

    memset(reader, 0, sizeof(*reader));
    reader->fd = -1;
    reader->path = rps_format("%s/%s", folder->path, name);
    reader->whole = XXH3_createState();
    if (reader->path == NULL || reader->whole == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", name);
        goto fail;
    }
    XXH3_64bits_reset(reader->whole);
    status = open_listed(folder, files, name, &reader->fd, &listed, error);
    if (status != RPS_OK) {
        goto fail;
    }
    rps_ckpt_io_init(&reader->io, reader->fd, false);
    reader->bytes = listed.bytes;
    reader->sum = listed.sum;
    reader->block_count = listed.bytes / RPS_CKPT_BLOCK_BYTES +
                          (listed.bytes % RPS_CKPT_BLOCK_BYTES != 0);
    status = read_sums(reader, folder, files, name, error);
    if (status != RPS_OK) {
        goto fail;
    }
    if (reader->block_count > 1) {
        rps_ckpt_io_begin(&reader->io);
    }
    status = read_header(reader, error);
    if (status != RPS_OK) {
        goto fail;
    }
    return RPS_OK;
fail:
    rps_ckpt_reader_close(reader);
    return status;
}

rps_status
rps_ckpt_reader_expect(const struct rps_ckpt_reader *reader,
        const struct rps_npy *wanted, struct rps_error *error)
{
    const struct rps_npy *npy = &reader->npy;
    bool same =
            npy->ndim == wanted->ndim && strcmp(npy->dtype, wanted->dtype) == 0;

    for (uint32_t i = 0; same && i < wanted->ndim; i++) {
        same = npy->shape[i] == wanted->shape[i];
    }
    if (same) {
        return RPS_OK;
    }
    return rps_fail(error, RPS_E_CORRUPT,
            "%s: is %s with %u dimensions (%" PRIu64 ", %" PRIu64
            "), must be %s with %u (%" PRIu64 ", %" PRIu64 ")",
            reader->path, npy->dtype, npy->ndim,
            npy->ndim > 0 ? npy->shape[0] : 0,
            npy->ndim > 1 ? npy->shape[1] : 0, wanted->dtype, wanted->ndim,
            wanted->shape[0], wanted->ndim > 1 ? wanted->shape[1] : 0);
}

rps_status
rps_ckpt_reader_read(struct rps_ckpt_reader *reader, void *bytes, size_t n,
        struct rps_error *error)
{
    unsigned char *to = bytes;

    while (n > 0) {
        size_t part = reader->used - reader->at;

        if (part == 0) {
            rps_status status = next_block(reader, error);

            if (status != RPS_OK) {
                return status;
            }
            continue;
        }
        part = n < part ? n : part;
        memcpy(to, reader->block + reader->at, part);
        reader->at += part;
        to += part;
        n -= part;
    }
    return RPS_OK;
}

rps_status
rps_ckpt_reader_check(struct rps_ckpt_reader *reader, struct rps_error *error)
{
    if (reader->at != reader->used || reader->next != reader->block_count) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: has more bytes than its rows need", reader->path);
    }
    if (XXH3_64bits_digest(reader->whole) != reader->sum) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: damaged: its checksum differs from the part file's",
                reader->path);
    }
    return RPS_OK;
}

void
rps_ckpt_reader_close(struct rps_ckpt_reader *reader)
{
    rps_ckpt_io_finish(&reader->io); /* its threads use fd */
    if (reader->path != NULL && reader->fd >= 0) {
        close(reader->fd);
    }
    free(reader->path);
    free(reader->sums);
    if (reader->whole != NULL) {
        XXH3_freeState(reader->whole);
    }
    memset(reader, 0, sizeof(*reader));
    reader->fd = -1;
}
