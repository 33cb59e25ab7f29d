/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/pass.h"

#include "base/file.h"
#include "base/text.h"
#include "embedding/checkpoint/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static rps_status
read_blocks(int fd, const char *path, uint64_t bytes, XXH3_state_t *state,
        rps_status (*take)(void *context, const void *bytes, size_t n,
                struct rps_error *error),
        void *context, struct rps_error *error)
{
    unsigned char *block = malloc(RPS_CKPT_BLOCK_BYTES);
    rps_status status = RPS_OK;

    if (block == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
    while (bytes > 0 && status == RPS_OK) {
        const size_t n = bytes < RPS_CKPT_BLOCK_BYTES ? (size_t)bytes
                                                      : RPS_CKPT_BLOCK_BYTES;

        status = rps_ckpt_read_all(fd, path, block, n, error);
        if (status == RPS_OK) {
            XXH3_64bits_update(state, block, n);
            status = take(context, block, n, error);
        }
        bytes -= n;
    }
    free(block);
    return status;
}

rps_status
rps_ckpt_pass(const struct rps_ckpt_folder *folder, const char *name,
        const struct rps_ckpt_listed *listed,
        rps_status (*take)(void *context, const void *bytes, size_t n,
                struct rps_error *error),
        void *context, struct rps_error *error)
{
    char *path = rps_format("%s/%s", folder->path, name);
    XXH3_state_t *state = XXH3_createState();
    uint64_t bytes = 0;
    int fd = -1;
    rps_status status = RPS_E_NOMEM;

    if (path == NULL || state == NULL) {
        rps_fail(error, status, "%s: no memory", folder->path);
        goto out;
    }
    XXH3_64bits_reset(state);
    status = rps_ckpt_folder_file(folder, name, &fd, &bytes, error);
    if (status == RPS_OK && bytes != listed->bytes) {
        status = rps_fail(error, RPS_E_CORRUPT,
                "%s has %" PRIu64 " bytes, %" PRIu64 " were written", path,
                bytes, listed->bytes);
    }
    if (status == RPS_OK) {
        status = read_blocks(fd, path, bytes, state, take, context, error);
    }
    if (status == RPS_OK && XXH3_64bits_digest(state) != listed->sum) {
        status = rps_fail(error, RPS_E_CORRUPT,
                "%s is damaged: it has another checksum than was listed", path);
    }
out:
    if (fd >= 0) {
        close(fd);
    }
    XXH3_freeState(state);
    free(path);
    return status;
}

struct copy {
    int fd;
    const char *path;
};

static rps_status
write_block(void *context, const void *bytes, size_t n, struct rps_error *error)
{
    const struct copy *copy = context;

    return rps_fd_write_all(copy->fd, bytes, n, copy->path, error);
}

rps_status
rps_ckpt_copy(const struct rps_ckpt_folder *folder, const char *name,
        const struct rps_ckpt_listed *listed, const char *to_folder,
        struct rps_error *error)
{
    char *path = rps_format("%s/%s", to_folder, name);
    struct copy copy = {.fd = -1, .path = path};
    rps_status status;

    if (path == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", to_folder);
    }
    copy.fd = open(
            path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (copy.fd < 0) {
        status = rps_fail(error, RPS_E_IO, "%s: cannot create: %s", path,
                strerror(errno));
    } else {
        status = rps_ckpt_pass(folder, name, listed, write_block, &copy, error);
    }
    if (status == RPS_OK && fsync(copy.fd) != 0) {
        status = rps_fail(
                error, RPS_E_IO, "%s: fsync: %s", path, strerror(errno));
    }
    if (copy.fd >= 0) {
        close(copy.fd);
    }
    free(path);
    return status;
}

static rps_status
ignore(void *context, const void *bytes, size_t n, struct rps_error *error)
{
    (void)context;
    (void)bytes;
    (void)n;
    (void)error;
    return RPS_OK;
}

rps_status
rps_ckpt_measure(const struct rps_ckpt_folder *folder, const char *name,
        struct rps_ckpt_listed *listed_out, struct rps_error *error)
{
    XXH3_state_t *state = XXH3_createState();
    uint64_t bytes = 0;
    int fd = -1;
    rps_status status;

    if (state == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", folder->path);
    }
    XXH3_64bits_reset(state);
    status = rps_ckpt_folder_file(folder, name, &fd, &bytes, error);
    if (status == RPS_OK) {
        status = read_blocks(fd, name, bytes, state, ignore, NULL, error);
        close(fd);
    }
    *listed_out = (struct rps_ckpt_listed){
            .bytes = bytes, .sum = XXH3_64bits_digest(state)};
    XXH3_freeState(state);
    return status;
}
