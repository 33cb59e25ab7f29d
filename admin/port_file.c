/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/port_file.h"

#include "base/file.h"
#include "base/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_BYTES 16u /* "65535\n" */

static bool
is_given(const char *path)
{
    return path != NULL && path[0] != '\0';
}

/* True also of a file that is not there. */
static bool
is_file(const char *path)
{
    struct stat info;

    return lstat(path, &info) != 0 || S_ISREG(info.st_mode);
}

static rps_status
write_into(const char *path, const char *text, struct rps_error *error)
{
    FILE *file = fopen(path, "we");
    bool good = file != NULL && fputs(text, file) >= 0;

    good = (file == NULL || fclose(file) == 0) && good;
    return good ? RPS_OK
                : rps_fail(error, RPS_E_IO, "%s: %s", path, strerror(errno));
}

rps_status
rps_port_file_write(const char *path, uint16_t port, struct rps_error *error)
{
    char text[TEXT_BYTES];
    char *temporary;
    rps_status status;

    snprintf(text, sizeof(text), "%u\n", port);
    if (!is_file(path)) {
        return write_into(path, text, error);
    }
    temporary = rps_format("%s.%ld.tmp", path, (long)getpid());
    if (temporary == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
    status = rps_file_write(temporary, text, strlen(text), true, error);
    if (status == RPS_OK && rename(temporary, path) != 0) {
        status = rps_fail(error, RPS_E_IO, "%s: %s", path, strerror(errno));
        unlink(temporary);
    }
    free(temporary);
    return status;
}

void
rps_port_file_forget(const char *path)
{
    if (is_given(path) && is_file(path)) {
        unlink(path);
    }
}

void
rps_port_file_remove(const char *path, uint16_t port)
{
    char text[TEXT_BYTES];
    char found[TEXT_BYTES] = "";
    FILE *file;

    if (!is_given(path) || !is_file(path)) {
        return;
    }
    file = fopen(path, "re");
    if (file == NULL) {
        return;
    }
    snprintf(text, sizeof(text), "%u\n", port);
    if (fgets(found, sizeof(found), file) != NULL && strcmp(found, text) == 0) {
        unlink(path);
    }
    fclose(file);
}
