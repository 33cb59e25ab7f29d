/* SPDX-License-Identifier: Apache-2.0 */
#include "client/profile/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

rps_status
rps_profile_file_open(struct rps_profile_file *file, const char *folder,
        const char *name, struct rps_error *error)
{
    int fd;
    const int n =
            snprintf(file->path, sizeof(file->path), "%s/%s", folder, name);

    if (n < 0 || (size_t)n >= sizeof(file->path)) {
        return rps_fail(error, RPS_E_INVAL,
                "profile: the path of its folder is too long: at most %zu "
                "bytes",
                sizeof(file->path) - 32);
    }
    fd = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    file->stream = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file->stream == NULL && fd >= 0) {
        close(fd);
    }
    return file->stream != NULL ? RPS_OK
                                : rps_fail(error, RPS_E_IO, "profile: %s: %s",
                                          file->path, strerror(errno));
}

rps_status
rps_profile_file_close(struct rps_profile_file *file, struct rps_error *error)
{
    const bool failed = ferror(file->stream) != 0;

    errno = 0;
    if (fclose(file->stream) != 0 || failed) {
        return rps_fail(error, RPS_E_IO,
                "profile: %s: not all could be written: %s", file->path,
                errno != 0 ? strerror(errno) : "the disk may be full");
    }
    return RPS_OK;
}

void
rps_profile_put_json(FILE *stream, const char *text)
{
    putc('"', stream);
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\') {
            putc('\\', stream);
            putc(c, stream);
        } else if (c < 0x20 || c >= 0x7f) {
            fprintf(stream, "\\u%04x", c);
        } else {
            putc(c, stream);
        }
    }
    putc('"', stream);
}

void
rps_profile_put_csv(FILE *stream, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, stream);
        return;
    }
    putc('"', stream);
    for (; *text != '\0'; text++) {
        if (*text == '"') {
            putc('"', stream);
        }
        putc(*text, stream);
    }
    putc('"', stream);
}

void
rps_profile_put_us(FILE *stream, uint64_t ns)
{
    fprintf(stream, "%" PRIu64 ".%03u", ns / 1000, (unsigned)(ns % 1000));
}
