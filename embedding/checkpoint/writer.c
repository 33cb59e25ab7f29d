/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/writer.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "embedding/checkpoint/layout.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
        "files are little-endian and are written as memory has them");

static rps_status
keep_sum(struct rps_ckpt_writer *writer, uint64_t sum, struct rps_error *error)
{
    if (writer->sum_count == writer->sum_capacity) {
        size_t capacity =
                writer->sum_capacity == 0 ? 64 : 2 * writer->sum_capacity;
        uint64_t *sums = reallocarray(writer->sums, capacity, sizeof(*sums));

        if (sums == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "%s: no memory for checksums",
                    writer->path);
        }
        writer->sums = sums;
        writer->sum_capacity = capacity;
    }
    writer->sums[writer->sum_count++] = sum;
    return RPS_OK;
}

static rps_status
flush_block(struct rps_ckpt_writer *writer, struct rps_error *error)
{
    rps_status status;

    if (writer->used == 0) {
        return RPS_OK;
    }
    status = keep_sum(writer, rps_checksum(writer->block, writer->used), error);
    if (status != RPS_OK) {
        return status;
    }
    XXH3_64bits_update(writer->whole, writer->block, writer->used);
    status = rps_fd_write_all(
            writer->fd, writer->block, writer->used, writer->path, error);
    writer->bytes += writer->used;
    writer->used = 0;
    return status;
}

rps_status
rps_ckpt_writer_add(struct rps_ckpt_writer *writer, const void *bytes, size_t n,
        struct rps_error *error)
{
    const unsigned char *from = bytes;

    while (n > 0) {
        size_t part = RPS_CKPT_BLOCK_BYTES - writer->used;

        part = n < part ? n : part;
        memcpy(writer->block + writer->used, from, part);
        writer->used += part;
        from += part;
        n -= part;
        if (writer->used == RPS_CKPT_BLOCK_BYTES) {
            rps_status status = flush_block(writer, error);

            if (status != RPS_OK) {
                return status;
            }
        }
    }
    return RPS_OK;
}

rps_status
rps_ckpt_writer_open(struct rps_ckpt_writer *writer, const char *folder,
        const char *name, const struct rps_npy *npy, struct rps_error *error)
{
    char header[RPS_NPY_HEADER_BYTES];
    rps_status status = RPS_E_NOMEM;

    memset(writer, 0, sizeof(*writer));
    writer->fd = -1;
    writer->path = rps_format("%s/%s", folder, name);
    writer->name = strdup(name);
    writer->block = malloc(RPS_CKPT_BLOCK_BYTES);
    writer->whole = XXH3_createState();
    if (writer->path == NULL || writer->name == NULL || writer->block == NULL ||
            writer->whole == NULL) {
        status =
                rps_fail(error, RPS_E_NOMEM, "%s: no memory to write it", name);
        goto fail;
    }
    XXH3_64bits_reset(writer->whole);
    writer->fd = open(writer->path,
            O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (writer->fd < 0) {
        status = rps_fail(error, RPS_E_IO, "%s: cannot create: %s",
                writer->path, strerror(errno));
        goto fail;
    }
    rps_npy_header(npy, header);
    status = rps_ckpt_writer_add(writer, header, sizeof(header), error);
    if (status != RPS_OK) {
        goto fail;
    }
    return RPS_OK;
fail:
    rps_ckpt_writer_discard(writer);
    return status;
}

static rps_status
list_file(json_t *files, const char *name, uint64_t bytes, uint64_t sum,
        struct rps_error *error)
{
    char hex[17];
    json_t *entry;

    snprintf(hex, sizeof(hex), "%016" PRIx64, sum);
    entry = json_pack("{s:I, s:s}", "bytes", (json_int_t)bytes, "xxh3", hex);
    if (entry == NULL || json_object_set_new(files, name, entry) != 0) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory to list it", name);
    }
    return RPS_OK;
}

/* <file>.xxh3 beside the file, listed too. */
static rps_status
write_sums(
        struct rps_ckpt_writer *writer, json_t *files, struct rps_error *error)
{
    size_t bytes = writer->sum_count * sizeof(*writer->sums);
    char *path = rps_format("%s.xxh3", writer->path);
    char *name = rps_format("%s.xxh3", writer->name);
    rps_status status;

    if (path == NULL || name == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory for checksums",
                writer->path);
        goto out;
    }
    status = rps_file_write(path, writer->sums, bytes, false, error);
    if (status == RPS_OK) {
        status = list_file(
                files, name, bytes, rps_checksum(writer->sums, bytes), error);
    }
out:
    free(path);
    free(name);
    return status;
}

rps_status
rps_ckpt_writer_close(
        struct rps_ckpt_writer *writer, json_t *files, struct rps_error *error)
{
    rps_status status = flush_block(writer, error);

    assert(writer->path != NULL);
    if (status == RPS_OK && fsync(writer->fd) != 0) {
        status = rps_fail(error, RPS_E_IO, "%s: fsync: %s", writer->path,
                strerror(errno));
    }
    if (status == RPS_OK) {
        status = write_sums(writer, files, error);
    }
    if (status == RPS_OK) {
        status = list_file(files, writer->name, writer->bytes,
                XXH3_64bits_digest(writer->whole), error);
    }
    rps_ckpt_writer_discard(writer);
    return status;
}

void
rps_ckpt_writer_discard(struct rps_ckpt_writer *writer)
{
    if (writer->path != NULL && writer->fd >= 0) {
        close(writer->fd);
    }
    free(writer->path);
    free(writer->name);
    free(writer->block);
    free(writer->sums);
    if (writer->whole != NULL) {
        XXH3_freeState(writer->whole);
    }
    memset(writer, 0, sizeof(*writer));
    writer->fd = -1;
}
