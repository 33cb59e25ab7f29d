/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/writer.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/text.h"
#include "embedding/checkpoint/layout.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
        "files are little-endian and are written as memory has them");

/* What is summed in one go: it is in the first caches still. */
#define SUM_BYTES ((size_t)16 << 10)

_Static_assert(RPS_CKPT_BLOCK_BYTES % SUM_BYTES == 0, "a block has whole ones");

/* The last n bytes that the block has got. */
static void
add_to_sums(struct rps_ckpt_writer *writer, size_t n)
{
    const unsigned char *bytes = writer->block + writer->used - n;

    rps_checksum_add(writer->sum, bytes, n);
    rps_checksum_add(writer->whole, bytes, n);
}

/* The block has all its bytes. */
static rps_status
keep_sum(struct rps_ckpt_writer *writer, struct rps_error *error)
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
    writer->sums[writer->sum_count++] = XXH3_64bits_digest(writer->sum);
    XXH3_64bits_reset(writer->sum);
    return RPS_OK;
}

static rps_status
fail_io(const struct rps_ckpt_writer *writer, const char *what, int cause,
        struct rps_error *error)
{
    return rps_fail(
            error, RPS_E_IO, "%s: %s: %s", writer->path, what, strerror(cause));
}

/* The first of those that may be under way is written. */
static rps_status
await_block(struct rps_ckpt_writer *writer, struct rps_error *error)
{
    const int cause = rps_ckpt_io_wait(&writer->io, writer->written++);

    return cause == 0 ? RPS_OK : fail_io(writer, "write", cause, error);
}

/* Memory of the next block: when the one that had its place is written. */
static rps_status
take_block(struct rps_ckpt_writer *writer, struct rps_error *error)
{
    rps_status status = RPS_OK;

    if (writer->next >= RPS_CKPT_IO_BLOCKS) {
        assert(writer->written == writer->next - RPS_CKPT_IO_BLOCKS);
        status = await_block(writer, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    writer->block = rps_ckpt_io_memory(&writer->io, writer->next);
    return writer->block != NULL
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOMEM, "%s: no memory to write it",
                             writer->path);
}

/* A file system without it is no error: room is taken as it is needed. */
static rps_status
take_room(const struct rps_ckpt_writer *writer, struct rps_error *error)
{
    const bool refused =
            fallocate(writer->fd, 0, 0, (off_t)writer->wanted) != 0 &&
            (errno == ENOSPC || errno == EDQUOT || errno == EFBIG);

    return refused ? fail_io(writer, "no room for it", errno, error) : RPS_OK;
}

/* A whole block. The first one is where a file gets long. */
static rps_status
send_block(struct rps_ckpt_writer *writer, struct rps_error *error)
{
    rps_status status = keep_sum(writer, error);

    if (status == RPS_OK && writer->next == 0) {
        status = take_room(writer, error);
        rps_ckpt_io_begin(&writer->io);
    }
    if (status != RPS_OK) {
        return status;
    }
    rps_ckpt_io_submit(&writer->io, writer->next, writer->used);
    writer->next++;
    writer->bytes += writer->used;
    writer->used = 0;
    return take_block(writer, error);
}

/* What is left is no whole block, which O_DIRECT would want. */
static rps_status
send_rest(struct rps_ckpt_writer *writer, struct rps_error *error)
{
    rps_status status = RPS_OK;

    while (writer->written < writer->next && status == RPS_OK) {
        status = await_block(writer, error);
    }
    if (status != RPS_OK || writer->used == 0) {
        return status;
    }
    add_to_sums(writer, writer->used % SUM_BYTES);
    status = keep_sum(writer, error);
    if (status != RPS_OK) {
        return status;
    }
    rps_ckpt_io_end_direct(&writer->io);
    if (lseek(writer->fd, (off_t)writer->bytes, SEEK_SET) < 0) {
        return fail_io(writer, "lseek", errno, error);
    }
    status = rps_fd_write_all(
            writer->fd, writer->block, writer->used, writer->path, error);
    writer->bytes += writer->used;
    writer->used = 0;
    return status;
}

/* On the disk, as long as it is, and not in the page cache. */
static rps_status
settle(struct rps_ckpt_writer *writer, struct rps_error *error)
{
    if (writer->bytes < writer->wanted &&
            ftruncate(writer->fd, (off_t)writer->bytes) != 0) {
        return fail_io(writer, "ftruncate", errno, error);
    }
    if (fsync(writer->fd) != 0) {
        return fail_io(writer, "fsync", errno, error);
    }
    if (writer->next > 0) {
        (void)posix_fadvise(writer->fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    return RPS_OK;
}

rps_status
rps_ckpt_writer_add(struct rps_ckpt_writer *writer, const void *bytes, size_t n,
        struct rps_error *error)
{
    const unsigned char *from = bytes;

    while (n > 0) {
        size_t part = SUM_BYTES - writer->used % SUM_BYTES;

        part = n < part ? n : part;
        memcpy(writer->block + writer->used, from, part);
        writer->used += part;
        from += part;
        n -= part;
        if (writer->used % SUM_BYTES == 0) {
            add_to_sums(writer, SUM_BYTES);
        }
        if (writer->used == RPS_CKPT_BLOCK_BYTES) {
            rps_status status = send_block(writer, error);

            if (status != RPS_OK) {
                return status;
            }
        }
    }
    return RPS_OK;
}

/* The item's size is the digits of "<f4". */
static uint64_t
file_bytes(const struct rps_npy *npy)
{
    uint64_t bytes = strtoul(npy->dtype + 2, NULL, 10);

    for (uint32_t i = 0; i < npy->ndim; i++) {
        bytes *= npy->shape[i];
    }
    return bytes + RPS_NPY_HEADER_BYTES;
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
    writer->sum = XXH3_createState();
    writer->whole = XXH3_createState();
    if (writer->path == NULL || writer->name == NULL || writer->sum == NULL ||
            writer->whole == NULL) {
        status =
                rps_fail(error, RPS_E_NOMEM, "%s: no memory to write it", name);
        goto fail;
    }
    XXH3_64bits_reset(writer->sum);
    XXH3_64bits_reset(writer->whole);
    writer->fd = open(writer->path,
            O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (writer->fd < 0) {
        status = rps_fail(error, RPS_E_IO, "%s: cannot create: %s",
                writer->path, strerror(errno));
        goto fail;
    }
    rps_ckpt_io_init(&writer->io, writer->fd, true);
    writer->wanted = file_bytes(npy);
    rps_npy_header(npy, header);
    status = take_block(writer, error);
    if (status == RPS_OK) {
        status = rps_ckpt_writer_add(writer, header, sizeof(header), error);
    }
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
    rps_status status = send_rest(writer, error);

    assert(writer->path != NULL);
    if (status == RPS_OK) {
        status = settle(writer, error);
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
    rps_ckpt_io_finish(&writer->io); /* its threads use fd */
    if (writer->path != NULL && writer->fd >= 0) {
        close(writer->fd);
    }
    free(writer->path);
    free(writer->name);
    free(writer->sums);
    if (writer->sum != NULL) {
        XXH3_freeState(writer->sum);
    }
    if (writer->whole != NULL) {
        XXH3_freeState(writer->whole);
    }
    memset(writer, 0, sizeof(*writer));
    writer->fd = -1;
}
