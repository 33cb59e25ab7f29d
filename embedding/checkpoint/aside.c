/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/aside.h"

#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void
rps_ckpt_aside_init(struct rps_ckpt_aside *aside, const char *folder,
        struct rps_error *error)
{
    *aside =
            (struct rps_ckpt_aside){.folder = folder, .error = error, .fd = -1};
}

void
rps_ckpt_aside_finish(struct rps_ckpt_aside *aside)
{
    if (aside->fd >= 0) {
        close(aside->fd);
    }
    aside->fd = -1;
}

static rps_status
fail(const struct rps_ckpt_aside *aside, const char *what, int why)
{
    return rps_fail(aside->error, RPS_E_IO,
            "%s: %s rows that were set aside: %s", aside->folder, what,
            strerror(why));
}

static rps_status
open_file(struct rps_ckpt_aside *aside)
{
    char *path = rps_format("%s/.aside-XXXXXX", aside->folder);

    if (path == NULL) {
        return fail(aside, "cannot write", ENOMEM);
    }
    aside->fd = mkstemp(path);
    if (aside->fd < 0) {
        const int why = errno;
        free(path);
        return fail(aside, "cannot write", why);
    }
    (void)fcntl(aside->fd, F_SETFD, FD_CLOEXEC);
    (void)unlink(path);
    free(path);
    return RPS_OK;
}

static rps_status
put(void *context, const void *bytes, size_t count, uint64_t *offset_out)
{
    struct rps_ckpt_aside *aside = context;
    const char *from = bytes;
    rps_status status = aside->fd >= 0 ? RPS_OK : open_file(aside);

    *offset_out = aside->end;
    while (status == RPS_OK && count > 0) {
        const ssize_t n = pwrite(aside->fd, from, count, (off_t)aside->end);
        if (n > 0) {
            from += n;
            count -= (size_t)n;
            aside->end += (uint64_t)n;
        } else if (n < 0 && errno != EINTR) {
            status = fail(aside, "cannot write", errno);
        }
    }
    return status;
}

static rps_status
get(void *context, uint64_t offset, void *bytes, size_t count)
{
    struct rps_ckpt_aside *aside = context;
    char *to = bytes;
    rps_status status = RPS_OK;

    while (status == RPS_OK && count > 0) {
        const ssize_t n = pread(aside->fd, to, count, (off_t)offset);
        if (n > 0) {
            to += n;
            count -= (size_t)n;
            offset += (uint64_t)n;
        } else if (n == 0 || errno != EINTR) {
            status = fail(aside, "cannot read back", n == 0 ? EIO : errno);
        }
    }
    return status;
}

struct rps_cut_aside
rps_ckpt_aside_of(struct rps_ckpt_aside *aside)
{
    return (struct rps_cut_aside){.put = put, .get = get, .context = aside};
}
